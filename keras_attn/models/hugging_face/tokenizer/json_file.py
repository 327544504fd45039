"""`read_tokenizer`: the tokens in a `tokenizer.json`.

Its parts, as the library `tokenizers` writes them, become the same splitters as
the files of SentencePiece and byte pairs from which they came. Parts without a
counterpart are refused.
"""

import base64
import binascii
import re
from typing import Any

from keras_attn.models.hugging_face.tokenizer.tokens import Tokens
from keras_attn.models.hugging_face.tokenizer.tokens import in_order
from keras_attn.text.subwords import made_of

_FILE = "tokenizer.json"
_MARK = "▁"
# What T5 writes for a span that was left out
_SPAN = re.compile(r"<extra_id_\d+>")
# Whisper's tokens for languages, tasks and times
MARKED = re.compile(r"<\|[^|]*\|>")
# `eng_Latn` of NLLB, `en_XX` of mBART, `__en__` of M2M-100
_CODE = re.compile("[a-z]{3}_[A-Z][a-z]{3}|[a-z]{2}_[A-Z]{2}|__[a-z]{2,3}__")


def read_tokenizer(found: dict) -> Tokens:
    """Returns the tokens of a tokenizer.

    Args:
        found: The content of a `tokenizer.json`.

    Raises:
        ValueError: If it splits text in a way that has no counterpart.
    """
    try:
        return _Tokenizer(found).tokens()
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(
            f"`{_FILE}` must be as the library tokenizers writes it. Received: "
            f"one without the parts that it needs: {error!r:.200}"
        ) from error


class _Tokenizer:
    """The parts of a `tokenizer.json`."""

    def __init__(self, found):
        self._model = found["model"]
        self._added = {x["content"]: x["id"] for x in found["added_tokens"]}
        self._require_special(found["added_tokens"])
        self._special = [x for x in self._added if x != "<pad>"]
        if found["post_processor"] is None:
            _refuse("post_processor", None)
        self._normalizers = _listed(found["normalizer"], "normalizers")
        self._before = _listed(found["pre_tokenizer"], "pretokenizers")
        kinds = {x["type"] for x in self._before}
        self._of_bytes = kinds == {"ByteLevel"}
        if not self._of_bytes and "Metaspace" not in kinds:
            _refuse("pre_tokenizer", sorted(kinds))

    def tokens(self):
        kind = self._model["type"]
        if kind == "BPE" and self._of_bytes:
            return self._byte_pairs()
        if kind == "Unigram":
            return self._unigram()
        if kind == "BPE":
            return self._merged_pieces()
        return _refuse("model", kind)

    def _require_special(self, added):
        """Refuses words that were added, at which a text is split first."""
        known = {x["content"] for x in added if x["special"]}
        words = [x for x in self._added if x not in known | {"<mask>"}]
        words = [x for x in words if not MARKED.fullmatch(x)]
        if words:
            raise ValueError(
                f"`{_FILE}` must have no words that were added to its "
                f"vocabulary. Received: {words[:5]}, which are not special. "
                "Pass `ids=True` to read and write ids."
            )

    def _byte_pairs(self):
        self._require_no_rules()
        self._require_usual_model()
        for one in self._before:
            if one.get("add_prefix_space"):
                _refuse("pre_tokenizer", "add_prefix_space=true")
            if not one.get("use_regex", True):
                _refuse("pre_tokenizer", "use_regex=false")
        merges = [tuple(x) for x in map(_pair, self._model["merges"])]
        names = self._names(self._model["vocab"])
        return Tokens.of_bytes(names, merges, self._special)

    def _unigram(self):
        scores = dict(map(tuple, self._model["vocab"]))
        ids = {x: i for i, (x, _) in enumerate(self._model["vocab"])}
        return self._pieces("unigram", scores, ids, self._model["unk_id"])

    def _merged_pieces(self):
        """Pieces of SentencePiece's BPE, whose scores are their ranks."""
        ids, ranks = self._model["vocab"], {}
        for rank, pair in enumerate(map(_pair, self._model["merges"])):
            ranks.setdefault("".join(pair), rank)
        last = len(ranks)
        scores = {x: -float(ranks.get(x, last)) for x in ids}
        unknown = ids[self._model["unk_token"]]
        return self._pieces("bpe", scores, ids, unknown)

    def _pieces(self, kind, scores, ids, unknown):
        self._require_usual_pieces()
        names = self._names(ids)
        codes = [x for x in self._added if _CODE.fullmatch(x)]
        spans = [x for x in self._added if _SPAN.fullmatch(x)]
        written = [*codes, *spans]
        content = made_of(
            [(x, scores.get(x, 0.0)) for x in names],
            kind,
            unknown,
            [self._added[x] for x in self._added if x not in written],
            [self._added[x] for x in written],
            self._rules(),
        )
        return Tokens.of_pieces(content, names, codes, self._special)

    def _names(self, ids):
        """Returns all tokens in the order of their ids."""
        return in_order(_FILE, dict(ids) | self._added)

    def _rules(self):
        """Returns SentencePiece's rules of normalization."""
        rules = b""
        for one in self._normalizers:
            kind, pattern = one["type"], one.get("pattern")
            if kind == "Precompiled" and not rules:
                rules = _decoded(one["precompiled_charsmap"])
            elif kind == "Strip" and not one["strip_left"]:
                continue
            elif kind != "Replace" or not _is_blank(pattern, one["content"]):
                _refuse("normalizer", kind)
        return rules

    def _require_no_rules(self):
        if self._normalizers:
            _refuse("normalizer", [x["type"] for x in self._normalizers])

    def _require_usual_pieces(self):
        for one in self._before:
            usual = {
                "WhitespaceSplit": {},
                "Metaspace": {
                    "replacement": _MARK,
                    "prepend_scheme": "always",
                    "add_prefix_space": True,
                },
            }.get(one["type"])
            if usual is None or any(
                one.get(x, y) != y for x, y in usual.items()
            ):
                _refuse("pre_tokenizer", one)
        self._require_usual_model()

    def _require_usual_model(self):
        for name in ("dropout", "byte_fallback", "ignore_merges"):
            if self._model.get(name):
                _refuse("model", f"{name}={self._model[name]}")
        for name in ("continuing_subword_prefix", "end_of_word_suffix"):
            if self._model.get(name):
                _refuse("model", f"{name}={self._model[name]!r}")


def _listed(part, name) -> list[dict[str, Any]]:
    """Returns a part, or the parts of a sequence, or none."""
    if part is None:
        return []
    return part[name] if part["type"] == "Sequence" else [part]


def _pair(merge):
    """Returns the two tokens of a merge, `["a", "b"]` or `"a b"`."""
    return merge.split(" ") if isinstance(merge, str) else merge


def _is_blank(pattern, content):
    """Whether a rule is one of SentencePiece's for blanks."""
    of = next(iter(pattern.values()))
    return (of, content) in {(" {2,}", " "), (" {2,}", _MARK), (r"\n", " ")}


def _decoded(content):
    try:
        return base64.b64decode(content, validate=True)
    except binascii.Error as error:
        raise ValueError(
            f"`{_FILE}` must have rules of normalization in base 64. Received: "
            f"others: {error}"
        ) from error


def _refuse(part, given):
    raise ValueError(
        f"`{_FILE}` must split text as SentencePiece, or into byte pairs as "
        f"GPT-2. Received: `{part}` with {given!r:.200}. Pass `ids=True` to "
        "read and write ids."
    )
