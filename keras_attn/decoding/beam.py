"""Beam search with a pool of finished hypotheses beside the beams."""

from typing import Any
from typing import NamedTuple

import keras
import tensorflow as tf

from keras_attn.arguments import Former
from keras_attn.decoding.candidates import size_of
from keras_attn.decoding.group import Beams
from keras_attn.decoding.options import Choice
from keras_attn.decoding.options import Integer
from keras_attn.decoding.options import Real
from keras_attn.decoding.pool import merged
from keras_attn.decoding.pool import normalize
from keras_attn.decoding.search import Search
from keras_attn.decoding.step import Step
from keras_attn.decoding.task import POSSIBLE
from keras_attn.decoding.task import Hypotheses
from keras_attn.decoding.task import Task
from keras_attn.decoding.task import zero_past


@keras.saving.register_keras_serializable("keras_attn")
class BeamSearch(Search):
    """Keeps the `num_beams` likeliest partial hypotheses, the beams.

    A step takes the `2 * num_beams` best extensions of a source's beams. Those
    that end, if they rank among the first `num_beams`, move to a pool of
    finished hypotheses. They are scored once, and the pool keeps the best
    `num_beams`. The best `num_beams` extensions that do not end are the next
    beams. At most `num_beams` extensions end, so `2 * num_beams` candidates
    are enough.

    With one group, a source stops as soon as no beam can get among its
    `num_hypotheses` best any more. `early_stopping` decides when it stops
    otherwise:

    - `True`: when the pool is full.
    - `False`: when the pool is full and no beam, scored as if it ended now,
      beats the pool's worst entry. A heuristic.
    - `"never"`: when the pool is full and no beam can ever beat the pool's
      worst entry, even at the length that favours it most. With
      enough beams this is exhaustive search.

    If fewer than `num_hypotheses` have ended, the best beams follow them, cut
    at the maximum length and flagged as not finished.

    The coverage penalty of Wu et al. (2016) is added to the score of a
    hypothesis when it ends or is cut: `coverage_penalty * sum(log(min(c,
    1)))` over the real source positions. `c`, at least 1e-6, is the sum of
    the attention that a position received, the end token's step included.
    The penalty is never positive, and the stopping rules ignore it.

    Diverse beam search (Vijayakumar et al., 2018) splits the beams into
    `groups` of equal size. Each group is a beam search with its own pool.
    At every step a group ranks its candidates by their log-probability minus
    `diversity` times the number of beams in earlier groups that chose the
    same token (Hamming diversity; a group that has stopped counts none). The
    log-probabilities and scores themselves remain the model's. The results
    of all groups are ranked together; two groups may find the same one.

    The module `keras_attn.decoding` defines the rules on lengths, prefix and
    repetition.

    A request may set `num_beams` and `max_length`, up to the search's own,
    `length_penalty`, `min_length` and `coverage_penalty`. A row with fewer
    beams gets the results of a search with so many. With several groups a
    request cannot set `num_beams`. Exports call this input `width`.

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
            rounded down, where that is less than `max_length`. Defaults to
            `None`.
        min_per_source: Pair `(a, b)`: at least `a * source + b` tokens,
            rounded down, where that is more than `min_length`. Defaults to
            `None`.
        no_repeat_ngram: Length of the n-grams that may not occur twice in a
            hypothesis. 0 allows all. Defaults to `0`.
        repetition_penalty: Factor of at least 1 that makes tokens less
            likely which the hypothesis has already. Defaults to `1.0`, no
            penalty.
        coverage_penalty: Weight `beta` of the coverage penalty, at least 0.
            Defaults to `0.0`, no penalty.
        groups: Number of groups, a divisor of `num_beams`. Defaults to `1`.
        diversity: Cost of a token for each beam of an earlier group that
            chose it. Above 0 with several groups. Defaults to `0.0`, which
            one group needs.

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

    width, normalise = Former("num_beams"), Former("normalize")
    streams = False  # the first token is known only when the last one is

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

    def normalize(self, log_probability, length):
        """Returns the score of a hypothesis of `length` tokens."""
        return normalize(
            log_probability, length, self.penalty, self.length_penalty
        )

    def run(self, task: Task) -> "Groups":
        return Groups(self, task)


class Frontier(NamedTuple):
    """The beams of all groups after `time` tokens."""

    time: Any
    groups: tuple  # of `Group`

    @property
    def last(self):
        """The last token of each beam, `(B, K)`."""
        return _joined([group.last for group in self.groups])

    @property
    def done(self):
        """Whether each source is done, `(B,)`, or `(B, groups)` of several."""
        if len(self.groups) == 1:
            return self.groups[0].done
        return tf.stack([group.done for group in self.groups], axis=1)


class Groups:
    """One run of a beam search over a task: all its groups of beams.

    Args:
        search: The `BeamSearch`.
        task: The `Task`.

    Attributes:
        beams: Number of hypotheses per source that the model steps.
        recorded: Dtypes of the tensors that each step records for
            `results()`.
    """

    recorded = (tf.float32,)  # alignments

    def __init__(self, search, task):
        self._search, self._task = search, task
        self._each = Beams(search, task)
        self.beams = search.num_beams

    def first(self) -> Frontier:
        """Returns the beams before the first token."""
        group = self._each.first(self._source_length())
        return Frontier(tf.constant(0), (group,) * self._search.groups)

    def advance(self, frontier: Frontier, logits, alignments) -> tuple:
        """Extends every beam by a token and keeps the best.

        Args:
            frontier: The beams so far.
            logits, alignments: The model's output for the beams' last
                tokens.

        Returns:
            The new beams, the beams' parents `(batch, K)`, and a tuple of
            the tensors to record, the alignments `(batch, K, source)`.
        """
        time, groups, rules = frontier.time, frontier.groups, self._each.rules
        raw = tf.cast(logits, tf.float32)
        history = None
        if rules.need_history:
            history = _joined([group.tokens for group in groups])
        logits, allowed = rules.apply(raw, history, time)
        step = Step(time, raw, logits, allowed, rules.banned(time), alignments)
        if len(groups) == 1:
            group, parents, _ = self._each.advance(groups[0], step)
            grown = (group,)
        else:
            grown, parents = self._one_after_the_other(groups, step)
        return Frontier(time + 1, grown), parents, (alignments,)

    def _one_after_the_other(self, groups, step):
        """Advances the groups in order; tokens chosen earlier cost more."""
        vocabulary, beams = size_of(step.logits), self._each.num_beams
        diversity_penalty, grown, parents = None, [], []
        for i, group in enumerate(groups):
            offset = i * beams
            new, parent, chose = self._each.advance(
                group, step.of_beams(offset, beams), offset, diversity_penalty
            )
            cost = tf.where(chose, self._search.diversity, 0.0)[..., None]
            cost *= tf.one_hot(new.last, vocabulary)
            cost = tf.reduce_sum(cost, axis=1)  # (B, V)
            diversity_penalty = (
                cost if diversity_penalty is None else diversity_penalty + cost
            )
            grown.append(new)
            parents.append(parent + offset)
        return tuple(grown), tf.concat(parents, axis=1)

    def results(self, frontier: Frontier, alignments) -> Hypotheses:
        """Returns the hypotheses, best first.

        Args:
            frontier: The beams at the end.
            alignments: The recorded alignments `(time, batch, K, source)`.
        """
        count, time = self._search.num_hypotheses, frontier.time
        if len(frontier.groups) == 1:
            (group,) = frontier.groups
            pool, finished = self._each.results(group, time, count)
        else:
            results = [
                self._each.results(group, time, self._each.num_beams)
                for group in frontier.groups
            ]
            pools, finished = zip(*results, strict=True)
            pool, finished = merged(pools, finished, count)
        exists = pool.scores > POSSIBLE
        lengths = tf.where(exists, pool.lengths, 0)
        real = tf.sequence_mask(lengths, self._search.max_length)
        # (T, B, K, S) -> (B, T, K, S), then the beam of each step
        attended = tf.transpose(alignments, [1, 0, 2, 3])
        attended = tf.gather(
            attended, tf.transpose(pool.beam_ids, [0, 2, 1]), batch_dims=2
        )
        return Hypotheses(
            tokens=tf.where(real, pool.tokens, 0),
            lengths=lengths,
            scores=tf.where(exists, pool.scores, float("-inf")),
            finished=finished,
            alignments=zero_past(tf.transpose(attended, [0, 2, 1, 3]), lengths),
        )

    def _source_length(self):
        """Returns the alignments' last axis, or None if no rule needs it."""
        task = self._task
        if not self._each.covers:
            return None
        if task.source_mask is not None:
            return tf.shape(task.source_mask)[1]
        # Only a step shows it. A graph with static shapes drops this step.
        tokens = tf.fill([task.batch, self.beams], task.start_token)
        _, alignments, _ = task.step(tokens, task.start(self.beams))
        return tf.shape(alignments)[-1]


def _joined(tensors):
    return tensors[0] if len(tensors) == 1 else tf.concat(tensors, axis=1)
