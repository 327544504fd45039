"""`read`: the tokens of source and target, from the files of a tokenizer."""

import dataclasses

from keras_attn.models.hugging_face.directory import Directory
from keras_attn.models.hugging_face.tokenizer import languages
from keras_attn.models.hugging_face.tokenizer.json_file import MARKED
from keras_attn.models.hugging_face.tokenizer.json_file import read_tokenizer
from keras_attn.models.hugging_face.tokenizer.tokens import UNKNOWN
from keras_attn.models.hugging_face.tokenizer.tokens import Tokens
from keras_attn.models.hugging_face.tokenizer.tokens import in_order
from keras_attn.text.byte_pair import BYTES
from keras_attn.text.subwords import pieces_of

_PIECES = "sentencepiece.bpe.model"
_FAIRSEQ = ["<s>", "<pad>", "</s>", UNKNOWN]
_OFFSET = 103  # of Pegasus: tokens before those of its model
_SPANS, _SPANS_OF_BYTES = 100, 125  # of T5 and ByT5


def read(directory: Directory, family: str) -> tuple[Tokens, Tokens]:
    """Returns the tokens of source and target.

    Args:
        directory: The `Directory`.
        family: Hugging Face's `model_type`.
    """
    if family == "marian":
        found = _of_marian(directory)
        _require_added(directory, found[0].names)
        return found
    whole = directory.json("tokenizer.json")
    if _is_of_bytes(settings_of(directory)):
        whole = None  # no file defines the ids of bytes
    if family == "whisper":
        found = _of_whisper(directory, whole)
    elif whole is not None:  # the ids of added tokens are in it
        found = read_tokenizer(whole)
    else:
        found = _READERS[family](directory)
        _require_added(directory, found.names)
    return found, found


def settings_of(directory: Directory) -> dict:
    """Returns the settings in `tokenizer_config.json` and `config.json`."""
    found = directory.json("tokenizer_config.json") or {}
    found = {x: y for x, y in found.items() if y is not None}
    kind = directory.configuration.get("tokenizer_class")
    return {"tokenizer_class": kind} | found


def _is_of_bytes(settings):
    return str(settings.get("tokenizer_class")).startswith("ByT5")


def _require_added(directory, names):
    """Refuses tokens that were added to a vocabulary, or have other ids."""
    try:
        ids = _added(directory, names)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise ValueError(
            "`added_tokens.json` and `tokenizer_config.json` must name added "
            "tokens as transformers writes them. Received: others in "
            f"{directory.path}: {error!r:.200}"
        ) from error
    for i, x in sorted(ids.items()):
        if i >= len(names) or names[i] != x:
            raise ValueError(
                "The tokens that were added to a vocabulary must be those that "
                f"its model has anyway. Received: {x!r} with the id {i}, and "
                f"{len(names)} tokens of the files. `ids=True` reads and "
                "writes ids."
            )


def _added(directory, names) -> dict[int, str]:
    """Returns the tokens that were added to a vocabulary, by their ids."""
    settings = settings_of(directory)
    added = directory.json("added_tokens.json") or {}
    ids = {int(i): x for x, i in added.items()}
    for i, x in (settings.get("added_tokens_decoder") or {}).items():
        ids[int(i)] = x["content"]
    special = settings.get("additional_special_tokens") or []
    special = [x["content"] if isinstance(x, dict) else x for x in special]
    return ids | {len(names): x for x in special if x not in names}


def _of_marian(directory):
    settings = settings_of(directory)
    source = target = _vocabulary(directory, "vocab.json")
    if settings.get("separate_vocabs"):
        target = _vocabulary(directory, "target_vocab.json")
    codes = [x for x in source if x.startswith(">>") and x.endswith("<<")]
    return (
        Tokens.of_pieces(_content(directory, "source.spm"), source, codes),
        Tokens.of_pieces(_content(directory, "target.spm"), target),
    )


def _of_bart(directory):
    merges = directory.needed("merges.txt", "The tokenizer of BART")
    if settings_of(directory).get("add_prefix_space"):
        raise ValueError(
            "BART's tokenizer is read as it was trained. Received: "
            "`add_prefix_space` in `tokenizer_config.json`. Let texts begin "
            "with a space instead, and set it to false."
        )
    return Tokens.of_bytes(_vocabulary(directory, "vocab.json"), merges)


