"""The rules on the next token: forbidden, too early, repeated or forced.

Forbidden tokens are skipped; the others keep the model's log-probability,
without renormalizing. Only rules `before_softmax`, such as the repetition
penalty, and those that normalize change log-probabilities.
"""

from typing import Any
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf

from keras_attn import arguments
from keras_attn import structures
from keras_attn.decoding.candidates import penalties as added
from keras_attn.decoding.candidates import size_of
from keras_attn.decoding.described import described
from keras_attn.decoding.hypotheses import NEVER
from keras_attn.decoding.hypotheses import POSSIBLE
from keras_attn.decoding.hypotheses import gather
from keras_attn.decoding.options import Option
from keras_attn.decoding.options import is_fixed

_MANY = 8  # fixed penalties; more are added as one tensor


class Written(NamedTuple):
    """The hypotheses so far, as a rule sees them."""

    time: Any  # number of tokens so far, a scalar tensor
    tokens: Any  # (batch, N, max_length), or None if no rule needs them
    fixed_shapes: bool = False  # whether XLA compiles, with all shapes fixed


class Rule:
    """Changes the logits of the next token, given what is written.

    Pass your own rules to a search: `BeamSearch(rules=[NoDigits(ids)])`. They
    apply in calls, streams and exports, after the built-in rules. A subclass
    writes `apply`. To forbid a token, `apply` adds
    `keras_attn.decoding.NEVER`, a large negative number, to the token's logit.
    A rule may keep a state for each hypothesis, which follows the hypotheses
    when beams replace each other.

    A rule is saved with its search: write `get_config`, and register the
    class with `keras.saving.register_keras_serializable`, or pass it to
    `Translator.load` in `custom_objects`.

    Attributes:
        before_softmax: Whether the rule applies before the softmax, so that
            log-probabilities are those of the changed logits. Otherwise the
            rule may only lower logits, to forbid a token or rank it lower; a
            token's score falls by as much as its logit.
        needs_tokens: Whether `apply` needs the tokens so far.
        may_exhaust: Whether the rule can forbid all tokens at once. If unsure,
            leave this true: if it is false, a hypothesis without an allowed
            token is lost instead of cut.
        needs_penalties: Whether the logits passed to `apply` must already
            include the `penalties` of earlier rules.
        normalizes: Whether the softmax is over the tokens that earlier rules
            allow. Otherwise a forbidden token keeps its probability, which
            the others lack. Such a rule needs `needs_penalties`.
        reads_logits_alone: Whether `apply` needs only the logits. An export's
            signature `step` applies such rules. It refuses others, since it
            does not know what a client's hypotheses contain.
        steers: Whether the rule requires tokens that a hypothesis may still
            lack; it then writes `lacking` and `following`. `BeamSearch`
            divides its beams by the number of missing tokens (Post and Vilar,
            2018); other searches refuse such a rule.

    Example:
        A rule that forbids some tokens at the beginning of an output.

        >>> import tensorflow as tf
        >>> from keras_attn.decoding import NEVER, Rule
        >>> @keras.saving.register_keras_serializable("mine")
        ... class NotFirst(Rule):
        ...     '''Forbids some tokens at the beginning.'''
        ...
        ...     def __init__(self, ids):
        ...         self.ids = ids
        ...
        ...     def apply(self, logits, written, state):
        ...         size = tf.shape(logits)[-1]
        ...         never = tf.reduce_sum(tf.one_hot(self.ids, size), axis=0)
        ...         first = tf.cast(written.time == 0, tf.float32)
        ...         return logits + NEVER * first * never
        ...
        ...     def get_config(self):
        ...         return {"ids": self.ids}
        >>> keras_attn.GreedySearch(rules=[NotFirst([5, 7])]).rules
        (NotFirst(ids=[5, 7]),)
    """

    before_softmax = False
    needs_tokens = False
    may_exhaust = True
    needs_penalties = False
    normalizes = False
    reads_logits_alone = False
    steers = False

    def start(self, batch, beams) -> Any:
        """Returns the state before the first token, or None.

        Args:
            batch: Number of rows, an integer or a scalar tensor.
            beams: Number of hypotheses per row.

        Returns:
            A structure of tensors `(batch, beams, ...)`, or None. Set values
            that are the same for all hypotheses in the constructor instead.
        """
        return None

    def apply(self, logits, written: Written, state) -> Any:
        """Returns the logits after this rule.

        Args:
            logits: float32 `(batch, N, vocabulary)`, after earlier rules.
            written: The hypotheses so far. The result for a hypothesis that
                has ended is ignored.
            state: The rule's own state.

        Returns:
            Logits of the same shape. Add `keras_attn.decoding.NEVER` to the
            logit of a forbidden token.
        """
        return logits

    def penalties(self, time) -> list:
        """Returns `(id, penalty)` pairs, for rules on a few fixed tokens.

        This is faster than `apply`, since no tensor of all logits is made. A
        penalty is a scalar or a tensor `(batch,)`, with values 0 or `NEVER`.

        Args:
            time: Number of tokens so far, a scalar tensor.
        """
        return []

    def update(self, tokens, state) -> Any:
        """Returns the state after the chosen tokens `(batch, N)`.

        Args:
            tokens: The tokens that continue each hypothesis, including prefix
                tokens and the end token. Tokens after the end have no meaning.
            state: The state of the hypotheses before these tokens.
        """
        return state

    def lacking(self, state) -> Any:
        """Returns the fewest tokens that hypotheses lack, int32 `(batch, N)`.

        Only rules that `steer` need this. A hypothesis that lacks none may
        end.
        """
        raise arguments.lacking(
            self, "lacking", "how many tokens hypotheses lack"
        )

    def following(self, state) -> Any:
        """Returns tokens that bring hypotheses closer to completion.

        Only rules that `steer` need this.

        Returns:
            int32 `(batch, N, M)`: tokens after which a hypothesis lacks fewer;
            -1 for none.
        """
        raise arguments.lacking(
            self, "following", "tokens by which they lack less"
        )

    def take_rows(self, rows, count) -> "Rule":
        """Returns the rule for some rows of a batch.

        Args:
            rows: Indices of the rows, in ascending order.
            count: Number of rows in the batch.
        """
        return self

    def bound(self, text, max_length) -> "Rule":
        """Returns this rule for a translator's targets.

        Args:
            text: The `Text` of the targets.
            max_length: Most tokens of an output, the end token counted.
        """
        return self

    @property
    def variables(self) -> list:
        """The `tf.Variable`s that `apply` and `update` read."""
        return []

    def require_beside(self, rules: list["Rule"]) -> None:
        """Raises `ValueError` if this rule conflicts with another one.

        Args:
            rules: All rules passed to a search, including this one.
        """

    def get_config(self) -> dict:
        """Returns the constructor's arguments by name."""
        return {}

    @classmethod
    def from_config(cls, config: dict) -> "Rule":
        """Returns the rule that `get_config()` describes."""
        return cls(**config)

    def __eq__(self, other):
        return type(self) is type(other) and (
            _plain(self.get_config()) == _plain(other.get_config())
        )

    def __hash__(self):
        return hash(type(self))

    def __repr__(self) -> str:
        config = self.get_config().items()
        shown = ", ".join(f"{name}={value!r}" for name, value in config)
        return f"{type(self).__name__}({shown})"


