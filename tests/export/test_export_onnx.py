"""Exports to ONNX, run by ONNX Runtime.

Each conversion takes seconds, so `make test` makes two; the other models and
searches are left to `make test-all`.
"""

import functools
import json
import os
import pathlib
import subprocess
import sys

import keras
import numpy as np
import onnx
import onnxruntime
import pytest
import tensorflow as tf
from keras import layers
from support import grouped
from support import toys as toy_models
from support.lazily import Lazily
from support.mechanisms import MECHANISMS
from support.mechanisms import named

import keras_attn
from keras_attn.decoding.translator import requests
from keras_attn.export.onnx.conversion import Conversion
from keras_attn.export.onnx.vocabularies import VocabularyFile

pytestmark = pytest.mark.full

LINES = toy_models.LINES
SOURCE, TARGET = toy_models.SOURCE, toy_models.TARGET
SEED = 7
CLIENT = pathlib.Path(__file__).parents[1] / "support" / "onnx_client.py"


def two_texts():
    """Two source texts, which an RNN attends to in two ways."""
    left, right, target = (
        keras.Input((None,), dtype="int32", name=name)
        for name in ("left", "right", "target")
    )
    memories = [
        layers.GRU(8, return_sequences=True)(
            layers.Embedding(text.size, 8, mask_zero=True)(ids)
        )
        for ids, text in ((left, SOURCE), (right, toy_models.WORDS))
    ]
    attentions = [
        keras_attn.BahdanauAttention(8),
        keras_attn.LuongAttention("general"),
    ]
    hidden = keras_attn.AttentionDecoder(layers.GRUCell(8), attentions)(
        layers.Embedding(TARGET.size, 6, mask_zero=True)(target), memories
    )
    model = keras.Model(
        [left, right, target], layers.Dense(TARGET.size)(hidden)
    )
    toy_models.speak_up(model, 5)
    return keras_attn.Translator(
        model,
        {"left": SOURCE, "right": toy_models.WORDS},
        TARGET,
        keras_attn.BeamSearch(3, num_hypotheses=2, max_length=9),
    )


def several_heads():
    """Heads, which reshape what a product has reshaped."""
    source, target = (
        keras.Input((None,), dtype="int32", name=x) for x in ("in", "out")
    )
    memory = layers.Embedding(SOURCE.size, 8, mask_zero=True)(source)
    hidden = keras_attn.AttentionDecoder(
        layers.GRUCell(8),
        keras_attn.ScaledDotAttention(num_heads=2, head_dim=4),
    )(layers.Embedding(TARGET.size, 6, mask_zero=True)(target), memory)
    model = keras.Model([source, target], layers.Dense(TARGET.size)(hidden))
    toy_models.speak_up(model, 5)
    search = keras_attn.BeamSearch(3, num_hypotheses=2, max_length=9)
    return keras_attn.Translator(model, SOURCE, TARGET, search)


@functools.cache
def large():
    """A model whose vocabulary is read in chunks."""
    text = keras_attn.Text([f"w{i}" for i in range(1500)], split="whitespace")
    source, target = (
        keras.Input((None,), dtype="int32", name=x) for x in ("in", "out")
    )
    memory = layers.GRU(8, return_sequences=True)(
        layers.Embedding(SOURCE.size, 8, mask_zero=True)(source)
    )
    hidden = keras_attn.AttentionDecoder(
        layers.GRUCell(8), keras_attn.BahdanauAttention(8)
    )(layers.Embedding(text.size, 6, mask_zero=True)(target), memory)
    model = keras.Model([source, target], layers.Dense(text.size)(hidden))
    toy_models.speak_up(model, 5)
    return model, text


def searching(search, **options):
    def make():
        model = toy_models._pre_model()
        return keras_attn.Translator(model, SOURCE, TARGET, search, **options)

    return make


def searching_many(search):
    return lambda: keras_attn.Translator(large()[0], SOURCE, large()[1], search)


