"""Beam search with a pool of finished hypotheses."""

from typing import Any
from typing import NamedTuple

import keras
import tensorflow as tf

from keras_attn.arguments import Former
from keras_attn.decoding.candidates import size_of
from keras_attn.decoding.group import Beams
from keras_attn.decoding.hypotheses import Hypotheses
from keras_attn.decoding.hypotheses import alignments_of
from keras_attn.decoding.hypotheses import without_impossible
from keras_attn.decoding.options import Choice
from keras_attn.decoding.options import Integer
from keras_attn.decoding.options import Real
from keras_attn.decoding.pool import merged
from keras_attn.decoding.pool import normalize
from keras_attn.decoding.rules import Ruled
from keras_attn.decoding.run import Run
from keras_attn.decoding.search import Search
from keras_attn.decoding.search_input import SearchInput


@keras.saving.register_keras_serializable("keras_attn")
class BeamSearch(Search):
    """Keeps the `num_beams` likeliest partial hypotheses, the beams.

    A step takes the `2 * num_beams` best extensions of a source's beams. An
    extension that ends and ranks among the first `num_beams` moves to a pool
    of finished hypotheses. It is scored once, and the pool keeps the best
    `num_beams`. The best `num_beams` extensions that do not end are the next
    beams. At most `num_beams` extensions end, so `2 * num_beams` candidates
    are enough.

    With one group, a source stops as soon as no beam can still become one of
    its `num_hypotheses` best. Apart from this, `early_stopping` decides when a
    source stops:

    - `True`: when the pool is full.
    - `False`: when the pool is full and no beam, scored as if it ended now,
      beats the pool's worst entry. This is a heuristic.
    - `"never"`: when the pool is full and no beam can ever beat the pool's
      worst entry, even at the length that favours it most. With
      enough beams this is exhaustive search.

    If fewer than `num_hypotheses` have ended, the best beams follow them, cut
    at the maximum length and flagged as not finished. With `cut="by_score"`,
    hypotheses that are cut at the maximum length are instead ranked together
    with those that ended, as in Hugging Face, unless the source was done
    earlier.

    The coverage penalty of Wu et al. (2016) is added to the score of a
    hypothesis when it ends or is cut: `coverage_penalty * sum(log(min(c,
    1)))` over the real source positions. `c`, at least 1e-6, is the total
    attention that a position received, the end token's step included.
    The penalty is never positive, and the stopping rules ignore it.

    Diverse beam search (Vijayakumar et al., 2018) splits the beams into
    `groups` of equal size. Each group is a beam search with its own pool.
    At every step a group ranks its candidates by their log-probability minus
    `diversity` times the number of beams in earlier groups that chose the
    same token (Hamming diversity; groups that have stopped are not counted).
    The log-probabilities and scores themselves remain the model's. The results
    of all groups are ranked together, and may contain the same hypothesis
    twice.

    The module `keras_attn.decoding` defines the rules on lengths, prefix and
    repetition.

    A request may set `num_beams` and `max_length`, up to the search's own
    values, and `length_penalty`, `min_length` and `coverage_penalty`. A row
    with fewer beams gets the results of a search with that number. With
    several groups a request cannot set `num_beams`. In exports the input for
    `num_beams` is called `width`.

    Args:
        num_beams: Number of beams. Defaults to `5`.
        num_hypotheses: Number of results per source, at most `num_beams`.
            Defaults to `1`.
        length_penalty: Exponent `alpha` of the length penalty, at least 0.
            Defaults to `0.0`, which ranks by log-probability.
        penalty: Formula of the length penalty, `"gnmt"` or `"power"`.
            Defaults to `"gnmt"`.
        early_stopping: `True`, `False` or `"never"`. Defaults to `False`.
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
        coverage_penalty: Weight `beta` of the coverage penalty, at least 0.
            Defaults to `0.0`, no penalty.
        groups: Number of groups, a divisor of `num_beams`. Defaults to `1`.
        diversity: Cost of a token for each beam of an earlier group that
            chose it. It must be above 0 with several groups, and 0 with one.
            Defaults to `0.0`.
        cut: Rank of hypotheses that are cut at the maximum length: `"last"`
            or `"by_score"`, which needs one group. Defaults to `"last"`.
        length_offset: Number to add to the length in the length penalty, to
            match libraries that count start tokens. Defaults to `0`.
        rules: List of `keras_attn.decoding.Rule`s on the next token. They
            apply after the built-in rules. Defaults to `()`, none.

    References:
        - [Wu et al., 2016](https://arxiv.org/abs/1609.08144), equation 14
        - [Vijayakumar et al., 2018](https://arxiv.org/abs/1610.02424),
          algorithm 1

    Example:
        >>> search = keras_attn.BeamSearch(
        ...     5, num_hypotheses=3, length_penalty=1.0)
        >>> float(search.normalize(-6.0, length=13))  # 6 / ((5 + 13) / 6)
        -2.0
    """

    num_beams: int = Integer(
        default=5,
        low=1,
        request=lambda search: search.groups == 1,
        at_most_own=True,
        former_name="width",
    )
    num_hypotheses: int = Integer(
        default=1,
        low=1,
        high="num_beams",
        advice="For more results raise `num_beams` too.",
    )
    length_penalty: float = Real(
        default=0.0,
        low=0,
        request=True,
        advice=(
            "0 ranks by log-probability, larger values favour longer "
            "hypotheses."
        ),
    )
    penalty: str = Choice("gnmt", "power", default="gnmt")
    early_stopping: bool | str = Choice(True, False, "never", default=False)
    coverage_penalty: float = Real(
        default=0.0,
        low=0,
        request=True,
        advice="0 ignores coverage; Wu et al. (2016) use about 0.2.",
        last=True,
    )
    groups: int = Integer(default=1, last=True)
    diversity: float = Real(default=0.0, last=True)
    cut: str = Choice("last", "by_score", default="last", last=True)
    length_offset: int = Integer(default=0, low=0, last=True)

    rows_are_independent = ids_are_interchangeable = True
    takes_steering = True
    width, normalise = Former("num_beams"), Former("normalize")
    streams = False  # no token is final before the search ends

    def check(self):
        if self.groups < 1 or self.num_beams % self.groups:
            raise ValueError(
                "`groups` must divide `num_beams`, so that all groups have the "
                f"same number of beams. Received: groups={self.groups!r}, "
                f"num_beams={self.num_beams!r}"
            )
        if (self.diversity > 0) != (self.groups > 1) or self.diversity < 0:
            raise ValueError(
                "`diversity` must be above 0 with several groups and 0 with "
                f"one. Received: groups={self.groups!r}, "
                f"diversity={self.diversity!r}. It is the cost of a token "
                "that an earlier group chose; without it all groups would "
                "find the same hypotheses."
            )

        if self.cut != "last" and self.groups > 1:
            raise ValueError(
                '`cut="by_score"` needs one group. Received: '
                f"groups={self.groups!r}. Leave one of the two out."
            )

    def normalize(self, log_probability, length):
        """Returns the score of a hypothesis of `length` tokens."""
        counted = length + self.length_offset
        return normalize(
            log_probability, counted, self.penalty, self.length_penalty
        )

    def run(self, search_input: SearchInput) -> "Groups":
        return Groups(self, search_input)