class RuleList(Option):
    """An option whose value is a list of `Rule`s."""

    by_name = True

    def read(self, name, search):
        given = getattr(search, name)
        if not isinstance(given, (tuple, list)):
            raise ValueError(
                f"`{name}` must be a list of `keras_attn.decoding.Rule`s. "
                f"Received: {name}={given!r:.200}. Pass `{name}=[rule]`, or "
                f"`{name}=[]` for none."
            )
        rules = [_loaded(x) if isinstance(x, dict) else x for x in given]
        for x in rules:
            if not isinstance(x, Rule):
                is_class = isinstance(x, type) and issubclass(x, Rule)
                raise ValueError(
                    f"`{name}` must be a list of `keras_attn.decoding.Rule`s. "
                    f"Received: {x!r:.200} among them. "
                    + (
                        f"Make one, `{x.__name__}(...)`."
                        if is_class
                        else "Subclass `Rule` and write `apply`."
                    )
                )
            _require_config(x)
        for x in rules:
            x.require_beside(rules)
        return tuple(rules)

    def config(self, value):
        return [
            {
                "class_name": keras.saving.get_registered_name(type(x)),
                "config": _plain(x.get_config()),
            }
            for x in value
        ]


def _require_config(rule):
    """Refuses a rule with constructor arguments but no `get_config`."""
    kind = type(rule)
    names = arguments.parameters(kind.__init__)
    if names and kind.get_config is Rule.get_config:
        raise ValueError(
            f"`{kind.__name__}` takes {', '.join(map(repr, names))}, so it "
            "needs a method `get_config`, which returns them by name. It is "
            "used to save and compare rules. Received: a class without one. "
            f"Write it: `return {{{names[0]!r}: self.{names[0]}}}`."
        )


