"""`Search`: the base class, with the declared options and the loop."""

import copy
import dataclasses
import inspect
import typing
from typing import Any

import tensorflow as tf

from keras_attn import arguments
from keras_attn.decoding import declared
from keras_attn.decoding.hypotheses import Hypotheses
from keras_attn.decoding.independent import IndependentHypotheses
from keras_attn.decoding.loop import Loop
from keras_attn.decoding.options import Choice
from keras_attn.decoding.options import Integer
from keras_attn.decoding.options import Option
from keras_attn.decoding.options import PerSource
from keras_attn.decoding.options import Real
from keras_attn.decoding.requested import RequestOptions
from keras_attn.decoding.rules import RuleList
from keras_attn.decoding.run import Run
from keras_attn.decoding.search_input import SearchInput


# For type checkers. They take no fields from the decorated class itself and
# put the fields of a base before those of its subclasses. With `kw_only` the
# common options are passed by name, so their order does not matter.
@typing.dataclass_transform(
    frozen_default=True,
    field_specifiers=(Option, Choice, Integer, Real, PerSource, RuleList),
)
class _Record:
    def __init_subclass__(cls, kw_only=False, **kwargs):
        super().__init_subclass__(**kwargs)


class Search(_Record, kw_only=True):
    """Base class of all searches: a record of options and a loop over steps.

    Subclass it to write a custom search. The subclass declares its options as
    class attributes, each with a default and a range. From these, `Search`
    derives the constructor's arguments and their checks, equality and `repr`,
    the options that a request may set, and saving. A search is a frozen
    dataclass, without a decorator. The constructor takes the subclass's own
    options first, then those of every search, listed here under `Args`. The
    subclass documents its own options in its docstring.

    A subclass writes `choose`, which picks the next tokens from their
    log-probabilities. The scores of the hypotheses are computed from the
    tokens, as sums of the model's log-probabilities. A search may keep a state
    between steps: a structure of tensors whose first axes are the `(batch, N)`
    of the hypotheses. `start` returns the first state, `update` the next one.
    `Search` does the rest: the loop, limits of length, prefixes, rules and
    results.

    If a request sets an option, `self` holds the request's values in these
    three methods: `self.target` below is then a tensor of shape `(batch, 1)`.
    To combine it with tensors `(batch, N, vocabulary)`, write
    `step.for_all_tokens(self.target)`. The methods are traced once, for all
    steps.

    A `Translator` first tries a custom search on random logits. A row must get
    the same hypotheses alone as in a batch, also if each row of a request sets
    its own options.

    A custom search is decoded, streamed, exported and saved like the built-in
    ones. To load one, register its class with
    `keras.saving.register_keras_serializable`, or pass it:
    `Translator.load(directory, custom_objects={"Mirostat": Mirostat})`.

    If hypotheses replace each other, as beams do, the search needs its own
    `keras_attn.decoding.Run`, returned by `run`. `BeamSearch` is an example.

    This interface is provisional: it may change until more searches have
    used it.

    Args:
        max_length: Longest output in tokens, the end token counted. A
            hypothesis is cut there and flagged as not finished. Defaults to
            `100`.
        min_length: Fewest tokens, the end token counted. Defaults to `1`.
        max_per_source: Pair `(a, b)`: at most `a * source + b` tokens,
            rounded down, if that is less than `max_length`. Defaults to
            `None`.
        min_per_source: Pair `(a, b)`: at least `a * source + b` tokens,
            rounded down, if that is more than `min_length`. Defaults to
            `None`.
        no_repeat_ngram: Length of the n-grams that may not occur twice in a
            hypothesis. 0 allows all. Defaults to `0`.
        repetition_penalty: Factor of at least 1 that lowers the probability
            of tokens that the hypothesis already has. Defaults to `1.0`, no
            penalty.
        rules: List of `keras_attn.decoding.Rule`s on the next token. They
            apply after the built-in rules. Defaults to `()`, none.

    Attributes:
        draws: Whether the search draws at random. It then needs a seed for
            each row, and `step.numbers` holds the random numbers.
        num_hypotheses: Number of hypotheses per source. Declare it as an
            option if it may vary.
        streams: Whether a chosen token is final and can be streamed. By
            default this is true for one hypothesis, unless `run` is
            overridden.
        rows_are_independent: Whether the class guarantees that no row of a
            batch depends on another. A `Translator` then does not try the
            search. A subclass does not inherit this guarantee.
        ids_are_interchangeable: Whether the class guarantees that no token id
            has a special meaning to the search. A shortlist, which renumbers
            tokens, needs this. A subclass does not inherit this guarantee.
        takes_steering: Whether the search's run supports rules that `steer`,
            as `BeamSearch` does.

    Example:
        Mirostat ([Basu et al., 2021](https://arxiv.org/abs/2007.14966)) keeps
        the surprise of the drawn tokens near a target. It never draws tokens
        above a bound, which it adapts at each step.

        >>> import math
        >>> import tensorflow as tf
        >>> from keras_attn.decoding import Real
        >>> class Mirostat(keras_attn.Search):
        ...     '''Draws tokens whose surprise stays near a target.
        ...
        ...     Args:
        ...         target: Surprise in bits per token. Defaults to `3.0`.
        ...         rate: Learning rate of the bound. Defaults to `0.1`.
        ...     '''
        ...
        ...     target: float = Real(default=3.0, low=0, request=True)
        ...     rate: float = Real(default=0.1, low=0)
        ...     draws = True
        ...
        ...     def start(self, search_input):
        ...         ones = tf.ones([search_input.batch, 1])
        ...         return 2 * self.target * ones
        ...
        ...     def choose(self, step, bound):
        ...         bits = -step.log_probabilities / math.log(2)
        ...         least = tf.reduce_min(bits, axis=-1, keepdims=True)
        ...         stays = bits <= tf.maximum(bound[..., None], least)
        ...         return step.pick(tf.where(stays, 2.0**-bits, 0.0))
        ...
        ...     def update(self, step, tokens, scores, bound):
        ...         bits = (step.scores - scores) / math.log(2)
        ...         return bound - self.rate * (bits - self.target)
        >>> Mirostat(target=2.5, max_length=20)
        Mirostat(target=2.5, rate=0.1, max_length=20, ...)
        >>> sorted(Mirostat().request_options)
        ['max_length', 'min_length', 'target']
    """

    max_length: int = Integer(
        default=100,
        low=1,
        request=True,
        at_most_own=True,
        meaning="counts tokens, the end token too,",
    )
    min_length: int = Integer(default=1, low=1, high="max_length", request=True)
    max_per_source: tuple | None = PerSource(instead="max_length", default=None)
    min_per_source: tuple | None = PerSource(instead="min_length", default=None)
    no_repeat_ngram: int = Integer(
        default=0,
        low=0,
        meaning="is the length of the n-grams that may not occur twice",
        advice="0 allows all of them.",
    )
    repetition_penalty: float = Real(
        default=1.0,
        low=1,
        meaning="divides the positive logits of repeated tokens",
        advice="1.0 changes nothing, 1.2 is the paper's value.",
    )
    rules: tuple = RuleList(default=(), last=True)

    num_hypotheses = 1
    draws = False
    rows_are_independent = ids_are_interchangeable = False
    takes_steering = False
    asked = arguments.Former("with_request")

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        own = _options_in(cls)
        declared.require(cls, own, _COMMON, _RESERVED)
        annotations = inspect.get_annotations(cls)
        if not dataclasses.is_dataclass(cls):  # its base is `Search` itself
            common = {x: y for x, y in _COMMON.items() if x not in own}
            # Own options, then the common ones, then those with `last`.
            options = [*own.items(), *common.items()]
            own = dict(sorted(options, key=lambda item: item[1].last))
            annotations = {**inspect.get_annotations(Search), **annotations}
        cls.__annotations__ = {
            **{name: annotations.get(name, Any) for name in own},
            **{x: y for x, y in annotations.items() if x not in own},
        }
        for name, option in own.items():
            field = dataclasses.field(
                default=option.default,
                metadata={"option": option},
                kw_only=option.by_name,
            )
            setattr(cls, name, field)
        dataclasses.dataclass(frozen=True)(cls)

    def __new__(cls, *args, **kwargs):
        arguments.refuse_old_names(kwargs, **cls._former_names())
        if cls is Search:
            raise TypeError(
                "`Search` is an abstract base class. Received: a call of "
                "`Search` itself. Make one of its subclasses, for example "
                "`BeamSearch(5)`, or write a subclass."
            )
        return super().__new__(cls)

    def __post_init__(self):
        for name, option in self._options().items():
            object.__setattr__(self, name, option.read(name, self))
        self.check()

    def bound(self, text) -> "Search":
        """Returns the search with its rules bound to the targets' `Text`."""
        rules = tuple(x.bound(text, self.max_length) for x in self.rules)
        found = copy.copy(self)
        object.__setattr__(found, "rules", rules)
        return found

    @classmethod
    def _former_names(cls):
        """Returns a dictionary from former to current option names."""
        options = cls._options() if dataclasses.is_dataclass(cls) else {}
        found = {x.former_name: name for name, x in options.items()}
        return {old: new for old, new in found.items() if old}

    @classmethod
    def _options(cls):
        """Returns the search's `Option`s by name."""
        fields = dataclasses.fields(cls)
        return {
            x.name: x.metadata["option"]
            for x in fields
            if "option" in x.metadata
        }

    @classmethod
    def vouches_for(cls, name: str) -> bool:
        """Returns whether the class itself, not a base, sets `name` to true."""
        return bool(vars(cls).get(name))

    def check(self):
        """Raises `ValueError` if options do not fit together."""

    def start(self, search_input: SearchInput) -> Any:
        """Returns the search's own state before the first token, or None.

        Args:
            search_input: The model and the request; its `batch` is the
                number of rows.
        """
        return None

    def choose(self, step, state) -> Any:
        """Chooses the next token of every hypothesis.

        Args:
            step: A `keras_attn.decoding.Step`: the model's output and the
                scores of the hypotheses so far.
            state: The search's own state.

        Returns:
            Tokens, integers of shape `(batch, N)`. A hypothesis that takes a
            forbidden token is dropped.
        """
        raise NotImplementedError(
            "A search needs a method `choose` that picks the next tokens. "
            f"Received: {type(self).__name__}, which has none. Write one, or "
            "subclass a search that has one."
        )

    def update(self, step, tokens, scores, state) -> Any:
        """Returns the search's own state after the chosen tokens.

        Args:
            step: The `Step`, as for `choose`.
            tokens: The new tokens `(batch, N)`: those that `choose`
                returned, or those of a prefix.
            scores: The scores of the extended hypotheses, `(batch, N)`.
            state: The state before these tokens.
        """
        return state

    @property
    def streams(self) -> bool:
        """Whether a chosen token is final and can be streamed.

        If hypotheses replace each other, no token is final before the end.
        """
        own = type(self).run is not Search.run
        return self.num_hypotheses == 1 and not own

    @property
    def request_options(self) -> RequestOptions:
        """The options that a request may set per row, mapped to dtypes."""
        return RequestOptions(self, self._options())

    def check_options(self, options):
        """Returns options as tensors that check their range when they run."""
        return self.request_options.checked(options)

    def option(self, name: str, search_input: SearchInput) -> Any:
        """Returns an option's value, the request's if it sets one.

        Args:
            name: Name of the option.
            search_input: The `SearchInput`, for the options of the request.

        Returns:
            A tensor `(batch,)` if the request sets the option, otherwise the
            search's own value.
        """
        options = search_input.options
        if options and name in options:
            return tf.cast(options[name], self.request_options[name])
        return getattr(self, name)

    def with_request(self, search_input: SearchInput) -> "Search":
        """Returns the search with the request's options as `(batch, 1)`."""
        if not search_input.options:
            return self
        asked = copy.copy(self)
        for name in search_input.options:
            value = tf.reshape(self.option(name, search_input), [-1, 1])
            object.__setattr__(asked, name, value)
        return asked

    def get_config(self) -> dict:
        """Returns the options by name, for `from_config()`."""
        options = self._options()
        config = {}
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            option = options.get(field.name)
            config[field.name] = option.config(value) if option else value
        return config

    @classmethod
    def from_config(cls, config: dict) -> "Search":
        """Returns the search that `get_config()` describes."""
        former = cls._former_names()
        return cls(**arguments.with_new_names(cls, config, **former))

    def run(self, search_input: SearchInput) -> Run:
        """Returns a run of this search.

        The default is `IndependentHypotheses`. A search whose hypotheses
        replace each other overrides this method to return its own `Run`.
        """
        return IndependentHypotheses(self, search_input)

    def begin(self, search_input: SearchInput) -> Run:
        """Checks an input's options and seed, and returns the run."""
        self.request_options.require_known(search_input.options or {})
        if self.draws and search_input.seed is None:
            raise ValueError(
                f"`{type(self).__name__}` needs a seed for each row. "
                "Received: seed=None. Pass `SearchInput(..., seed=seeds)`, "
                "integers of shape (batch,): the same seed draws the same "
                "hypotheses again."
            )
        run = self.run(search_input)
        if not isinstance(run, Run):
            raise TypeError(
                f"`{type(self).__name__}.run` must return a "
                f"`keras_attn.decoding.Run`. Received: {run!r:.80}. Return an "
                "instance of a subclass of `Run`."
            )
        if run.rules.steer and not self.takes_steering:
            raise ValueError(
                "Terms, and other rules that `steer`, need a search with "
                "`takes_steering`, which divides its beams by the number of "
                f"missing tokens, such as `BeamSearch`. Received: {self!r:.200}"
            )
        return run

    def __call__(self, search_input: SearchInput) -> Hypotheses:
        """Decodes a `SearchInput`, inside a `tf.function` or eagerly."""
        return Loop(self, search_input)()


def _options_in(cls):
    return {x: y for x, y in vars(cls).items() if isinstance(y, Option)}


_COMMON = _options_in(Search)
_RESERVED = {x for x in dir(Search) if x not in (*_COMMON, "num_hypotheses")}
