"""`TokenizerAdapter`: one of KerasHub's tokenizers as a splitter."""

import dataclasses
from collections.abc import Callable

from keras_attn.text.byte_pair import BytePair
from keras_attn.text.special_tokens import SpecialTokens
from keras_attn.text.splitter import Splitter
from keras_attn.text.subwords import SentencePiece
from keras_attn.text.subwords import WordPiece

_NO_TOKEN = "\ue000"  # no vocabulary has it


@dataclasses.dataclass(frozen=True)
class TokenizerAdapter:
    """A tokenizer as a splitter, with the ids of its tokens."""

    splitter: Callable[[SpecialTokens], Splitter]
    ids: dict[str, int]
    unknown: int
    options: dict = dataclasses.field(default_factory=dict)

    @classmethod
    def of(cls, tokenizer) -> "TokenizerAdapter":
        import keras_hub

        hub = keras_hub.tokenizers
        if isinstance(tokenizer, hub.BytePairTokenizer):
            return cls._of_bytes(tokenizer)
        if isinstance(tokenizer, hub.SentencePieceTokenizer):
            _require_nothing_around(tokenizer)
            proto = tokenizer.proto
            names = tokenizer.get_vocabulary()
            return cls(
                lambda special: SentencePiece(proto, special=special),
                {name: i for i, name in enumerate(names)},
                int(tokenizer.token_to_id(_NO_TOKEN)),
            )
        if isinstance(tokenizer, hub.WordPieceTokenizer):
            _require_usual(tokenizer)
            names = list(tokenizer.get_vocabulary())
            return cls(
                lambda special: WordPiece(names, special),
                {name: i for i, name in enumerate(names)},
                names.index(tokenizer.oov_token),
                {"lowercase": tokenizer.lowercase},
            )
        raise ValueError(
            "`from_keras_hub` reads tokenizers of bytes, SentencePiece or "
            f"word pieces. Received: {tokenizer!r:.100} (of type "
            f"{type(tokenizer).__name__}). Pass a preprocessor, a "
            "`BytePairTokenizer`, `SentencePieceTokenizer` or "
            "`WordPieceTokenizer`; or pass `SpecialTokens`, to read and "
            "write ids."
        )

    @classmethod
    def _of_bytes(cls, tokenizer):
        if tokenizer.add_prefix_space:
            raise ValueError(
                "`add_prefix_space=True` is not supported. Received: "
                f"{type(tokenizer).__name__} with `add_prefix_space=True`. "
                "Make it without, and let sources begin with a space."
            )
        own, given = tokenizer.special_tokens, tokenizer.unsplittable_tokens
        if {*given} - {*own}:
            raise ValueError(
                "`from_keras_hub` splits all text except special tokens. "
                f"Received: {type(tokenizer).__name__} with "
                f"`unsplittable_tokens={given!r:.100}`. Make it without, or "
                "pass `SpecialTokens` to read and write ids."
            )
        ids = dict(tokenizer.vocabulary)
        return cls(
            lambda special: BytePair(ids, tokenizer.merges, special),
            ids,
            ids.get("<unk>", -1),
        )


def _require_nothing_around(tokenizer):
    """Raises `ValueError` for a tokenizer that adds tokens to each text."""
    given = {x: True for x in ("add_bos", "add_eos") if getattr(tokenizer, x)}
    if given:
        raise ValueError(
            "`from_keras_hub` reads the tokens around a text from the "
            "preprocessor, so a tokenizer must add none. Received: "
            f"{type(tokenizer).__name__} with {given}. Make it without, or "
            "pass `SpecialTokens` to read and write ids."
        )


def _require_usual(tokenizer):
    """Raises `ValueError` for options that `WordPiece` does not have."""
    usual = {
        "strip_accents": False,
        "split": True,
        "split_on_cjk": True,
        "suffix_indicator": "##",
        "special_tokens_in_strings": False,
    }
    given = {name: getattr(tokenizer, name) for name in usual}
    given = {name: x for name, x in given.items() if x != usual[name]}
    if given:
        raise ValueError(
            "`from_keras_hub` splits into word pieces as BERT does. Received: "
            f"{type(tokenizer).__name__} with {given}. Make it without, or "
            "pass `SpecialTokens` to read and write ids."
        )