class Frontier(NamedTuple):
    """The beams of all groups after `time` tokens."""

    time: Any
    groups: tuple  # of `Group`

    @property
    def last(self):
        """The last token of each beam, `(B, K)`."""
        return self._joined("last")

    @property
    def tokens(self):
        """All tokens of each beam, `(B, K, T)`."""
        return self._joined("tokens")

    @property
    def rules(self):
        """The states of the rules, `(B, K, ...)`."""
        return self._joined("rules")

    @property
    def done(self):
        """Whether each source is done, `(B,)`; `(B, groups)` with several."""
        if len(self.groups) == 1:
            return self.groups[0].done
        return tf.stack([group.done for group in self.groups], axis=1)

    def _joined(self, name):
        first, *others = (getattr(group, name) for group in self.groups)
        if not others:
            return first
        return tf.nest.map_structure(
            lambda *x: None if x[0] is None else tf.concat(x, axis=1),
            first,
            *others,
        )


class Groups(Run):
    """One run of a beam search, with all its groups of beams.

    Args:
        search: The `BeamSearch`.
        search_input: The `SearchInput`.
    """

    recorded = (tf.float32,)  # alignments

    def __init__(self, search, search_input):
        super().__init__(search, search_input, search.num_beams)
        self._each = Beams(self)

    def first(self) -> Frontier:
        group = self._each.first(self._source_length())
        return Frontier(tf.constant(0), (group,) * self.search.groups)

    def advance(self, state: Frontier, logits, alignments) -> tuple:
        ruled = self.apply_rules(state, logits)
        if len(state.groups) == 1:
            (group,) = state.groups
            group, parents, _ = self._each.advance(
                group, state.time, ruled, alignments
            )
            grown = (group,)
        else:
            grown, parents = self._one_after_the_other(state, ruled, alignments)
        return Frontier(state.time + 1, grown), parents, (alignments,)

    def _one_after_the_other(self, state, ruled, alignments):
        """Advances the groups in order; tokens of earlier groups cost more."""
        vocabulary, beams = size_of(ruled.logits), self._each.num_beams
        diversity_penalty, grown, parents = None, [], []
        for i, group in enumerate(state.groups):
            offset = i * beams
            new, parent, chose = self._each.advance(
                group,
                state.time,
                _of_beams(ruled, offset, beams),
                alignments[:, offset : offset + beams],
                offset,
                diversity_penalty,
            )
            cost = tf.where(chose, self.search.diversity, 0.0)[..., None]
            cost *= tf.one_hot(new.last, vocabulary)
            cost = tf.reduce_sum(cost, axis=1)  # (B, V)
            diversity_penalty = (
                cost if diversity_penalty is None else diversity_penalty + cost
            )
            grown.append(new)
            parents.append(parent + offset)
        return tuple(grown), tf.concat(parents, axis=1)

    def results(self, state: Frontier, alignments) -> Hypotheses:
        count, time = self.search.num_hypotheses, state.time
        if len(state.groups) == 1:
            (group,) = state.groups
            pool, finished = self._each.results(group, time, count)
        else:
            results = [
                self._each.results(group, time, self._each.num_beams)
                for group in state.groups
            ]
            pools, finished = zip(*results, strict=True)
            steer = self.rules.steer
            wanted = self.search.num_beams if steer else count
            pool, finished = merged(pools, finished, wanted)
            pool, finished = self._each.lacking_least(pool, finished, count)
        return without_impossible(
            Hypotheses(
                tokens=pool.tokens,
                lengths=pool.lengths,
                scores=pool.scores,
                finished=finished,
                alignments=alignments_of(alignments, pool.beam_ids),
            )
        )

    def _source_length(self):
        """Returns the number of source positions, None without coverage."""
        given = self.search_input
        if not self._each.covers:
            return None
        if given.source_mask is not None:
            return tf.shape(given.source_mask)[1]
        # Takes a step to find the number. With static shapes, the graph drops
        # the step again.
        tokens = given.first_tokens(self.beams)
        cache = given.model.start(self.beams)
        _, alignments, _ = given.model.step(tokens, cache)
        return tf.shape(alignments)[-1]


def _of_beams(ruled: Ruled, first, count):
    """Returns the logits of `count` beams, as changed by the rules."""

    def some(x):
        return None if x is None else x[:, first : first + count]

    return Ruled(
        some(ruled.raw),
        some(ruled.logits),
        some(ruled.allowed),
        ruled.penalties,
    )