MAKERS = toy_models.MAKERS | toy_models.OTHERS
MAKERS |= {
    "two texts": two_texts,
    "several heads": several_heads,
    "coverage": searching(
        keras_attn.BeamSearch(
            3,
            coverage_penalty=0.3,
            length_penalty=0.8,
            penalty="power",
            max_length=9,
        )
    ),
    "repetition": searching(
        keras_attn.BeamSearch(
            3,
            repetition_penalty=1.4,
            no_repeat_ngram=2,
            early_stopping="never",
            max_length=9,
        ),
        forbidden=["B"],
    ),
    "by source": searching(
        keras_attn.BeamSearch(
            3, max_per_source=(1.0, 1), min_per_source=(0.3, 1), max_length=9
        )
    ),
    "greedy, rules": searching(
        keras_attn.GreedySearch(
            no_repeat_ngram=2,
            min_length=3,
            max_per_source=(1.0, 1),
            max_length=9,
        )
    ),
    "top k": searching(
        keras_attn.Sampling(num_hypotheses=3, top_k=3, max_length=9)
    ),
    "nucleus": searching(
        keras_attn.Sampling(
            num_hypotheses=2, top_p=0.8, temperature=0.7, max_length=9
        )
    ),
    "many tokens": searching_many(keras_attn.BeamSearch(3, max_length=9)),
    "many tokens, greedy": searching_many(
        keras_attn.GreedySearch(max_length=9)
    ),
    "many tokens, nucleus": searching_many(
        keras_attn.Sampling(top_k=40, top_p=0.9, max_length=9)
    ),
}
NAMES = ["pre", "images", *(x for x in MAKERS if x not in ("pre", "images"))]


@pytest.fixture(scope="module")
def translators(toys):
    own = {*toy_models.MAKERS, *toy_models.OTHERS}
    return Lazily(lambda x: toys[x] if x in own else MAKERS[x](), NAMES)


@pytest.fixture(scope="module")
def exports(translators, tmp_path_factory):
    """The paths of exports by name."""

    def path(name):
        directory = tmp_path_factory.mktemp("onnx") / "model"
        return translators[name].export(directory, format="onnx")

    return Lazily(path, NAMES)


def session_of(path):
    """A session of one thread: others would wait for it and count as CPU."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(path / "model.onnx", options)


@pytest.fixture(scope="module")
def run(exports):
    """A function of a name and inputs that returns outputs by name."""

    sessions = Lazily(lambda name: session_of(exports[name]), NAMES)

    def run(name, inputs):
        found = sessions[name].run(None, inputs)
        names = [x.name for x in sessions[name].get_outputs()]
        return dict(zip(names, found, strict=True))

    return run


def sources_of(name):
    if name == "two texts":
        return LINES, ["abc dead bad", "cab", "", "bad"] * 2
    if name == "mechanisms":  # none has more than 8 letters
        return grouped.LINES
    return toy_models.sources(name)


def inputs_of(name, translator):
    """The inputs of a name's sources."""
    sources = translator.pipeline.sources
    rows = sources.collect(sources_of(name))
    count = sources.count(rows)
    tensors = sources.inputs(sources.take(rows, range(count)))
    named = zip(sources.input_specs, tensors, strict=True)
    inputs = {spec.name: x.numpy() for spec, x in named}
    if sources.reads_text:
        lengths = (inputs["ids"] != 0).sum(axis=1)
        inputs["lengths"] = lengths.astype("int32")
    if translator.search.draws:
        inputs["seed"] = requests._seeds(SEED, count)
    return inputs


def assert_found(found, rows, translator, expected):
    """Asserts that rows of outputs hold a translator's results."""
    tokens = translator.target_text.tokens
    seen = zip(*(found[x][rows] for x in found), strict=True)
    for (ids, lengths, scores, error), best in zip(seen, expected, strict=True):
        hypotheses = [best, *best.alternatives]
        written = [
            [tokens[i] for i in row[:length]]
            for row, length in zip(ids, lengths, strict=True)
            if length
        ]
        assert written == [x.tokens for x in hypotheses]
        assert not any(
            row[n:].any() for row, n in zip(ids, lengths, strict=True)
        )
        np.testing.assert_allclose(
            scores[: len(hypotheses)], [x.score for x in hypotheses], atol=1e-4
        )
        assert np.all(scores[len(hypotheses) :] == float("-inf"))
        assert error == ""


