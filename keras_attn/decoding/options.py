"""Options of a search: default, range, and whether a request may set them.

A search declares its options as class attributes. Its constructor, checks,
`request_options` and saving are derived from these.
"""

import math
import numbers
from typing import Any
from typing import NamedTuple

import tensorflow as tf

LARGEST = tf.float32.max  # finite: a range up to it refuses infinity and NaN


class Range(NamedTuple):
    """The interval of numbers that an option accepts."""

    low: float = -LARGEST
    high: float = LARGEST
    above: bool = False  # whether `low` itself is excluded

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
        """Returns whether each number is in the range; NaN never is."""
        low = value > self.low if self.above else value >= self.low
        return low & (tf.cast(value, tf.float32) <= self.high)


# A class body assigns options to fields of other types, as with
# `dataclasses.field`, so to a type checker they have any type.
_Anything: Any = object


class Option(_Anything):
    """An option with any value, which no request can set.

    Args:
        default: The default value.
        last: Whether its argument follows the arguments that all searches
            share. Options added in later versions are `last`, so that existing
            positional calls keep their meaning.

    Attributes:
        former_name: The option's name in earlier versions. Exports keep it,
            since a signature cannot take two names for one input.
    """

    by_name = False  # whether its argument is passed by name alone
    dtype = None  # set for options that a request may set
    request = at_most_own = False
    limited_by: str | None = None  # name of the option that is its limit
    former_name: str | None = None

    def __init__(self, default: Any, *, last: bool = False):
        self.default, self.last = default, last

    def read(self, name: str, search) -> Any:
        """Returns the option's value in a search, after checking it."""
        return getattr(search, name)

    def config(self, value: Any) -> Any:
        """Returns the option's value for `get_config()`."""
        return value

    def may_come_with_request(self, search) -> bool:
        """Returns whether a request to this search may set the option."""
        return False


class Choice(Option):
    """An option with a fixed list of values.

    Args:
        *values: The allowed values.
        default: The default value, one of `values`.
        last: As in `Option`.
    """

    def __init__(self, *values: Any, default: Any, last: bool = False):
        super().__init__(default, last=last)
        self._values = values

    def read(self, name, search):
        value = getattr(search, name)
        # Types are compared too, since 1 == True in Python.
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
        default: The default value.
        low: The smallest value allowed.
        high: The largest value allowed: a number, or the name of an option
            declared earlier, whose value is then the limit.
        above: Whether the value must be greater than `low`, not equal.
        request: Whether a request may set the option, with one value per
            row; or a function from the search to this boolean.
        at_most_own: Whether a request's value may not exceed the search's
            own, because the search allocates buffers of that size.
        meaning: Words for error messages, between the option's name and
            "and must be", such as `"divides the logits"`.
        advice: Last sentence of the error messages, which says what to do.
        last: As in `Option`.
        former_name: The option's name in earlier versions.
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
        last: bool = False,
        former_name: str | None = None,
    ):
        super().__init__(default, last=last)
        self.former_name = former_name
        if request and low < 0:
            raise ValueError(
                "An option with `request` needs `low` of at least 0: in a "
                "request, -1 stands for the search's own value. Received: "
                f"low={low!r}. Shift the range, or leave `request` out."
            )
        if not isinstance(high, str) and not low <= high:
            raise ValueError(
                "An option needs `low` of at most `high`. Received: "
                f"low={low!r}, high={high!r}. Swap the two."
            )
        self._low, self._high, self._above = low, high, above
        if isinstance(high, str):
            self.limited_by = high
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
        """Returns the `Range` of the option in a request to this search."""
        high = self._most(search)
        if self.at_most_own:
            high = getattr(search, name)
        return Range(self._low, high, self._above)

    def is_at_least(self, number: float) -> bool:
        """Returns whether the range begins at this number or above."""
        return self._low >= number

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
        return words.removesuffix(" and finite")  # `_fits` has checked it


class Integer(Real):
    """An integer within a range.

    Args:
        default, low, high, above, request, at_most_own: As in `Real`.
        meaning, advice, last, former_name: As in `Real`.
    """

    dtype = tf.int32
    kind = "an integer"

    def _fits(self, value):
        return isinstance(value, int) and not isinstance(value, bool)


class PerSource(Option):
    """A pair `(a, b)`, for a limit of `a * source length + b` tokens; or None.

    Args:
        instead: Name of the option with a limit that does not depend on the
            source, for error messages.
        default: The default value, a pair or `None`.
        last: As in `Option`.
    """

    def __init__(
        self,
        instead: str,
        *,
        default: tuple | None = None,
        last: bool = False,
    ):
        super().__init__(default, last=last)
        self._instead = instead

    def read(self, name, search):
        pair = getattr(search, name)
        if pair is None:
            return None
        if isinstance(pair, list):  # read from JSON
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
                f"{name}={pair!r}. For a limit that does not depend on the "
                f"source use `{self._instead}`."
            )
        return pair


def is_number(value) -> bool:
    """Returns whether a value is a finite number."""
    return (
        isinstance(value, numbers.Real)
        and not isinstance(value, bool)
        and math.isfinite(value)
    )


def is_fixed(value) -> bool:
    """Returns whether an option is a Python number, not a tensor by row."""
    return not tf.is_tensor(value)
