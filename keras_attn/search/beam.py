"""Beam search with a pool of finished hypotheses beside the beams."""

from typing import Any
from typing import NamedTuple

import keras
import tensorflow as tf

from keras_attn.search.base import Search
from keras_attn.search.group import Beams
from keras_attn.search.options import Choice
from keras_attn.search.options import Integer
from keras_attn.search.options import Real
from keras_attn.search.pool import merged
from keras_attn.search.pool import normalise
from keras_attn.search.step import Step
from keras_attn.search.task import POSSIBLE
from keras_attn.search.task import Hypotheses
from keras_attn.search.task import Task
from keras_attn.search.task import zero_past


@keras.saving.register_keras_serializable("keras_attn")
class BeamSearch(Search):
    """Keeps the `width` likeliest beginnings at every step.

    Of the `2 * width` best extensions of a source, those among the first
    `width` that end go to a pool of finished hypotheses, scored once and
    ranked there; the best `width` that do not end go on. Twice the width is
    enough, since at most `width` extensions end. A pool holds `width`
    hypotheses.

    When to stop a source before the maximum length (`early_stopping`):

    - `True`: as soon as the pool is full.
    - `False`: when the pool is full and the best beginning, scored as if it
      ended now, is no better than the worst of the pool. A heuristic.
    - `"never"`: when the pool is full and no beginning can ever beat the
      worst of the pool, even at the length that favours it most. With a
      width large enough this is exhaustive search.

    If fewer hypotheses than asked for have ended, the best beginnings, cut
    at the maximum length, come after those and are flagged as not finished.

    The coverage penalty of Wu et al. (2016) adds to the score of a
    hypothesis, when it ends or is cut, `coverage_penalty * sum(log(min(c,
    1)))` over the real source positions, where `c` is all the attention a
    position has had, the end token's step counted, and at least 1e-6. It is
    never positive, and the rules of stopping leave it out.

    Diverse beam search (Vijayakumar et al., 2018) splits the beams into
    `groups` of equal width. Each is a beam search with a pool of its own. At
    every step the candidates of a group are ranked by their log-probability
    less `diversity` times the number of beams of the groups before it that
    go on with the same token (Hamming diversity; a group that has stopped
    has none). The log-probabilities and scores themselves stay the model's.
    The results of all groups are ranked together; groups may find the same.

    A row whose request has a width finds what a search of that width finds.
    With several groups the width is fixed.

    What the rules on lengths, prefix and repetition mean in detail stands in
    `keras_attn.search`.

    References:
        - [Wu et al., 2016](https://arxiv.org/abs/1609.08144), equation 14
        - [Vijayakumar et al., 2018](https://arxiv.org/abs/1610.02424),
          algorithm 1

    Example:

    >>> search = keras_attn.BeamSearch(5, num_hypotheses=3, length_penalty=1.0)
    >>> float(search.normalise(-6.0, length=13))  # 6 / ((5 + 13) / 6)
    -2.0
    """

    width: int = Integer(
        default=5,
        low=1,
        request=lambda search: search.groups == 1,
        at_most_own=True,
        meaning="is the number of beams",
        doc="Number of beginnings kept, the beams.",
    )
    num_hypotheses: int = Integer(
        default=1,
        low=1,
        high="width",
        advice="A wider search finds more.",
        doc="Number of results a source, at most `width`.",
    )
    length_penalty: float = Real(
        default=0.0,
        low=0,
        request=True,
        advice=("0 ranks by log-probability, more favours longer hypotheses."),
        doc="The exponent `alpha` of the penalty, at least 0.",
    )
    penalty: str = Choice(
        "gnmt",
        "power",
        default="gnmt",
        doc='`"gnmt"` or `"power"`, the formula of the penalty.',
    )
    early_stopping: bool | str = Choice(
        True, False, "never", default=False, doc='`True`, `False` or `"never"`.'
    )
    coverage_penalty: float = Real(
        default=0.0,
        low=0,
        request=True,
        advice=(
            "0 leaves coverage alone, 0.2 is about what Wu et al. (2016) found."
        ),
        doc="The weight `beta` of the coverage penalty, at least 0.",
        last=True,
    )
    groups: int = Integer(
        default=1, doc="Number of groups, which divides the width.", last=True
    )
    diversity: float = Real(
        default=0.0,
        doc=(
            "What a token costs a group for each beam before that has it. "
            "Above 0 with several groups, else 0."
        ),
        last=True,
    )

    streams = False  # a beam search knows no token until it knows the last

    def check(self):
        if self.groups < 1 or self.width % self.groups:
            raise ValueError(
                "`groups` must divide the width, so that all have as many "
                f"beams. Received: groups={self.groups!r}, "
                f"width={self.width!r}"
            )
        if (self.diversity > 0) != (self.groups > 1) or self.diversity < 0:
            raise ValueError(
                "`diversity` is what a group pays for a token that groups "
                "before it took: above 0 with several groups, 0 with one. "
                f"Received: groups={self.groups!r}, "
                f"diversity={self.diversity!r}. Without it all groups would "
                "find the same."
            )

    def normalise(self, log_probability, length):
        """Returns the score of a hypothesis of this length."""
        return normalise(
            log_probability, length, self.penalty, self.length_penalty
        )

    def run(self, task: Task) -> "Groups":
        return Groups(self, task)