@pytest.mark.sample_cases(1)
@pytest.mark.parametrize("name", NAMES)
def test_onnx_runtime_finds_what_the_translator_finds(name, translators, run):
    translator, inputs = translators[name], inputs_of(name, translators[name])
    seed = SEED if translator.search.draws else None
    expected = translator(sources_of(name), seed=seed)
    count = len(expected)
    assert len({x.text for x in expected}) > 1  # or equal results prove little
    assert_found(run(name, inputs), slice(count), translator, expected)
    # Other batches: larger, in another order, and of one row.
    order = [*reversed(range(count)), *range(count)]
    larger = {key: x[order] for key, x in inputs.items()}
    found = run(name, larger)
    assert_found(found, slice(count), translator, list(expected)[::-1])
    assert_found(found, slice(count, None), translator, expected)
    for row in range(count):
        alone = {key: x[row : row + 1] for key, x in inputs.items()}
        assert_found(run(name, alone), slice(1), translator, [expected[row]])


@pytest.mark.sample_cases(1)
@pytest.mark.parametrize("name", ["pre", "transformer", "words", "two texts"])
def test_padding_does_not_matter(name, translators, run):
    inputs = inputs_of(name, translators[name])
    wider = {
        key: np.pad(x, [[0, 0], [0, 5]]) if x.ndim == 2 else x
        for key, x in inputs.items()
    }
    expected, found = run(name, inputs), run(name, wider)
    np.testing.assert_array_equal(found["target_ids"], expected["target_ids"])
    np.testing.assert_allclose(found["scores"], expected["scores"], atol=1e-4)
    if "lengths" in inputs:  # whatever follows a row's length is ignored
        past = np.arange(wider["ids"].shape[1]) >= inputs["lengths"][:, None]
        wild = wider | {"ids": np.where(past, 99, wider["ids"]).astype("int32")}
        again = run(name, wild)
        for key in found:
            np.testing.assert_array_equal(again[key], found[key])


@pytest.mark.sample_cases(1)
@pytest.mark.parametrize("name", ["pre", "transformer", "words"])
def test_a_row_that_breaks_a_rule_says_so_and_harms_no_other(
    name, translators, run
):
    inputs = inputs_of(name, translators[name])
    size = translators[name].source_text.size
    expected = run(name, inputs)
    wrong = {key: x.copy() for key, x in inputs.items()}
    wrong["ids"][0, 0], wrong["lengths"][1] = size, -1
    wrong["ids"][3, 0], wrong["lengths"][4] = -1, 1 + wrong["ids"].shape[1]
    found, good = run(name, wrong), [2, 5, 6, 7]
    for key in expected:
        np.testing.assert_array_equal(found[key][good], expected[key][good])
    for row, message in (
        (0, f"`ids` must be ids of the vocabulary, between 0 and {size - 1}."),
        (1, "`lengths` must be between 0 and the number of columns"),
        (3, "`ids` must be ids of the vocabulary"),
        (4, "`lengths` must be between 0 and the number of columns"),
    ):
        assert found["error"][row].startswith(message)
        assert not found["target_ids"][row].any()
        assert not found["target_lengths"][row].any()
        assert np.all(found["scores"][row] == float("-inf"))


@pytest.mark.sample_cases(1)
@pytest.mark.parametrize("name", ["words", "two texts"])
def test_ids_longer_than_their_text_may_be_fail_alone(name, translators, run):
    inputs = inputs_of(name, translators[name])
    expected = run(name, inputs)
    texts = dict(translators[name].pipeline.sources.texts)
    for i, text in texts.items():
        key, longest = [*inputs][i], text.longest_source
        padding = [[0, 0], [0, longest + 1 - inputs[key].shape[1]]]
        wide = inputs | {key: np.pad(inputs[key], padding)}
        wide[key][1] = 4
        if "lengths" in wide:
            wide["lengths"] = inputs["lengths"].copy()
            wide["lengths"][1] = longest + 1
        found = run(name, wide)
        assert found["error"][1] == (
            f"A row of `{key}` may have at most {longest} ids in this export. "
            "Split it."
        )
        others = np.arange(len(found["error"])) != 1
        for output in expected:
            np.testing.assert_array_equal(
                found[output][others], expected[output][others]
            )


