"""The special tokens: their strings and their ids.

Losses and checks use them on every backend, so this module imports no
framework.
"""

import dataclasses
from collections.abc import Iterable
from collections.abc import Mapping
from numbers import Integral

from keras_attn import arguments

PAD, START, END, UNKNOWN = range(4)
SPECIAL_TOKENS = ("<pad>", "<s>", "</s>", "<unk>")
_NEW_NAMES = {"by_prefix": "prompt_tokens"}


@dataclasses.dataclass(frozen=True)
class SpecialTokens:
    """The ids of a vocabulary's special tokens.

    The defaults are the ids of a `Text` without a pretrained vocabulary. If a
    pretrained vocabulary has other ids, pass them to its `Splitter`:
    `SentencePiece(file, special=SpecialTokens(...))`.

    Args:
        pad: Id of padding.
        start: Ids with which a decoder's input begins, in this order. They
            may be padding or the end token, as in T5 and BART.
        end: Id with which a text ends. -1 if texts end without a token, which
            is possible for sources only.
        unknown: Id of unknown tokens, or -1 if there is none.
        source_start: Ids with which an encoder's input begins. Most models
            have none.
        source_end: Ids with which an encoder's input ends. Defaults to
            `None`: the end token.
        prompt_tokens: Ids that stand for no text and occur only in prefixes,
            such as those of Whisper for a language and a task. A text is
            split around their tokens.
        spelled_tokens: Ids of tokens that a text may spell: `"<mask>"` in a
            text is then this token instead of being split.

    Raises:
        ValueError: If an id is negative, other than an `end` or `unknown` of
            -1, or not an integer; if `start` is empty; if two of padding, end
            and unknown are the same; if unknown also begins or ends texts; if
            `prompt_tokens` has padding, start or end; or if `spelled_tokens`
            has padding.

    Example:
        >>> t5 = keras_attn.SpecialTokens(pad=0, start=(0,), end=1, unknown=2)
        >>> bart = keras_attn.SpecialTokens(
        ...     pad=1, start=(2, 0), end=2, unknown=3, source_start=(0,))
        >>> bart.source_start, bart.ends_source
        ((0,), (2,))
    """

    pad: int = PAD
    start: tuple[int, ...] = (START,)
    end: int = END
    unknown: int = UNKNOWN
    source_start: tuple[int, ...] = ()
    source_end: tuple[int, ...] | None = None
    prompt_tokens: tuple[int, ...] = ()
    spelled_tokens: tuple[int, ...] = ()

    def __new__(cls, *args, **kwargs):
        arguments.refuse_old_names(kwargs, **_NEW_NAMES)
        return super().__new__(cls)

    def __post_init__(self):
        several = (
            "start",
            "source_start",
            "source_end",
            "prompt_tokens",
            "spelled_tokens",
        )
        for name, given in vars(self).copy().items():
            if given is None:
                continue
            found = _as_tuple(given) if name in several else _as_integer(given)
            object.__setattr__(self, name, found)
        apart = [self.pad, self.end, self.unknown]
        ids = [self.pad, *self.framing, *self.prompt_tokens]
        given = [*ids, *self.spelled_tokens]
        whole = all(
            isinstance(x, int) and not isinstance(x, bool)
            for x in (*apart, *given)
        )
        if (
            not whole
            or min(given) < 0
            or min(self.end, self.unknown) < -1
            or not self.start
        ):
            raise ValueError(
                "`pad`, `start`, `end`, `source_start`, `source_end`, "
                "`prompt_tokens` and `spelled_tokens` must be ids, integers "
                "of at least 0; `unknown` and `end` may also be -1, and "
                f"`start` needs at least one id. Received: {self}"
            )
        apart = [x for x in apart if x >= 0]
        if len(set(apart)) < len(apart) or self.unknown in ids:
            raise ValueError(
                "Padding, end and unknown must be different tokens, and the "
                "unknown token must not begin or end texts. Received: "
                f"{self}"
            )
        if {*self.prompt_tokens} & {*self.non_text_ids}:
            raise ValueError(
                "`prompt_tokens` occur only in prefixes, so none of them may "
                "be padding, start, end, or a token put around sources. "
                f"Received: {self}"
            )
        if self.pad in self.spelled_tokens:
            raise ValueError(
                "`spelled_tokens` must not contain padding, which is never "
                f"part of a text. Received: {self}"
            )

    @classmethod
    def of(cls, given) -> "SpecialTokens | None":
        """Returns `SpecialTokens` from an argument or a config's dictionary."""
        if given is None or isinstance(given, cls):
            return given
        if isinstance(given, Mapping):
            return cls(**arguments.with_new_names(cls, given, **_NEW_NAMES))
        raise ValueError(
            "`special` must be a `SpecialTokens`, or None. Received: "
            f"special={given!r:.80}. Pass `keras_attn.SpecialTokens(...)`."
        )

    @property
    def ends_source(self) -> tuple[int, ...]:
        """The ids with which an encoder's input ends."""
        if self.source_end is None:
            return (self.end,) if self.end >= 0 else ()
        return self.source_end

    @property
    def framing(self) -> tuple[int, ...]:
        """The ids with which targets begin, and sources begin and end."""
        return (*self.start, *self.source_start, *self.ends_source)

    silent = arguments.Former("non_text_ids")
    by_prefix = arguments.Former("prompt_tokens")

    @property
    def non_text_ids(self) -> tuple[int, ...]:
        """The ids of padding, start, end and tokens around sources, sorted.

        They never result from splitting a text, except for `spelled_tokens`.
        """
        ids = {self.pad, self.end, *self.framing}
        return tuple(sorted(ids - {-1}))

    @property
    def without_text(self) -> tuple[int, ...]:
        """The ids that stand for no text, in ascending order."""
        return tuple(sorted({*self.non_text_ids, *self.prompt_tokens}))

    @property
    def never_written(self) -> tuple[int, ...]:
        """The ids that a search must never generate, in ascending order."""
        return tuple(x for x in self.without_text if x != self.end)

    def of_text(self, size: int) -> list[int]:
        """Returns the ids below `size` that represent text, unknown first."""
        apart = {*self.without_text, self.unknown}
        first = [] if self.unknown < 0 else [self.unknown]
        return [*first, *(x for x in range(size) if x not in apart)]


def _as_tuple(ids):
    several = isinstance(ids, Iterable) and not isinstance(ids, str)
    return tuple(map(_as_integer, ids if several else (ids,)))


def _as_integer(given):
    """Returns a NumPy integer as an `int`, anything else as it is."""
    is_bool = isinstance(given, bool)
    return int(given) if isinstance(given, Integral) and not is_bool else given
