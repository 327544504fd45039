"""Options of a search, each stated once: default, range, who may change it.

A search lists them in its class. From that come the checks of its arguments,
the options that a request may hold, the docs and the saving.
"""

import math
import numbers
from typing import Any
from typing import NamedTuple

import tensorflow as tf

LARGEST = tf.float32.max  # finite: a range up to it refuses infinity and NaN


class Range(NamedTuple):
    """Which numbers an option may be."""

    low: float = -LARGEST
    high: float = LARGEST
    above: bool = False  # whether `low` itself is out of range

    def __str__(self):
        if self.high == LARGEST:
            least = "above" if self.above else "at least"
            return f"{least} {self.low} and finite"
        if self.low == -LARGEST:
            return f"at most {self.high}"
        if self.above:
            return f"above {self.low} and at most {self.high}"
        return f"between {self.low} and {self.high}"

    def holds(self, value):
        """Whether each number is in the range, which NaN never is."""
        low = value > self.low if self.above else value >= self.low
        return low & (tf.cast(value, tf.float32) <= self.high)


# A class body gives options to fields of other types, as with
# `dataclasses.field`: to a type checker they may stand for anything.
_Anything: Any = object


class Option(_Anything):
    """An option that may be anything, and never comes with a request.

    Args:
        default: What it is where nobody says.
        doc: What it means, for the docs of the search.
        last: Whether it comes after the options that all searches have, as
            those do that were added later.
    """

    dtype = None  # of the options that may come with a request
    request = at_most_own = False

    def __init__(self, default: Any, *, doc: str = "", last: bool = False):
        self.default, self.doc, self.last = default, doc, last

    def read(self, name: str, search) -> Any:
        """Returns the value that a search was given, or refuses it."""
        return getattr(search, name)

    def may_come_with_request(self, search) -> bool:
        """Whether a request to this search may hold another value."""
        return False


class Choice(Option):
    """One of several values.

    Args:
        *values: The values.
        default: Its default, one of them.
        doc, last: As of every `Option`.
    """

    def __init__(
        self, *values: Any, default: Any, doc: str = "", last: bool = False
    ):
        super().__init__(default, doc=doc, last=last)
        self._values = values

    def read(self, name, search):
        value = getattr(search, name)
        # By type too: to Python, 1 equals True.
        if not any(type(value) is type(x) and value == x for x in self._values):
            *others, last = (
                f'"{x}"' if isinstance(x, str) else repr(x)
                for x in self._values
            )
            raise ValueError(
                f"`{name}` must be {', '.join(others)} or {last}. Received: "
                f"{name}={value!r}"
            )
        return value


class Real(Option):
    """A finite number within a range.

    Args:
        default: Its default.
        low: The least that it may be.
        high: The most that it may be: a number, or the name of an option
            before it, whose value that is.
        above: Whether it must be more than `low`.
        request: Whether it may come with a request, each row with its own;
            or a function of the search that says so.
        at_most_own: Whether a request may ask for no more than the search's
            own, because buffers are as large as that.
        meaning: What follows its name in an error, before "and must be".
        advice: The end of an error: what would do.
        doc, last: As of every `Option`.
    """

    dtype = tf.float32
    kind = "a finite number"

    def __init__(
        self,
        default: float,
        *,
        low: float = -LARGEST,
        high: float | str = LARGEST,
        above: bool = False,
        request: Any = False,
        at_most_own: bool = False,
        meaning: str = "",
        advice: str = "",
        doc: str = "",
        last: bool = False,
    ):
        super().__init__(default, doc=doc, last=last)
        if request and low < 0:
            raise ValueError(
                "An option that may come with a request needs `low` of at "
                "least 0, because -1 stands for the search's own there. "
                f"Received: low={low!r}. Shift it, or leave `request` out."
            )
        self._low, self._high, self._above = low, high, above
        self.request, self.at_most_own = request, at_most_own
        self._meaning = f"{meaning} and " if meaning else ""
        self._advice = f". {advice}" if advice else ""

    def read(self, name, search):
        value = getattr(search, name)
        if not self._fits(value):
            raise ValueError(
                f"`{name}` must be {self.kind}. Received: {name}={value!r}"
            )
        high = self._most(search)
        low = value > self._low if self._above else value >= self._low
        if not (low and value <= high):
            beside = ""
            if isinstance(self._high, str):
                beside = f", {self._high}={high!r}"
            raise ValueError(
                f"`{name}` {self._meaning}must be {self._range_in_words()}. "
                f"Received: {name}={value!r}{beside}{self._advice}"
            )
        return value

    def may_come_with_request(self, search):
        if callable(self.request):
            return self.request(search)
        return self.request

    def range_of_request(self, name: str, search) -> Range:
        """Returns the `Range` in a request to this search."""
        high = self._most(search)
        if self.at_most_own:
            high = getattr(search, name)
        return Range(self._low, high, self._above)

    def _fits(self, value):
        return is_number(value)

    def _most(self, search):
        if isinstance(self._high, str):
            return getattr(search, self._high)
        return self._high

    def _range_in_words(self):
        high = self._high
        if isinstance(high, str):
            high = f"`{high}`"
        words = str(Range(self._low, high, self._above))
        return words.removesuffix(" and finite")  # which was looked at


class Integer(Real):
    """An integer within a range.

    Args:
        default: Its default.
        low, high, above, request, at_most_own, meaning, advice: As of `Real`.
        doc, last: As of every `Option`.
    """

    dtype = tf.int32
    kind = "an integer"

    def _fits(self, value):
        return isinstance(value, int) and not isinstance(value, bool)


class PerSource(Option):
    """A pair `(a, b)`, for `a * source length + b` tokens; or None.

    Args:
        instead: Name of the option for a limit that does not depend on the
            source.
        default: Its default, a pair or `None`.
        doc, last: As of every `Option`.
    """

    def __init__(
        self,
        instead: str,
        *,
        default: tuple | None = None,
        doc: str = "",
        last: bool = False,
    ):
        super().__init__(default, doc=doc, last=last)
        self._instead = instead

    def read(self, name, search):
        pair = getattr(search, name)
        if pair is None:
            return None
        if isinstance(pair, list):  # as JSON has it
            pair = tuple(pair)
        if not (
            isinstance(pair, tuple)
            and len(pair) == 2
            and all(map(is_number, pair))
            and pair[0] > 0
        ):
            raise ValueError(
                f"`{name}` must be a pair (a, b) of numbers with a > 0, for a "
                "limit of a * source length + b tokens. Received: "
                f"{name}={pair!r}. A limit that does not depend on the source "
                f"is `{self._instead}`."
            )
        return pair


def is_number(value) -> bool:
    """Whether this is a finite number."""
    return (
        isinstance(value, numbers.Real)
        and not isinstance(value, bool)
        and math.isfinite(value)
    )


def is_fixed(value) -> bool:
    """Whether an option or limit is one number, known before the graph."""
    return not tf.is_tensor(value)
