"""`Tokens`: the vocabulary of a tokenizer's files, and how text is split."""

import dataclasses
from collections.abc import Callable

from keras_attn.models.hugging_face import languages
from keras_attn.models.hugging_face.directory import Directory
from keras_attn.text.byte_pair import BytePair
from keras_attn.text.special_tokens import SpecialTokens
from keras_attn.text.splitter import Splitter
from keras_attn.text.subwords import SentencePiece
from keras_attn.text.subwords import pieces_of

UNKNOWN = "<unk>"
_PIECES = "sentencepiece.bpe.model"
_FAIRSEQ = ["<s>", "<pad>", "</s>", UNKNOWN]
_OFFSET = 103  # of Pegasus: tokens before those of its model


@dataclasses.dataclass(frozen=True)
class Tokens:
    """The tokens of one side, in the order of their ids.

    Attributes:
        names: The tokens.
        codes: Those that name languages.
        splitter: Function from `SpecialTokens` and names to a `Splitter`.
    """

    names: list[str]
    codes: list[str]
    splitter: Callable[[SpecialTokens, list[str]], Splitter]

    @classmethod
    def of_pieces(cls, content: bytes, names, codes=()) -> "Tokens":
        """Returns tokens of a model of SentencePiece.

        Args:
            content: The model.
            names: All tokens in the order of their ids.
            codes: Those that name languages.
        """
        if UNKNOWN not in names:
            raise ValueError(
                f"A vocabulary must have the token {UNKNOWN!r}. Received: "
                f"{len(names)} tokens without it."
            )
        return cls(
            names,
            list(codes),
            lambda special, names: SentencePiece(
                content, special=special, vocabulary=names
            ),
        )

    @property
    def ids(self) -> dict[str, int]:
        """The ids of the tokens."""
        return {x: i for i, x in enumerate(self.names)}

    def of_size(self, size: int) -> "Tokens":
        """Returns these and, up to a number of ids, tokens that no text has.

        Raises:
            ValueError: If there are more tokens than ids.
        """
        more = range(len(self.names), size)
        if len(self.names) > size:
            raise ValueError(
                "The tokenizer must have no more tokens than the model has "
                f"ids. Received: {len(self.names)} tokens and {size} ids by "
                "`config.json`. The files must be of the same model."
            )
        names = [*self.names, *(f"<unused {i}>" for i in more)]
        return dataclasses.replace(self, names=names)


def read(directory: Directory, family: str) -> tuple[Tokens, Tokens]:
    """Returns the tokens of source and target.

    Args:
        directory: The `Directory`.
        family: Hugging Face's `model_type`.
    """
    if family == "marian":
        return _of_marian(directory)
    found = _READERS[family](directory)
    return found, found


def _of_marian(directory):
    settings = directory.json("tokenizer_config.json") or {}
    source = target = _vocabulary(directory, "vocab.json")
    if settings.get("separate_vocabs"):
        target = _vocabulary(directory, "target_vocab.json")
    codes = [x for x in source if x.startswith(">>") and x.endswith("<<")]
    return (
        Tokens.of_pieces(_content(directory, "source.spm"), source, codes),
        Tokens.of_pieces(_content(directory, "target.spm"), target),
    )


def _of_bart(directory):
    ids = directory.json("vocab.json")
    if ids is None:
        directory.needed("vocab.json", "The tokenizer of BART")
    merges = directory.needed("merges.txt", "The tokenizer of BART")
    names = _in_order("vocab.json", ids)
    return Tokens(
        names,
        [],
        lambda special, names: BytePair(
            {x: i for i, x in enumerate(names)}, merges, special
        ),
    )


def _of_m2m_100(directory):
    settings = directory.json("tokenizer_config.json") or {}
    if directory.file("vocab.json") is None:
        return _of_fairseq(directory, languages.NLLB, settings)
    codes = [f"__{x}__" for x in languages.M2M_100]
    names = _vocabulary(directory, "vocab.json")
    return Tokens.of_pieces(
        _content(directory, _PIECES), [*names, *codes], codes
    )


def _of_mbart(directory):
    settings = directory.json("tokenizer_config.json") or {}
    codes = languages.MBART_50 if is_mbart_50(settings) else languages.MBART
    return _of_fairseq(directory, codes, settings)


def is_mbart_50(settings: dict) -> bool:
    """Whether a `tokenizer_config.json` is that of mBART-50."""
    return str(settings.get("tokenizer_class")).startswith("MBart50")


def _of_fairseq(directory, codes, settings):
    """Tokens of FairSeq, whose ids are one more than the model's."""
    content = _content(directory, _PIECES)
    names = [*_FAIRSEQ, *pieces_of(content)[3:], *codes, "<mask>"]
    return Tokens.of_pieces(content, names, codes)


def _of_pegasus(directory):
    content = _content(directory, "spiece.model")
    settings = directory.json("tokenizer_config.json") or {}
    offset = settings.get("offset", _OFFSET)
    first = ["<pad>", "</s>", "<mask_1>", "<mask_2>"]
    if not offset:
        first = ["<pad>", "</s>"]
    pieces = pieces_of(content)
    unused = [f"<unk_{i}>" for i in range(2, offset)]
    # The model's own first pieces are padding, end and unknown.
    return Tokens.of_pieces(content, [*first, *unused, *pieces[2:]])


_READERS = {
    "bart": _of_bart,
    "m2m_100": _of_m2m_100,
    "mbart": _of_mbart,
    "pegasus": _of_pegasus,
}


def _content(directory, name):
    return directory.needed(name, "A tokenizer").read_bytes()


def _vocabulary(directory, name):
    """Returns the tokens in a file, in the order of their ids."""
    directory.needed(name, "A tokenizer")
    return _in_order(name, directory.json(name))


def _in_order(name, ids):
    whole = all(isinstance(x, int) for x in ids.values())
    tokens = sorted(ids, key=ids.get) if whole else []
    if [ids[x] for x in tokens] != [*range(len(ids))]:
        raise ValueError(
            f"`{name}` must give its tokens the ids from 0 on, each once. "
            f"Received: {len(ids)} tokens with other ids."
        )
    return tokens