class Frontier(NamedTuple):
    """The beams of all groups after a number of tokens."""

    time: Any
    groups: tuple  # of `Group`

    @property
    def last(self):
        """The last token of each beam, `(B, K)`."""
        return _joined([group.last for group in self.groups])

    @property
    def done(self):
        """Whether each source is done, for each group."""
        return _joined([group.done for group in self.groups], axis=0)


class Groups:
    """One run of a beam search over a task: all its groups of beams.

    Args:
        search: The `BeamSearch`.
        task: The `Task`.

    Attributes:
        beams: How many hypotheses of a source the model steps.
        recorded: Dtypes of what each step leaves for `results()`.
    """

    recorded = (tf.float32,)  # alignments

    def __init__(self, search, task):
        self._search, self._task = search, task
        self._each = Beams(search, task)
        self.beams = search.width

    def first(self) -> Frontier:
        """The beams before the first token."""
        group = self._each.first(self._source_length())
        return Frontier(tf.constant(0), (group,) * self._search.groups)

    def advance(self, frontier: Frontier, logits, alignments) -> tuple:
        """Extends every beam by a token and keeps the best.

        Args:
            frontier: The beams so far.
            logits, alignments: What the model says after the last tokens.

        Returns:
            The beams then, those that they come from, `(batch, K)`, and the
            alignments `(batch, K, source)`.
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
        """Each group dislikes what those before it chose."""
        vocabulary, width = step.logits.shape[-1], self._each.width
        dislike, grown, parents = None, [], []
        for i, group in enumerate(groups):
            offset = i * width
            new, parent, chose = self._each.advance(
                group, step.of_beams(offset, width), offset, dislike
            )
            cost = tf.where(chose, self._search.diversity, 0.0)[..., None]
            cost *= tf.one_hot(new.last, vocabulary)
            cost = tf.reduce_sum(cost, axis=1)  # (B, V)
            dislike = cost if dislike is None else dislike + cost
            grown.append(new)
            parents.append(parent + offset)
        return tuple(grown), tf.concat(parents, axis=1)

    def results(self, frontier: Frontier, alignments) -> Hypotheses:
        """Returns the hypotheses, best first.

        Args:
            frontier: The beams at the end.
            alignments: Those of all steps, time first, by beam.
        """
        count, time = self._search.num_hypotheses, frontier.time
        if len(frontier.groups) == 1:
            (group,) = frontier.groups
            pool, finished = self._each.results(group, time, count)
        else:
            results = [
                self._each.results(group, time, self._each.width)
                for group in frontier.groups
            ]
            pools, finished = zip(*results, strict=True)
            pool, finished = merged(pools, finished, count)
        exists = pool.scores > POSSIBLE
        lengths = tf.where(exists, pool.lengths, 0)
        real = tf.sequence_mask(lengths, self._search.max_length)
        # (T, B, K, S) -> (B, T, K, S), then the slot of each step
        attended = tf.transpose(alignments, [1, 0, 2, 3])
        attended = tf.gather(
            attended, tf.transpose(pool.slots, [0, 2, 1]), batch_dims=2
        )
        return Hypotheses(
            tokens=tf.where(real, pool.tokens, 0),
            lengths=lengths,
            scores=tf.where(exists, pool.scores, float("-inf")),
            finished=finished,
            alignments=zero_past(tf.transpose(attended, [0, 2, 1, 3]), lengths),
        )

    def _source_length(self):
        """How many positions alignments are over, where somebody asks."""
        task = self._task
        if not self._each.covers:
            return None
        if task.source_mask is not None:
            return tf.shape(task.source_mask)[1]
        # Only a step tells. A graph that knows its shapes leaves it out.
        tokens = tf.fill([task.batch, self.beams], task.start_token)
        _, alignments, _ = task.step(tokens, task.start(self.beams))
        return tf.shape(alignments)[-1]


def _joined(tensors, axis=1):
    return tensors[0] if len(tensors) == 1 else tf.concat(tensors, axis)
