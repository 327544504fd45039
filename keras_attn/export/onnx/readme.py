"""The `README.txt` of an ONNX export, for developers of clients."""

import importlib.metadata
import textwrap

import keras
import tensorflow as tf

from keras_attn.export.onnx.conversion import OPSET
from keras_attn.export.onnx.conversion import sizes_of

_OUTPUTS = {
    "target_ids": "the ids of the N best targets, best first, padded",
    "target_lengths": "the number of ids of each target, including the end "
    "token; 0 if fewer than N targets were found",
    "scores": "the score of each target; minus infinity if it was not found",
    "error": 'why a row was not decoded; "" if it was',
}
_STEPS = (
    "Replace tabs and line breaks by spaces. Normalize the text to the Unicode "
    "form `normalization`, unless that is null, and lower-case it if "
    "`lowercase`.",
    'Split it as `split` says: "characters" means code points, "whitespace" '
    "means words between white space. Any other value is the name of a "
    "splitter class; `split_options` has its options, and `split_files` its "
    "files.",
    "Look the pieces up in `tokens`; an id is an index there. A piece that is "
    "not there has the id `special.unknown`, and so has the name of a special "
    "token.",
    "Keep at most `max_length` ids, or refuse a longer text if `too_long` is "
    '"error". Put `special.source_start` before them and `special.source_end` '
    "after them.",
)
_DTYPES = dict.fromkeys(("target_ids", "target_lengths"), "int32")
_DTYPES |= {"scores": "float32", "error": "string"}


def readme(translator, ids, vocabularies) -> str:
    """Returns the content of `README.txt`.

    Args:
        translator: The `Translator`.
        ids: The `Ids` of the model.
        vocabularies: A `VocabularyFile` for each source text, then that of
            the target.
    """
    parts = [
        _filled(
            "model.onnx translates source ids into target ids. It needs only "
            "ONNX Runtime. It holds the weights and the search, "
            f"{translator.search!r}."
        ),
        _inputs(ids, vocabularies),
        _outputs(ids, translator),
        _example(ids, vocabularies),
        _texts(ids, vocabularies),
        "Versions\n--------\n\n" + _versions(),
    ]
    return "\n\n".join(parts) + "\n"


def _inputs(ids, vocabularies):
    texts = {x.name: x for x in vocabularies if x.name}
    lines = []
    for spec in ids.specs:
        meaning = "the model's own input"
        if spec.name in texts:
            special = texts[spec.name].text.special
            meaning = f"ids of {texts[spec.name].file}, padded by {special.pad}"
        elif spec.name == "lengths" and "ids" in texts:
            meaning = "the number of ids in each row; later ids are ignored"
        elif spec is ids.specs[-1] and spec.name == "seed":
            meaning = "any integers; the same seed draws the same target again"
        lines.append(_tensor(spec.name, spec.dtype.name, sizes_of(spec)))
        lines.append(_filled(meaning, 4))
    end = (
        "B is the number of rows. A size with a name may be any number, and "
        "may\nchange from call to call. A batch is decoded until its last row "
        "is done,\nso send texts of similar length together."
    )
    return "Inputs\n------\n\n" + "\n".join(lines) + "\n\n" + end


def _outputs(ids, translator):
    lines = []
    for name, sizes in ids.sizes.items():
        lines.append(_tensor(name, _DTYPES[name], sizes))
        lines.append(_filled(_OUTPUTS[name], 4))
    end = "A row that cannot be decoded does not affect the others."
    if translator.replace_unknown:
        end += (
            "\nThe translator replaces unknown tokens by source tokens. This "
            "model does not:\nit returns the id of the unknown token."
        )
    return "Outputs\n-------\n\n" + "\n".join(lines) + "\n\n" + end


def _filled(line, indent=0, first=None):
    """Returns a text wrapped to lines of at most 80 characters.

    Args:
        line: The text.
        indent: Number of spaces before each line.
        first: What stands before the first line instead.
    """
    space = " " * indent
    first = space if first is None else first
    return textwrap.fill(
        line, 80, initial_indent=first, subsequent_indent=space
    )


def _tensor(name, dtype, sizes):
    return f"{name}: {dtype} [{', '.join(map(str, sizes))}]"


def _example(ids, vocabularies):
    """Returns a few lines of Python that run in the export's directory."""
    *sources, target = vocabularies
    given = [_given(spec, sources) for spec in ids.specs]
    comma = ",\n" + " " * 13
    lines = [
        "import json, numpy as np, onnxruntime",
        'session = onnxruntime.InferenceSession("model.onnx")',
        f"given = {{{comma.join(given)}}}",
        "ids, lengths, scores, error = session.run(None, given)",
        f'target = json.load(open("{target.file}", encoding="utf-8"))',
        "best = ids[0, 0, : lengths[0, 0]]",
        'print([target["tokens"][i] for i in best], scores[0, 0], error[0])',
    ]
    head = "An example, in the directory of this file:"
    code = textwrap.indent("\n".join(lines), "    ")
    return f"Example\n-------\n\n{head}\n\n{code}"


def _given(spec, sources):
    """Returns the code of one item of the dictionary of inputs, for one row."""
    rows = {x.name: _row(x.text) for x in sources}
    if spec.name in rows:
        value = f'np.array([{rows[spec.name]}], "int32")'
    elif spec.name == "lengths" and "ids" in rows:
        value = f'np.array([{len(rows["ids"])}], "int32")'
    elif spec.name == "seed":
        value = 'np.array([1], "int32")'
    else:
        sizes = [size or 8 for size in spec.shape[1:]]
        value = f'np.zeros({[1, *sizes]}, "{spec.dtype.name}")'
    return f'"{spec.name}": {value}'


def _row(text):
    """Returns the ids of a short text."""
    some = text.special.of_text(text.size)[:3]
    return [*text.special.source_start, *some, *text.special.ends_source]


def _texts(ids, vocabularies):
    *sources, target = vocabularies
    lines = []
    if sources:
        lines += ["To turn a source text into ids, with its JSON file:", ""]
        lines += [_filled(x, 3, f"{i}. ") for i, x in enumerate(_STEPS, 1)]
        lines += [""]
    lines += [
        "To turn target ids into a text: look them up in `tokens` of "
        f"{target.file}.",
        "Leave out the ids in `special`, except `unknown`. Join the tokens "
        "with `join`;",
        "if that is null, the class named by `split` joins them.",
        "",
    ]
    for vocabulary in vocabularies:
        whose = (
            f"the source `{vocabulary.name}`"
            if vocabulary.name
            else "the target"
        )
        lines.append(
            f"{vocabulary.file}: {whose}, {vocabulary.text.size} tokens, "
            f"split by {vocabulary.split}"
        )
    return "Texts\n-----\n\n" + "\n".join(lines)


def _versions():
    import onnx
    import onnxruntime
    import tf2onnx

    found = {"keras-attn": importlib.metadata.version("keras-attn")}
    for package in (keras, tf, onnx, onnxruntime, tf2onnx):
        found[package.__name__] = package.__version__
    written = "\n".join(f"{name} {number}" for name, number in found.items())
    return f"{written}\nONNX opset {OPSET}"
