"""`Kind`: a kind of KerasHub's tokenizers, and its splitter here."""

import dataclasses
from typing import Any

from keras_attn.text import BytePair
from keras_attn.text import SentencePiece
from keras_attn.text import Splitter
from keras_attn.text import WordPiece

_NO_TOKEN = "\ue000"  # no vocabulary has it


@dataclasses.dataclass(frozen=True)
class Kind:
    """A kind of tokenizer: its splitter, and the ids of its tokens."""

    make: Any  # function of `SpecialTokens`
    ids: dict[str, int]
    unknown: int
    options: dict = dataclasses.field(default_factory=dict)

    def splitter(self, special) -> Splitter:
        return self.make(special)

    @classmethod
    def of(cls, tokenizer) -> "Kind":
        import keras_hub

        hub = keras_hub.tokenizers
        if isinstance(tokenizer, hub.BytePairTokenizer):
            return cls._of_bytes(tokenizer)
        if isinstance(tokenizer, hub.SentencePieceTokenizer):
            proto = tokenizer.proto
            names = tokenizer.get_vocabulary()
            return cls(
                lambda special: SentencePiece(proto, special=special),
                {name: i for i, name in enumerate(names)},
                int(tokenizer.token_to_id(_NO_TOKEN)),
            )
        if isinstance(tokenizer, hub.WordPieceTokenizer):
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
                "A text begins as it is written. Received: "
                f"{type(tokenizer).__name__} with `add_prefix_space=True`. "
                "Make it without, and let sources begin with a space."
            )
        ids = dict(tokenizer.vocabulary)
        return cls(
            lambda special: BytePair(ids, tokenizer.merges, special),
            ids,
            ids.get("<unk>", -1),
        )