def _of_whisper(directory, whole):
    """Returns byte pairs, and Whisper's languages, tasks and times."""
    if whole is not None:
        found = read_tokenizer(whole)
    else:
        merges = directory.needed("merges.txt", "The tokenizer of Whisper")
        ids = dict(directory.json("vocab.json") or {})
        ids |= directory.json("added_tokens.json") or {}
        directory.needed("vocab.json", "The tokenizer of Whisper")
        found = Tokens.of_bytes(in_order("vocab.json", ids), merges)
    codes = [x for x in found.names if MARKED.fullmatch(x)]
    return dataclasses.replace(found, codes=codes)


def _of_m2m_100(directory):
    if directory.file("vocab.json") is None:
        return _of_fairseq(directory, languages.NLLB)
    codes = [f"__{x}__" for x in languages.M2M_100]
    names = _vocabulary(directory, "vocab.json")
    return Tokens.of_pieces(
        _content(directory, _PIECES), [*names, *codes], codes
    )


def _of_mbart(directory):
    settings = settings_of(directory)
    codes = languages.MBART_50 if is_mbart_50(settings) else languages.MBART
    return _of_fairseq(directory, codes)


def is_mbart_50(settings: dict) -> bool:
    """Whether a `tokenizer_config.json` is that of mBART-50."""
    return str(settings.get("tokenizer_class")).startswith("MBart50")


def _of_fairseq(directory, codes):
    """Returns FairSeq's tokens, whose ids are one above those of the model."""
    content = _content(directory, _PIECES)
    names = [*_FAIRSEQ, *pieces_of(content)[3:], *codes, "<mask>"]
    return Tokens.of_pieces(content, names, codes)


def _of_pegasus(directory):
    content = _content(directory, "spiece.model")
    settings = settings_of(directory)
    offset = settings.get("offset", _OFFSET)
    first = ["<pad>", "</s>", "<mask_1>", "<mask_2>"]
    if not offset:
        first = ["<pad>", "</s>"]
    pieces = pieces_of(content)
    unused = [f"<unk_{i}>" for i in range(2, offset)]
    # The model's own first pieces are padding, end and unknown.
    names = [*first, *unused, *pieces[2:]]
    return Tokens.of_pieces(content, names, special=[*first[1:], *unused])


def _of_t5(directory):
    settings = settings_of(directory)
    own = 0 if directory.configuration["model_type"] == "mt5" else _SPANS
    if _is_of_bytes(settings):
        spans = _spans(settings.get("extra_ids", _SPANS_OF_BYTES))
        names = ["<pad>", "</s>", UNKNOWN, *BYTES, *spans]
        return Tokens.of_bytes(names, [], spans)
    content = _content(directory, "spiece.model")
    spans = _spans(settings.get("extra_ids", own))
    names = [*pieces_of(content), *reversed(spans)]
    return Tokens.of_pieces(content, names, special=spans)


def _spans(count):
    """Returns the tokens of T5 for spans that were left out."""
    if not isinstance(count, int):
        raise ValueError(
            "`extra_ids` in `tokenizer_config.json` must be an integer. "
            f"Received: {count!r:.100}"
        )
    return [f"<extra_id_{i}>" for i in range(count)]


_READERS = {
    "bart": _of_bart,
    "m2m_100": _of_m2m_100,
    "mbart": _of_mbart,
    "mt5": _of_t5,
    "pegasus": _of_pegasus,
    "t5": _of_t5,
}


def _content(directory, name):
    path = directory.needed(name, "A tokenizer")
    content = path.read_bytes()
    try:
        found = pieces_of(content)
    except ValueError:
        found = []
    if not found:
        raise ValueError(
            f"`{name}` must be a model of SentencePiece. Received: {path}, "
            "which is none. Was it cut off, or is it a pointer of Git LFS? "
            "Get it again."
        )
    return content


def _vocabulary(directory, name):
    """Returns the tokens in a file, in the order of their ids."""
    directory.needed(name, "A tokenizer")
    return in_order(name, directory.json(name))