def _plain(config):
    """Returns a config with NumPy values converted for JSON."""
    return keras.tree.map_structure(
        lambda x: x.tolist() if isinstance(x, (np.generic, np.ndarray)) else x,
        config,
    )


def _loaded(saved):
    """Returns the rule that a dictionary of `RuleList.config` describes."""
    name = saved.get("class_name", "")
    short = name.rpartition(">")[2]
    kinds = [keras.saving.get_registered_object(x) for x in (name, short)]
    kind = kinds[0] or kinds[1]
    if not (isinstance(kind, type) and issubclass(kind, Rule)):
        raise ValueError(
            f"A saved search has the rule {short!r}, a class that must be "
            f"known here. Received: {kind!r} under this name. Import the "
            "module that registers it with Keras, or pass `custom_objects="
            f"{{{short!r}: {short}}}`."
        )
    return kind.from_config(saved["config"])


class Forbidden(Rule):
    """No hypothesis contains these tokens."""

    def __init__(self, ids, end):
        self._ids = ids
        self.may_exhaust = end in ids

    def penalties(self, time):
        return [(token, NEVER) for token in self._ids]


class MinLength(Rule):
    """No hypothesis ends before it has `shortest` tokens.

    Args:
        shortest: Minimum length from `Limits`, the end token counted; an
            integer or `(batch,)`.
        end: The end token.
    """

    def __init__(self, shortest, end):
        self._shortest, self._end = shortest, end
        self.may_exhaust = not is_fixed(shortest) or shortest > 1

    def penalties(self, time):
        if is_fixed(self._shortest) and self._shortest <= 1:
            return []
        early = tf.cast(time + 1 < self._shortest, tf.float32)
        return [(self._end, NEVER * early)]


class RepetitionPenalty(Rule):
    """Lowers the logits of past tokens.

    Positive logits are divided by the penalty, negative ones are multiplied.
    """

    before_softmax, needs_tokens, may_exhaust = True, True, False

    def __init__(self, penalty):
        self._penalty = penalty

    def apply(self, logits, written, state):
        tokens, time = written.tokens, written.time
        logit = tf.gather(logits, tokens, batch_dims=2)  # (B, K, T)
        lowered = tf.where(
            logit > 0, logit / self._penalty, logit * self._penalty
        )
        come = tf.range(tokens.shape[-1]) < time
        lowered = tf.where(come, lowered, float("inf"))
        return at_most(logits, tokens, lowered)


class NoRepeatNgram(Rule):
    """Forbids tokens that would complete an n-gram for the second time."""

    needs_tokens = True

    def __init__(self, size):
        self._size = size

    def apply(self, logits, written, state):
        tokens, time = written.tokens, written.time
        before, length = self._size - 1, tokens.shape[-1]
        starts = length - before  # positions where an n-gram may start
        if starts <= 0:
            return logits
        # The last n - 1 tokens; indices are clipped while there are fewer.
        last = tf.gather(
            tokens, tf.maximum(time - before + tf.range(before), 0), axis=2
        )
        seen = tf.range(starts) + before < time
        for i in range(before):
            seen &= tokens[..., i : i + starts] == last[..., i : i + 1]
        cost = tf.where(seen, NEVER, float("inf"))
        cost = tf.broadcast_to(cost, tf.shape(tokens[..., before:]))
        return at_most(logits, tokens[..., before:], cost)