@pytest.mark.full
def test_ids_of_several_texts_are_checked_too(translators, run):
    inputs = inputs_of("two texts", translators["two texts"])
    expected = run("two texts", inputs)
    wrong = {key: x.copy() for key, x in inputs.items()}
    wrong["right"][0, 0] = 99
    found = run("two texts", wrong)
    assert found["error"][0].startswith("`right` must be ids")
    for key in expected:
        np.testing.assert_array_equal(found[key][1:], expected[key][1:])


@pytest.mark.full
def test_a_model_that_is_not_finite_says_so(tmp_path):
    translator = toy_models.greedy()
    path = translator.export(tmp_path, format="onnx")
    model = onnx.load(path / "model.onnx")
    for weights in model.graph.initializer:
        if (
            weights.data_type == onnx.TensorProto.FLOAT
            and len(weights.dims) > 1
        ):
            bad = np.full(tuple(weights.dims), np.nan, "float32")
            weights.raw_data = bad.tobytes()
    session = onnxruntime.InferenceSession(model.SerializeToString())
    inputs = inputs_of("greedy", translator)
    _, lengths, _, error = session.run(None, inputs)
    assert not lengths.any()
    assert all(x.startswith("A search needs finite logits") for x in error)


@pytest.mark.sample_cases(1)
@pytest.mark.parametrize("name", ["pre", "greedy", "transformer"])
def test_empty_batches_and_rows_without_columns_are_decoded(
    name, translators, run
):
    none = np.zeros((0, 3), "int32"), np.zeros(0, "int32")
    found = run(name, dict(zip(("ids", "lengths"), none, strict=True)))
    assert all(len(x) == 0 for x in found.values())
    blank = np.zeros((2, 1), "int32"), np.zeros(2, "int32")
    bare = np.zeros((2, 0), "int32"), np.zeros(2, "int32")
    expected, found = (
        run(name, dict(zip(("ids", "lengths"), x, strict=True)))
        for x in (blank, bare)
    )
    for key in expected:
        np.testing.assert_array_equal(found[key], expected[key])


def test_lengths_of_another_number_of_rows_are_refused(translators, run):
    inputs = inputs_of("pre", translators["pre"])
    with pytest.raises(onnxruntime.capi.onnxruntime_pybind11_state.Fail):
        run("pre", inputs | {"lengths": inputs["lengths"][:1]})


@pytest.mark.full
def test_equal_seeds_draw_equally_and_others_do_not(translators, run):
    inputs = inputs_of("sampling", translators["sampling"])
    once, again = run("sampling", inputs), run("sampling", inputs)
    np.testing.assert_array_equal(once["target_ids"], again["target_ids"])
    others = inputs | {"seed": -1 - inputs["seed"]}
    other = run("sampling", others)
    assert np.any(once["target_ids"] != other["target_ids"])


def away(command, directory, **more):
    """Runs Python in a directory, without this checkout."""
    clean = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    done = subprocess.run(
        [sys.executable, "-X", "utf8", *command],
        cwd=directory,
        env=clean,
        capture_output=True,
        encoding="utf-8",
        **more,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.sample_cases(1)
@pytest.mark.parametrize("name", ["pre", "words", "feeding"])
def test_a_client_with_the_files_alone_translates_text(
    name, translators, exports, tmp_path
):
    lines = ["abc", "", "e\u0301?é", "Dead", "bad cab", "x abc bad"]
    printed = away([CLIENT, exports[name]], tmp_path, input=json.dumps(lines))
    assert json.loads(printed) == translators[name](lines).text


def example_in(path):
    """The program in an export's `README.txt`."""
    text = (path / "README.txt").read_text(encoding="utf-8")
    _, rest = text.split("\nExample\n-------\n")
    lines = rest.split("\n\nTexts\n")[0].splitlines()
    return "\n".join(x[4:] for x in lines if x.startswith("    "))


@pytest.mark.sample_cases(1)
@pytest.mark.parametrize("name", ["pre", "sampling", "images", "two texts"])
def test_the_example_in_the_readme_runs(name, translators, exports):
    code = example_in(exports[name])
    assert code.startswith("import json") and "run(None, given)" in code
    printed = away(["-c", code], exports[name])
    if name == "pre":  # the first three tokens that are text
        (best,) = translators[name](["?" + "".join(SOURCE.tokens[4:6])])
        assert printed.split("] ")[0] == str(best.tokens)[:-1]
    assert printed.startswith("[")


@pytest.mark.sample_cases(1)
@pytest.mark.parametrize("name", ["pre", "images", "sampling", "two texts"])
def test_the_readme_names_what_the_model_has(name, exports):
    text = (exports[name] / "README.txt").read_text(encoding="utf-8")
    graph = onnx.load(exports[name] / "model.onnx").graph
    for tensor in [*graph.input, *graph.output]:
        kind = tensor.type.tensor_type
        sizes = [x.dim_param or str(x.dim_value) for x in kind.shape.dim]
        dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)
        dtype = "string" if dtype.kind == "O" else dtype
        assert f"\n{tensor.name}: {dtype} [{', '.join(sizes)}]\n" in text
    for package in ("tensorflow", "tf2onnx", "onnxruntime", "keras-attn"):
        assert f"\n{package} " in text
    for file in exports[name].glob("*.json"):
        assert f"\n{file.name}: " in text
    assert all(len(x) <= 80 for x in text.splitlines())


