"""`Search`: options stated once, and the loop over steps."""

import copy
import dataclasses
import inspect
import textwrap
import typing
from typing import Any

import tensorflow as tf

from keras_attn import structures
from keras_attn.search.chains import Chains
from keras_attn.search.options import Choice
from keras_attn.search.options import Integer
from keras_attn.search.options import Option
from keras_attn.search.options import PerSource
from keras_attn.search.options import Real
from keras_attn.search.requested import RequestOptions
from keras_attn.search.task import Hypotheses
from keras_attn.search.task import Task

# Inputs of the signature `options` that are no options.
_TAKEN = ("text", "prefix", "seed")


# For type checkers, which take no fields from the decorated class itself and
# put a base's before its subclasses': `kw_only` has the common options come
# by name, wherever they stand.
@typing.dataclass_transform(
    frozen_default=True,
    field_specifiers=(Option, Choice, Integer, Real, PerSource),
)
class _Record:
    def __init_subclass__(cls, kw_only=False, **kwargs):
        super().__init_subclass__(**kwargs)


class Search(_Record, kw_only=True):
    """A small record of options, and what one step does with them.

    The base of all searches, and the door for one of your own. A search
    names its options in its class, each with default and range. From that
    come its arguments and their checks, equality and `repr`, the options
    that may come with a request, the `Args` of its docs, and its saving. It
    is a frozen dataclass, without a decorator. Options of its own come first,
    then those of every search, such as `max_length`.

    Of a step it writes `choose`: which token comes next, by the
    log-probabilities. What it remembers from step to step is a state of its
    own, a structure of tensors that begin with the axes `(batch, N)` of the
    hypotheses: `start` makes it and `update` renews it. The rest is done for
    it: the loop, limits of length, prefixes, rules, and what was found.

    In these three methods, an option that came with a request stands in the
    place of the search's own: `self.target` below is then a tensor of shape
    `(batch, 1)`. They are traced once, for all steps.

    A search is decoded, streamed, exported and saved like ours.
    `Translator.load(directory, custom_objects={"Mirostat": Mirostat})` finds
    its class again; without `custom_objects` a class is found that was
    registered by `keras.saving.register_keras_serializable`.

    This door is provisional: it may change until more searches have used it.
    It has no place yet for hypotheses that take each other's place, as beams
    do; those have a run of their own, see `BeamSearch`.

    Attributes:
        draws: Whether it draws at random. It then takes seeds, and
            `step.numbers` are there.
        num_hypotheses: Number of hypotheses a source. Make it an option if
            it may vary.

    Example:

    Mirostat ([Basu et al., 2021](https://arxiv.org/abs/2007.14966)) keeps
    the surprise of what it draws near a target, by a bound that moves. Here
    what is more surprising than the bound is left out.

    >>> import math
    >>> import tensorflow as tf
    >>> from keras_attn.search import Real
    >>> class Mirostat(keras_attn.Search):
    ...     '''Draws tokens whose surprise stays near a target.'''
    ...
    ...     target: float = Real(
    ...         default=3.0, low=0, request=True, doc="Bits a token.")
    ...     rate: float = Real(default=0.1, low=0, doc="Of learning.")
    ...     draws = True
    ...
    ...     def start(self, task):
    ...         return 2 * self.target * tf.ones([task.batch, 1])
    ...
    ...     def choose(self, step, bound):
    ...         bits = -step.log_probabilities / math.log(2)
    ...         least = tf.reduce_min(bits, axis=-1, keepdims=True)
    ...         stays = bits <= tf.maximum(bound[..., None], least)
    ...         tokens = step.pick(tf.where(stays, 2.0**-bits, 0.0))
    ...         return tokens, step.scores_with(tokens)
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
        doc=(
            "Longest output in tokens, the end token counted. A hypothesis is "
            "cut there and flagged as not finished."
        ),
    )
    min_length: int = Integer(
        default=1,
        low=1,
        high="max_length",
        request=True,
        doc="Fewest tokens, the end token counted.",
    )
    max_per_source: tuple | None = PerSource(
        instead="max_length",
        default=None,
        doc=(
            "`(a, b)`: at most `a * source + b` tokens, rounded down, where "
            "that is less than `max_length`."
        ),
    )
    min_per_source: tuple | None = PerSource(
        instead="min_length",
        default=None,
        doc=(
            "`(a, b)`: at least `a * source + b` tokens, rounded down, where "
            "that is more than `min_length`."
        ),
    )
    no_repeat_ngram: int = Integer(
        default=0,
        low=0,
        meaning="is the length of the n-grams that may not come twice",
        advice="0 lets all of them come again.",
        doc="No n-gram of so many tokens comes twice. 0 lets all.",
    )
    repetition_penalty: float = Real(
        default=1.0,
        low=1,
        meaning="divides positive logits of tokens that came already",
        advice="1.0 changes nothing, 1.2 is the paper's.",
        doc="Makes tokens less likely that came already, if greater than 1.",
    )

    num_hypotheses = 1
    draws = False

    def __init_subclass__(cls, **kwargs):
        super().__init_subclass__(**kwargs)
        own = _options_in(cls)
        _require_names(cls, own)
        annotations = inspect.get_annotations(cls)
        if not dataclasses.is_dataclass(cls):  # then its base has them all
            last = {name: x for name, x in own.items() if x.last}
            first = {name: x for name, x in own.items() if not x.last}
            common = {x: y for x, y in _COMMON.items() if x not in own}
            own = first | common | last
            annotations = {**inspect.get_annotations(Search), **annotations}
        cls.__annotations__ = {
            **{name: annotations.get(name, Any) for name in own},
            **{x: y for x, y in annotations.items() if x not in own},
        }
        for name, option in own.items():
            field = dataclasses.field(
                default=option.default, metadata={"option": option}
            )
            setattr(cls, name, field)
        dataclasses.dataclass(frozen=True)(cls)
        _add_options_to_docs(cls)

    def __new__(cls, *args, **kwargs):
        if cls is Search:
            raise TypeError(
                "`Search` is the base of searches. Pass one of them, for "
                "example `BeamSearch(5)`, or write a subclass."
            )
        return super().__new__(cls)

    def __post_init__(self):
        for name, option in self._options().items():
            object.__setattr__(self, name, option.read(name, self))
        self.check()

    @classmethod
    def _options(cls):
        """The `Option`s by their names."""
        fields = dataclasses.fields(cls)
        return {
            x.name: x.metadata["option"]
            for x in fields
            if "option" in x.metadata
        }

    def check(self):
        """Refuses options that do not go together."""

    def start(self, task: Task) -> Any:
        """Returns the search's own state before the first token, or None.

        Args:
            task: What is searched; `task.batch` is the number of rows.
        """
        return None

    def choose(self, step, state) -> tuple:
        """Chooses the next token of every hypothesis.

        Args:
            step: A `keras_attn.search.Step`: what the model says, and what
                is known so far.
            state: The search's own.

        Returns:
            Tokens, integers of shape `(batch, N)`, and the scores of the
            hypotheses with them, `step.scores_with(tokens)`.
        """
        raise NotImplementedError(
            f"A search says in `choose` which token comes next. Received: "
            f"{type(self).__name__}, which has none."
        )

    def update(self, step, tokens, scores, state) -> Any:
        """Returns the search's own state after these tokens.

        Args:
            step: The `Step`, as for `choose`.
            tokens: The tokens that came, `(batch, N)`: those chosen, or
                those of a prefix.
            scores: The scores with them, `(batch, N)`.
            state: The state before.
        """
        return state

    @property
    def streams(self) -> bool:
        """Whether a token is settled once it came, so that it may be sent."""
        return self.num_hypotheses == 1

    @property
    def request_options(self) -> RequestOptions:
        """Options that a `Task` may hold for every row, and their dtypes."""
        return RequestOptions(self, self._options())

    def check_options(self, options):
        """Returns the options as tensors that fail where out of range."""
        return self.request_options.checked(options)

    def option(self, name: str, task: Task) -> Any:
        """The search's own, or a `(batch,)` tensor of the request's."""
        if task.options and name in task.options:
            dtype = self.request_options[name]
            return tf.cast(task.options[name], dtype)
        return getattr(self, name)

    def asked(self, task: Task) -> "Search":
        """The search with the options of the request, `(batch, 1)` each."""
        if not task.options:
            return self
        asked = copy.copy(self)
        for name in task.options:
            value = tf.reshape(self.option(name, task), [-1, 1])
            object.__setattr__(asked, name, value)
        return asked

    def get_config(self) -> dict:
        """The options by their names, for `from_config()`."""
        fields = dataclasses.fields(self)
        return {x.name: getattr(self, x.name) for x in fields}

    @classmethod
    def from_config(cls, config: dict) -> "Search":
        """Makes the same search again."""
        return cls(**config)

    def run(self, task: Task):
        """Returns a run over a task: what is known from step to step.

        That of hypotheses that go on alone; a search whose hypotheses take
        each other's place has a run of its own.
        """
        return Chains(self, task)

    def begin(self, task: Task):
        """Returns the run over a task that the search can do."""
        self.request_options.require_known(task.options or {})
        if self.draws and task.seed is None:
            raise ValueError(
                f"`{type(self).__name__}` needs a seed for each row, and this "
                "task has none. Received: seed=None. Other seeds draw other "
                "hypotheses, the same seed draws them again."
            )
        return self.run(task)

    def __call__(self, task: Task) -> Hypotheses:
        """Decodes, inside a `tf.function` or eagerly."""
        run = self.begin(task)
        buffers = [tf.TensorArray(x, self.max_length) for x in run.recorded]
        first = run.first(), task.start(run.beams), buffers

        def goes_on(*tensors):
            state, *_ = structures.pack(first, tensors)
            # At least one step, also for a batch without rows: a buffer that
            # nothing was written to does not know its shape.
            return (state.time == 0) | ~tf.reduce_all(state.done)

        def body(*tensors):
            before, model, buffers = structures.pack(first, tensors)
            logits, alignments, model = task.step(before.last, model)
            state, parents, record = run.advance(before, logits, alignments)
            if parents is not None:
                model = task.reorder(model, parents)
            buffers = [
                buffer.write(before.time, x)
                for buffer, x in zip(buffers, record, strict=True)
            ]
            return structures.flatten((state, model, buffers))

        tensors = tf.while_loop(
            goes_on,
            body,
            structures.flatten(first),
            maximum_iterations=self.max_length,
        )
        state, _, buffers = structures.pack(first, tensors)
        return run.results(state, *(x.stack() for x in buffers))


def _options_in(cls):
    return {x: y for x, y in vars(cls).items() if isinstance(y, Option)}


_COMMON = _options_in(Search)
_RESERVED = {x for x in dir(Search) if x not in (*_COMMON, "num_hypotheses")}


def _require_names(cls, options):
    for name in options:
        if name in _RESERVED or name in _TAKEN:
            raise TypeError(
                f"An option may not be named {name!r}, which means something "
                f"else to every search. Received it in {cls.__name__}."
            )


def _add_options_to_docs(cls):
    """Adds `Args` and the options of a request to a docstring without."""
    text = inspect.cleandoc(vars(cls)["__doc__"] or "")
    if text.startswith(f"{cls.__name__}(") or "\nArgs:\n" in text:
        return  # it has none of its own, or says all itself
    lines = text.split("\n")
    after = [i for i, line in enumerate(lines) if line in _SECTIONS_AFTER]
    at = min(after, default=len(lines))
    before, rest = "\n".join(lines[:at]).rstrip(), "\n".join(lines[at:])
    parts = [before, _args(cls._options()), _requests(cls._options()), rest]
    cls.__doc__ = "\n\n".join(x for x in parts if x) + "\n"


_SECTIONS_AFTER = ("Raises:", "Reference:", "References:", "Example:")


def _args(options):
    lines = ["Args:"]
    for name, option in options.items():
        lines += textwrap.wrap(
            f"{name}: {option.doc}",
            width=76,
            initial_indent=" " * 4,
            subsequent_indent=" " * 8,
        )
    return "\n".join(lines)


def _requests(options):
    known = [x for x, option in options.items() if option.request]
    limited = [x for x in known if options[x].at_most_own]
    text = f"Request options: {_listed(known)}"
    if limited:
        text += f"; at most the search's own {_listed(limited)}"
    return textwrap.fill(f"{text}.", width=76)


def _listed(names):
    *others, last = [f"`{x}`" for x in names] or ["none"]
    return f"{', '.join(others)} and {last}" if others else last