class Prefix:
    """Forces the tokens that each row's hypotheses begin with.

    No other rule applies to a forced token, and its log-probability counts.

    Args:
        tokens: Ids `(batch, P)`, padded.
        padding: The id that pads them.
    """

    def __init__(self, tokens, padding):
        self._length, self._padding = tf.shape(tokens)[1], padding
        # A column more, for the steps after the longest prefix.
        self._tokens = tf.pad(
            tf.cast(tokens, tf.int32), [[0, 0], [0, 1]], constant_values=padding
        )

    def at(self, time):
        """Returns whether a row has a prefix token at `time`, and the token.

        Both have the shape `(batch,)`.
        """
        here = tf.minimum(time, self._length)
        token = tf.gather(self._tokens, here, axis=1)
        return token != self._padding, token

    def force(self, raw, logits, allowed, time):
        """Returns `logits` and `allowed`, with only forced tokens allowed.

        Args:
            raw: The model's own logits.
            logits: The logits over which the softmax normalizes.
            allowed: The logits to choose from.
            time: Number of tokens so far.
        """

        def forced():
            here, token = self.at(time)
            here = here[:, None, None]
            is_it = tf.one_hot(token, size_of(raw), True, False)[:, None]
            only = tf.where(is_it, raw, NEVER)
            return tf.where(here, raw, logits), tf.where(here, only, allowed)

        return tf.cond(time < self._length, forced, lambda: (logits, allowed))


class Ruled(NamedTuple):
    """The logits of a step, after the rules."""

    raw: Any  # the model's own, (batch, N, vocabulary), float32
    logits: Any  # those over which the softmax normalizes
    allowed: Any  # those to choose from; None if they equal `logits`
    penalties: list  # (id, penalty) pairs to add to the logits to choose from