def test_vocabularies_have_all_tokens_in_the_order_of_their_ids(exports):
    for file, text in ("source.json", SOURCE), ("target.json", TARGET):
        found = json.loads((exports["pre"] / file).read_text(encoding="utf-8"))
        assert found["tokens"] == text.tokens
        assert found["special"] == {
            "pad": 0,
            "start": [1],
            "end": 2,
            "unknown": 3,
            "source_start": [],
            "source_end": [2],
            "prompt_tokens": [],
            "spelled_tokens": [],
        }
        assert found["split"] == text.split
        assert found["max_length"] == text.max_length
        assert not found["lowercase"] and found["normalization"] == "NFC"


@pytest.mark.full
def test_each_of_several_texts_has_a_file_with_the_name_of_its_input(exports):
    names = [
        json.loads((exports["two texts"] / f"source-{i}.json").read_text())[
            "input"
        ]
        for i in (1, 2)
    ]
    assert names == ["left", "right"]


def test_what_a_splitter_needs_lies_beside_its_vocabulary(tmp_path):
    lines = ["to be or not to be", "to see or not to see"]
    text = keras_attn.Text.train(
        lines, size=30, kind="bpe", byte_fallback=False
    )
    VocabularyFile(text, "source.json", "ids").write(tmp_path)
    found = json.loads((tmp_path / "source.json").read_text(encoding="utf-8"))
    assert found["split"] == "SentencePiece" and found["tokens"] == text.tokens
    model = (tmp_path / found["split_files"]["model"]).read_bytes()
    again = keras_attn.Text(split=keras_attn.SentencePiece(model))
    assert again.ids(lines).numpy().tolist() == text.ids(lines).numpy().tolist()


@pytest.mark.full
def test_versions_count_up(translators, tmp_path):
    translator = translators["images"]
    first, second = (
        translator.export(tmp_path / "models", format="onnx") for _ in range(2)
    )
    assert (first.name, second.name) == ("1", "2")
    with pytest.raises(FileExistsError, match="There is a version 2"):
        translator.export(first.parent, version=2, format="onnx")
    with pytest.raises(ValueError, match="`version` must be an integer"):
        translator.export(first.parent, version="3", format="onnx")
    assert first.stat().st_mode & 0o555 == 0o555
    assert {x.name for x in first.parent.iterdir()} == {"1", "2"}


@pytest.mark.sample_cases(1)
@pytest.mark.parametrize(
    "option",
    [
        {"signatures": "all"},
        {"signatures": ["options"]},
        {"jit_compile": True},
        {"weights": "int8"},
        {"lengths": True},
        {"buckets": 4},
        {"max_rows": 64},
        {"max_source_length": 9},
    ],
    ids=str,
)
def test_an_option_of_savedmodels_alone_is_refused(option, toys, tmp_path):
    (name,) = option
    with pytest.raises(ValueError, match=f"has no option `{name}`.*Received"):
        toys["greedy"].export(tmp_path / "models", format="onnx", **option)
    assert not list(tmp_path.iterdir())


