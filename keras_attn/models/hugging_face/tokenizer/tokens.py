"""`Tokens`: a vocabulary, and how text is split into it."""

import dataclasses
import functools
from collections.abc import Callable
from collections.abc import Sequence

from keras_attn.text.byte_pair import BytePair
from keras_attn.text.special_tokens import SpecialTokens
from keras_attn.text.splitter import Splitter
from keras_attn.text.subwords import SentencePiece

UNKNOWN = "<unk>"
_USUAL = "<s>", "</s>", UNKNOWN, "<mask>"


@dataclasses.dataclass(frozen=True)
class Tokens:
    """The tokens of one side, in the order of their ids.

    Attributes:
        names: The tokens.
        codes: Tokens that only a prefix contains, such as names of languages.
        special: Tokens that no text is split into, including the codes.
        times: Tokens that name times. Outputs contain them, and texts may spell
            them.
        splitter: Function from `SpecialTokens` and names to a `Splitter`.
    """

    names: list[str]
    codes: list[str]
    special: list[str]
    splitter: Callable[[SpecialTokens, list[str]], Splitter]
    times: Sequence[str] = ()

    @classmethod
    def of_pieces(cls, content: bytes, names, codes=(), special=()) -> "Tokens":
        """Returns tokens of a model of SentencePiece.

        Args:
            content: The model.
            names: All tokens in the order of their ids.
            codes: Tokens that name languages.
            special: Tokens that no text is split into, besides the codes and
                the usual ones.
        """
        if UNKNOWN not in names:
            raise ValueError(
                f"A vocabulary must have the token {UNKNOWN!r}. Received: "
                f"{len(names)} tokens without it."
            )
        return cls(
            names,
            list(codes),
            _special(names, [*codes, *special]),
            lambda special, names: SentencePiece(
                content, special=special, vocabulary=names
            ),
        )

    @classmethod
    def of_bytes(cls, names, merges, special=()) -> "Tokens":
        """Returns tokens of byte pairs.

        Args:
            names: All tokens in the order of their ids.
            merges: As for `BytePair`.
            special: As in `of_pieces`.
        """
        return cls(
            names,
            [],
            _special(names, special),
            lambda special, names: BytePair(
                {x: i for i, x in enumerate(names)}, merges, special
            ),
        )

    @functools.cached_property
    def ids(self) -> dict[str, int]:
        """The ids of the tokens."""
        return {x: i for i, x in enumerate(self.names)}

    def of_size(self, size: int) -> "Tokens":
        """Returns these tokens, filled up to a number of ids with unused ones.

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

    def with_times(self, timestamps) -> "Tokens":
        """Returns these tokens with those of `Timestamps`."""
        names = timestamps.named(self.names)
        times = names[timestamps.first :]
        codes = [x for x in self.codes if x not in {*times}]
        return dataclasses.replace(self, names=names, codes=codes, times=times)


def _special(names, more) -> list[str]:
    """Returns the tokens that no text is split into, except padding."""
    return list(dict.fromkeys([*more, *(x for x in _USUAL if x in names)]))


def in_order(file: str, ids: dict) -> list[str]:
    """Returns tokens in the order of their ids.

    Args:
        file: Name of the file that has them, for the error message.
        ids: The ids by token.

    Raises:
        ValueError: If the ids are not those from 0 on, each once.
    """
    whole = all(isinstance(x, int) for x in ids.values())
    names = sorted(ids, key=ids.__getitem__) if whole else []
    if [ids[x] for x in names] != [*range(len(ids))]:
        raise ValueError(
            f"`{file}` must give its tokens the ids from 0 on, each once. "
            f"Received: {len(ids)} tokens with other ids."
        )
    return names