class Rules:
    """Several rules together.

    Args:
        rules: List of `Rule`s.
        prefix: The `Prefix`, or None.

    Attributes:
        need_tokens: Whether `apply` needs the tokens so far.
        prefix: The argument `prefix`.
        steer: Whether hypotheses may lack tokens.
        may_exhaust: Whether the rules can forbid all tokens at once.
    """

    def __init__(self, rules, prefix: Prefix | None = None):
        # Those before the softmax first; Python's sort is stable.
        self._rules = sorted(rules, key=lambda x: not x.before_softmax)
        self.prefix = prefix
        self.need_tokens = any(x.needs_tokens for x in self._rules)
        self.steer = any(x.steers for x in self._rules)
        self.may_exhaust = self.prefix is not None or any(
            x.may_exhaust for x in self._rules
        )

    @classmethod
    def of(cls, search, search_input, limits) -> "Rules":
        """Returns the rules of one run of a search.

        Args:
            search: The search, for its options.
            search_input: The `SearchInput`, for its forbidden tokens, its
                prefix and its own rules.
            limits: The `Limits`, for the minimum length.
        """
        end, given = search_input.end_token, search_input.prefix
        rules = [
            Forbidden(search_input.forbidden, end),
            MinLength(limits.shortest, end),
        ]
        if search.repetition_penalty != 1:
            rules.append(RepetitionPenalty(search.repetition_penalty))
        if search.no_repeat_ngram:
            rules.append(NoRepeatNgram(search.no_repeat_ngram))
        prefix = None
        if given is not None and given.shape[1] != 0:
            prefix = Prefix(given, search_input.padding)
        return cls([*rules, *search.rules, *search_input.rules], prefix)

    def start(self, batch, beams) -> tuple:
        """Returns the state of each rule before the first token."""
        states = []
        for rule in self._rules:
            state = rule.start(batch, beams)
            for x in structures.flatten(state):
                shape = tuple(getattr(x, "shape", ()))
                if len(shape) < 2 or shape[1] not in (beams, None):
                    raise ValueError(
                        f"`{_name(rule)}.start` must return tensors whose "
                        f"first axes are batch and beams, here {beams} beams. "
                        f"Received: {described(x)}. For example return "
                        "`tf.zeros([batch, beams])`; set values that are the "
                        "same for all hypotheses in the constructor."
                    )
            states.append(state)
        return tuple(states)

    def apply(self, logits, written: Written, states: tuple) -> Ruled:
        """Applies all rules to the model's logits `(batch, N, vocabulary)`."""
        raw = logits = tf.cast(logits, tf.float32)
        allowed = None
        penalties: list = []
        for rule, state in zip(self._rules, states, strict=True):
            before = logits if allowed is None else allowed
            if rule.needs_penalties:
                before, penalties = _penalized(before, penalties), []
                allowed = before
            if rule.normalizes:
                logits = _normalizing(before, logits)
            penalties += _penalties(rule, written, raw)
            after = rule.apply(before, written, state)
            if after is before:
                continue
            _require_logits(rule, before, after)
            if tf.executing_eagerly():  # in a search's trial, for example
                _require_lower(rule, before, after)
            if rule.before_softmax:
                logits = after
            else:
                allowed = after
        free: Any = None
        if self.prefix is not None:
            logits, allowed = self.prefix.force(
                raw,
                logits,
                logits if allowed is None else allowed,
                written.time,
            )
            here, _ = self.prefix.at(written.time)
            free = tf.cast(~here, tf.float32)
        penalties, always = _without_many(penalties, size_of(raw))
        if free is not None:
            penalties = [(token, x * free) for token, x in penalties]
        if always is not None:
            if free is not None:
                always *= free[:, None, None]
            allowed = (logits if allowed is None else allowed) + always
        return Ruled(raw, logits, allowed, penalties)

    def update(self, tokens, states: tuple, parents=None) -> tuple:
        """Returns the states after the chosen tokens `(batch, N)`.

        Args:
            tokens: The chosen tokens.
            states: The states before these tokens.
            parents: The hypotheses that the tokens continue, `(batch, N)`;
                None if each continues itself.
        """
        if parents is not None:
            states = gather(states, parents)
        found = []
        for rule, state in zip(self._rules, states, strict=True):
            after = rule.update(tokens, state)
            if not _alike(state, after):
                raise ValueError(
                    f"`{_name(rule)}.update` must return a state like the one "
                    "it got: its structure, shapes and dtypes. Received: "
                    f"{_shown(after)} after {_shown(state)}."
                )
            found.append(after)
        return tuple(found)

    def following(self, states: tuple) -> Any:
        """Returns the `following` tokens of all rules, `(batch, N, M)`."""
        found = [x.following(state) for x, state in self._steering(states)]
        return tf.concat(found, axis=-1)

    def lacking_after(self, tokens, states: tuple, parents) -> Any:
        """Returns how many tokens extended hypotheses lack, `(batch, C)`.

        Args:
            tokens: The tokens that extend the hypotheses, `(batch, C)`.
            states: The states before these tokens.
            parents: The hypotheses that the tokens extend, `(batch, C)`.
        """
        found = tf.zeros_like(tokens)
        for rule, state in self._steering(states):
            found += rule.lacking(rule.update(tokens, gather(state, parents)))
        return found

    def lacking_in(self, tokens, lengths) -> Any:
        """Returns how many tokens complete hypotheses lack, `(batch, N)`.

        Args:
            tokens: Tokens of the hypotheses, `(batch, N, T)`.
            lengths: Lengths of the hypotheses, `(batch, N)`.
        """
        found = tf.zeros_like(lengths)
        for rule in self._rules:
            if rule.steers:
                found += rule.lacking(state_after(rule, tokens, lengths))
        return found

    def _steering(self, states):
        both = zip(self._rules, states, strict=True)
        return [(rule, state) for rule, state in both if rule.steers]


def state_after(rule, tokens, lengths) -> Any:
    """Returns the state of a rule after complete hypotheses.

    Args:
        rule: A `Rule`, or another object with `start` and `update`.
        tokens: Tokens of the hypotheses, `(batch, N, T)`.
        lengths: Lengths of the hypotheses, `(batch, N)`.
    """
    batch, count = tf.unstack(tf.shape(lengths))
    first = rule.start(batch, tokens.shape[1] or count)

    def update(time, state):
        here = time < lengths

        def chosen(new, old):
            axes = [1] * (len(new.shape) - 2)
            shape = tf.concat([tf.shape(here), axes], axis=0)
            return tf.where(tf.reshape(here, shape), new, old)

        after = rule.update(tokens[..., time], state)
        return time + 1, tf.nest.map_structure(chosen, after, state)

    _, state = tf.while_loop(
        lambda time, _: time < tf.reduce_max(lengths), update, (0, first)
    )
    return state


def _name(rule):
    return type(rule).__name__


