"""Joins subwords into words, and combines their attention."""

import re

import numpy as np

_BYTES = re.compile(r"(<0x[0-9A-F]{2}>)+")
_SPACE = "▁"  # SentencePiece's mark for the beginning of a word
# `BytePair` writes a space before a part of a character as a byte.
_BEGIN = _SPACE, "<0x20>"


def spans(tokens) -> list[tuple[int, int, str]]:
    """Joins subwords into words.

    Subwords are recognized by their marks: `▁` before a subword that begins a
    word (SentencePiece), `##` before one that continues it (WordPiece), `@@`
    after one that is continued (subword-nmt), or bytes, with `<0x20>` between
    words. A special token such as `</s>` is a word. If there are no
    marks, each token is a word.

    Args:
        tokens: List of strings.

    Returns:
        A list with a tuple for each word: the index of its first token, the
        index after its last, and its spelling.
    """
    found: list[list] = []
    begins = _beginnings(tokens)
    for i, (token, new) in enumerate(zip(tokens, begins, strict=True)):
        if new or not found:
            found.append([i, i + 1, [token]])
        else:
            found[-1][1] = i + 1
            found[-1][2].append(token)
    return [(first, last, _spelled(parts)) for first, last, parts in found]


def by_words(alignment, source_tokens, tokens):
    """Returns an alignment between words, and the words of both sides.

    The attention to the subwords of a source word is summed, the attention of
    the subwords of a target word is averaged. So rows that sum to 1 still do.

    Args:
        alignment: Array of shape `(target, source)`.
        source_tokens: List of `source` strings.
        tokens: List of `target` strings.

    Returns:
        A tuple: the alignment, float32, of shape `(target words, source
        words)`, the source words and the target words.
    """
    columns, rows = spans(source_tokens), spans(tokens)
    alignment = np.asarray(alignment, "float32")
    summed = np.stack([alignment[:, i:j].sum(1) for i, j, _ in columns], axis=1)
    averaged = np.stack([summed[i:j].mean(0) for i, j, _ in rows])
    return averaged, [x for *_, x in columns], [x for *_, x in rows]


def _beginnings(tokens):
    """Returns whether a word begins at each token."""
    special = [_is_special(x) for x in tokens]
    after = [False, *special[:-1]]
    if any(x.startswith(_SPACE) for x in tokens):
        new = [x.startswith(_BEGIN) for x in tokens]
    elif any(x.startswith("##") for x in tokens):
        new = [not x.startswith("##") for x in tokens]
    elif any(x.endswith("@@") for x in tokens):
        before = ["", *tokens[:-1]]
        new = [not x.endswith("@@") for x in before]
    elif any(map(_BYTES.fullmatch, tokens)):
        new = [x.startswith(_BEGIN) for x in tokens]
    else:
        return [True] * len(tokens)
    return [x or y or z for x, y, z in zip(new, special, after, strict=True)]


def _is_special(token):
    named = len(token) > 2 and (token[0] + token[-1]) in ("<>", "[]")
    return named and not _BYTES.fullmatch(token)


def _spelled(parts):
    """Returns the word that subwords spell."""
    if len(parts) == 1 and _is_special(parts[0]):
        return parts[0]
    written = b""
    for part in parts:
        if _BYTES.fullmatch(part):
            written += bytes.fromhex(re.sub("<0x|>", "", part))
            continue
        part = part.lstrip(_SPACE)
        part = part.removeprefix("##") if len(part) > 2 else part
        written += part.removesuffix("@@").encode("utf-8", "replace")
    return written.decode("utf-8", "replace").strip(" ") or " "