def test_a_format_that_there_is_not_is_refused(toys, tmp_path):
    with pytest.raises(ValueError, match="`format` must be one of .*'onnx'"):
        toys["greedy"].export(tmp_path, format="tflite")


@pytest.mark.parametrize("package", ["onnx", "onnxruntime", "tf2onnx"])
def test_a_missing_package_says_what_to_install(
    package, toys, tmp_path, monkeypatch
):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(
        ImportError, match=rf'`{package}`.*pip install "keras-attn\[onnx\]"'
    ):
        toys["greedy"].export(tmp_path, format="onnx")
    assert not list(tmp_path.iterdir())


def test_a_shortlist_is_refused(tmp_path):
    table = np.full((SOURCE.size, 2), 5)
    short = keras_attn.Shortlist(table, np.arange(4, 8))
    translator = searching(keras_attn.BeamSearch(2), shortlist=short)()
    with pytest.raises(ValueError, match="cannot have a shortlist"):
        translator.export(tmp_path, format="onnx")


class Uneven(keras_attn.Search):
    """Chooses by a function that ONNX lacks.

    Args:
        scale: A number. Defaults to `1.0`.
    """

    scale: float = keras_attn.decoding.Real(default=1.0, low=0)

    def choose(self, step, state):
        weights = tf.math.igamma(self.scale, tf.exp(step.choices))
        return tf.argmax(weights, axis=-1, output_type=tf.int32)


@pytest.mark.full
def test_an_operation_that_onnx_lacks_is_refused_by_name(tmp_path):
    translator = searching(Uneven(max_length=5))()
    with pytest.raises(ValueError, match=r"cannot be an ONNX.*\['Igamma'\]"):
        translator.export(tmp_path, format="onnx")
    assert not list(tmp_path.iterdir())


@pytest.mark.full
def test_a_branch_within_the_loop_is_refused_with_what_works(tmp_path):
    search = keras_attn.Sampling(top_p=0.9, max_length=9)
    with pytest.raises(ValueError, match="needs a `top_k` too"):
        searching_many(search)().export(tmp_path, format="onnx")
    assert not list(tmp_path.iterdir())


# tf2onnx lacks an operation of theirs.
REFUSED = {
    "hard": "Bitcast",
    "reinforced": "Bitcast",
    "monotonic, parallel": "CumulativeLogsumexp",
}
CONVERTED = [x for x in MECHANISMS if x.name not in REFUSED]


def attending(mechanisms):
    """A translator whose decoder has an attention for each mechanism."""
    return grouped.of_group(mechanisms, {"order": "pre"})


@pytest.mark.full
@pytest.mark.parametrize("first", range(0, len(CONVERTED), 6))
def test_mechanisms_are_converted(first, tmp_path):
    """Several in a decoder; each contributes to every score."""
    translator = attending(CONVERTED[first : first + 6])
    path = translator.export(tmp_path, format="onnx")
    session = session_of(path)
    found = session.run(None, inputs_of("mechanisms", translator))
    names = [x.name for x in session.get_outputs()]
    found = dict(zip(names, found, strict=True))
    expected = translator(sources_of("mechanisms"))
    assert_found(found, slice(len(expected)), translator, expected)


@pytest.mark.full
@pytest.mark.parametrize("name", REFUSED)
def test_a_mechanism_with_an_operation_that_onnx_lacks_is_refused(
    name, tmp_path
):
    with pytest.raises(ValueError, match=rf"operations \['{REFUSED[name]}'\]"):
        attending([named(name)]).export(tmp_path, format="onnx")


def shifted_ids(found):
    return found | {"target_ids": found["target_ids"] + 1}


def other_scores(found):
    return found | {"scores": found["scores"] + 0.1}


@pytest.mark.sample_cases(1)
@pytest.mark.parametrize("change", [shifted_ids, other_scores])
def test_a_model_with_other_results_is_refused_and_nothing_stays(
    change, toys, tmp_path, monkeypatch
):
    runner = Conversion._runner
    monkeypatch.setattr(
        Conversion,
        "_runner",
        lambda self: lambda given: change(runner(self)(given)),
    )
    with pytest.raises(ValueError, match="in ONNX Runtime and .* TensorFlow"):
        toys["images"].export(tmp_path, format="onnx")
    assert not list(tmp_path.iterdir())