def _require_logits(rule, before, after):
    """Refuses a result of `apply` unlike the logits that the rule got."""
    if (
        tf.is_tensor(after)
        and after.dtype == before.dtype
        and after.shape.rank == 3
        and after.shape.is_compatible_with(before.shape)
    ):
        return
    raise ValueError(
        f"`{_name(rule)}.apply` must return logits like those that it got, "
        f"float32 of shape {tuple(before.shape)}. Received: "
        f"{described(after)}. Return for example `logits + NEVER * mask`, "
        "with a mask of zeros and ones."
    )


def _require_lower(rule, before, after):
    """Refuses a rule after the softmax that raised logits."""
    if not rule.before_softmax and tf.reduce_any(after > before):
        most = float(tf.reduce_max(after - before))
        raise ValueError(
            f"`{_name(rule)}.apply` must not raise logits, since scores may "
            f"only fall with each token. Received: logits that rose by up to "
            f"{most:.3g}. Set `before_softmax = True` in its class, so that "
            "the softmax follows, or lower the logits of the other tokens."
        )


def _penalties(rule, written, logits):
    """Returns a rule's penalties; refuses invalid ids."""
    pairs, size = rule.penalties(written.time), logits.shape[-1]
    for pair in pairs:
        if not isinstance(pair, tuple) or len(pair) != 2:
            raise ValueError(
                f"`{_name(rule)}.penalties` must return a list of pairs (id, "
                f"penalty). Received: {pairs!r:.200}."
            )
        token, _ = pair
        is_id = isinstance(token, (int, np.integer))
        if not is_id or token < 0 or (size is not None and token >= size):
            raise ValueError(
                f"`{_name(rule)}.penalties` must name ids of the vocabulary, "
                f"integers from 0 to {'its size' if size is None else size}, "
                f"excluded. Received: {token!r}. Leave it out of "
                "the list."
            )
    return pairs


def _without_many(pairs, size):
    """Splits penalties into pairs and one tensor of the fixed penalties.

    If there are few fixed penalties, all remain pairs, which is cheaper, and
    the tensor is None.
    """
    fixed = [(i, x) for i, x in pairs if not tf.is_tensor(x)]
    if len(fixed) <= _MANY or not isinstance(size, int):
        return pairs, None
    always = np.zeros(size, "float32")
    for i, x in fixed:
        always[i] += x
    others = [(i, x) for i, x in pairs if tf.is_tensor(x)]
    return others, tf.constant(always)


def _penalized(logits, pairs):
    """Returns logits with penalties added."""
    pairs, always = _without_many(pairs, size_of(logits))
    if always is not None:
        logits += always
    return logits + added(pairs, size_of(logits)) if pairs else logits


def _normalizing(allowed, logits):
    """Returns the logits over which a softmax over allowed tokens normalizes.

    Where no token is allowed they are `logits`, so that each remains as
    improbable as a forbidden token.
    """
    some = tf.reduce_max(allowed, axis=-1, keepdims=True) > POSSIBLE
    return tf.where(some, allowed, logits)


def _alike(before, after):
    """Returns whether two states have the same structure, shapes and dtypes."""
    try:
        tf.nest.assert_same_structure(before, after)
    except (TypeError, ValueError):
        return False
    pairs = zip(tf.nest.flatten(before), tf.nest.flatten(after), strict=True)
    return all(
        (x is None and y is None)
        or (
            tf.is_tensor(y)
            and x.dtype == y.dtype
            and x.shape.is_compatible_with(y.shape)
        )
        for x, y in pairs
    )


def _shown(state):
    return ", ".join(map(described, tf.nest.flatten(state)))


def at_most(logits, tokens, bounds):
    """Lowers the logits `(B, K, V)` of tokens to at most their bounds.

    Tokens and bounds have the shape `(B, K, N)`. If a token occurs several
    times, its smallest bound counts, whatever the order.
    """
    batch, beams, vocabulary = tf.unstack(tf.shape(logits))
    row = tf.reshape(tf.range(batch * beams), [batch, beams, 1])
    index = tf.reshape(row * vocabulary + tokens, [-1, 1])
    flat = tf.tensor_scatter_nd_min(
        tf.reshape(logits, [-1]), index, tf.reshape(bounds, [-1])
    )
    return tf.reshape(flat, tf.shape(logits))
