"""Beam search with a pool of finished hypotheses beside the beams."""

import dataclasses
from typing import Any
from typing import NamedTuple

import tensorflow as tf

from keras_attn.search.group import Beams
from keras_attn.search.group import Step
from keras_attn.search.options import Range
from keras_attn.search.options import check_common
from keras_attn.search.options import check_ranges
from keras_attn.search.options import require_integers
from keras_attn.search.options import require_number
from keras_attn.search.pool import merged
from keras_attn.search.pool import normalise
from keras_attn.search.task import POSSIBLE
from keras_attn.search.task import Hypotheses
from keras_attn.search.task import Task
from keras_attn.search.task import loop
from keras_attn.search.task import zero_past


@dataclasses.dataclass(frozen=True)
class BeamSearch:
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

    What the rules on lengths, prefix and repetition mean in detail stands in
    `keras_attn.search`.

    Args:
        width: Number of beginnings kept, the beams.
        num_hypotheses: Number of results a source, at most `width`.
        length_penalty: The exponent `alpha` of the penalty, at least 0.
        penalty: `"gnmt"` or `"power"`, the formula of the penalty.
        early_stopping: `True`, `False` or `"never"`.
        max_length: Longest output in tokens, the end token counted.
        min_length: Fewest tokens, the end token counted.
        max_per_source: `(a, b)`: at most `a * source + b` tokens, rounded
            down, where that is less than `max_length`.
        min_per_source: `(a, b)`: at least `a * source + b` tokens, rounded
            down, where that is more than `min_length`.
        no_repeat_ngram: No n-gram of so many tokens comes twice. 0 lets all.
        repetition_penalty: Makes tokens less likely that came already, if
            greater than 1.
        coverage_penalty: The weight `beta` of the coverage penalty, at
            least 0.
        groups: Number of groups, which divides the width.
        diversity: What a token costs a group for each beam before that has
            it. Above 0 with several groups, else 0.

    Request options: `width`, at most the search's own and not with several
    groups, `length_penalty`, `coverage_penalty`, `max_length` and
    `min_length`. A row with a width finds what a search of that width finds.

    References:
        - [Wu et al., 2016](https://arxiv.org/abs/1609.08144), equation 14
        - [Vijayakumar et al., 2018](https://arxiv.org/abs/1610.02424),
          algorithm 1

    Example:

    >>> search = keras_attn.BeamSearch(5, num_hypotheses=3, length_penalty=1.0)
    >>> float(search.normalise(-6.0, length=13))  # 6 / ((5 + 13) / 6)
    -2.0
    """

    width: int = 5
    num_hypotheses: int = 1
    length_penalty: float = 0.0
    penalty: str = "gnmt"
    early_stopping: bool | str = False
    max_length: int = 100
    min_length: int = 1
    max_per_source: tuple | None = None
    min_per_source: tuple | None = None
    no_repeat_ngram: int = 0
    repetition_penalty: float = 1.0
    coverage_penalty: float = 0.0
    groups: int = 1
    diversity: float = 0.0

    def __post_init__(self):
        check_common(self)
        require_integers(self, "width", "num_hypotheses", "groups")
        if self.width < 1:
            raise ValueError(
                "`width` is the number of beams, at least 1. Received: "
                f"width={self.width!r}"
            )
        if not 1 <= self.num_hypotheses <= self.width:
            raise ValueError(
                "`num_hypotheses` must be between 1 and the width. Received: "
                f"num_hypotheses={self.num_hypotheses!r}, "
                f"width={self.width!r}. A wider search finds more."
            )
        if not self.length_penalty >= 0:
            raise ValueError(
                "`length_penalty` must be at least 0. Received: "
                f"length_penalty={self.length_penalty!r}. 0 ranks by "
                "log-probability, more favours longer hypotheses."
            )
        if self.penalty not in ("gnmt", "power"):
            raise ValueError(
                '`penalty` must be "gnmt" or "power". Received: '
                f"penalty={self.penalty!r}"
            )
        stopping = self.early_stopping
        if not (isinstance(stopping, bool) or stopping == "never"):
            raise ValueError(
                '`early_stopping` must be True, False or "never". Received: '
                f"early_stopping={self.early_stopping!r}"
            )
        for name in ("length_penalty", "coverage_penalty", "diversity"):
            require_number(self, name)
        if self.coverage_penalty < 0:
            raise ValueError(
                "`coverage_penalty` must be at least 0. Received: "
                f"coverage_penalty={self.coverage_penalty!r}. 0 leaves "
                "coverage alone, 0.2 is about what Wu et al. (2016) found."
            )
        self._check_groups()

    def _check_groups(self):
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

    @property
    def request_options(self):
        """Options that a `Task` may hold for every row, and their dtypes."""
        options = {
            "width": tf.int32,
            "length_penalty": tf.float32,
            "coverage_penalty": tf.float32,
            "max_length": tf.int32,
            "min_length": tf.int32,
        }
        if self.groups > 1:
            del options["width"]
        return options

    @property
    def option_ranges(self):
        """The range of each option of a request."""
        return {
            "width": Range(1, self.width),
            "length_penalty": Range(0),
            "coverage_penalty": Range(0),
            "max_length": Range(1, self.max_length),
            "min_length": Range(1, self.max_length),
        }

    def check_options(self, options):
        """Returns the options as tensors that fail where out of range."""
        return check_ranges(self, options)

    def normalise(self, log_probability, length):
        """Returns the score of a hypothesis of this length."""
        return normalise(
            log_probability, length, self.penalty, self.length_penalty
        )

    def __call__(self, task: Task) -> Hypotheses:
        """Decodes, inside a `tf.function` or eagerly."""
        beams = Beams(self, task)
        first = task.start(self.width)
        group = beams.first(_source_length(beams, task, first))
        state = loop(
            lambda state: tf.logical_not(
                tf.reduce_all(_joined([x.done for x in state.groups], axis=0))
            ),
            lambda state: self._advance(beams, state),
            _State(
                time=tf.constant(0),
                groups=(group,) * self.groups,
                model=first,
                alignments=tf.TensorArray(tf.float32, self.max_length),
            ),
            self.max_length,
        )
        return self._collect(beams, state)

    def _advance(self, beams, state):
        time, groups = state.time, state.groups
        tokens = _joined([group.last for group in groups])
        raw, alignments, model = beams.task.step(tokens, state.model)
        raw = tf.cast(raw, tf.float32)
        history = None
        if beams.rules.need_history:
            history = _joined([group.tokens for group in groups])
        logits, allowed = beams.rules.apply(raw, history, time)
        step = Step(time, raw, logits, allowed, alignments)
        if self.groups == 1:
            group, parents, _ = beams.advance(groups[0], step)
            grown = (group,)
        else:
            grown, parents = self._advance_groups(beams, groups, step)
        return _State(
            time=time + 1,
            groups=grown,
            model=beams.task.reorder(model, parents),
            alignments=state.alignments.write(time, alignments),
        )

    def _advance_groups(self, beams, groups, step):
        """One group after the other: each dislikes what those before chose."""
        vocabulary = step.logits.shape[-1]
        dislike, grown, parents = None, [], []
        for i, group in enumerate(groups):
            offset = i * beams.width
            own = Step(
                step.time,
                *(
                    None if x is None else x[:, offset : offset + beams.width]
                    for x in step[1:]
                ),
            )
            new, parent, chose = beams.advance(group, own, offset, dislike)
            cost = tf.where(chose, self.diversity, 0.0)[..., None]
            cost *= tf.one_hot(new.last, vocabulary)
            cost = tf.reduce_sum(cost, axis=1)  # (B, V)
            dislike = cost if dislike is None else dislike + cost
            grown.append(new)
            parents.append(parent + offset)
        return tuple(grown), tf.concat(parents, axis=1)

    def _collect(self, beams, state):
        if self.groups == 1:
            (group,) = state.groups
            pool, finished = beams.results(
                group, state.time, self.num_hypotheses
            )
        else:
            results = [
                beams.results(group, state.time, beams.width)
                for group in state.groups
            ]
            pools, finished = zip(*results, strict=True)
            pool, finished = merged(pools, finished, self.num_hypotheses)
        exists = pool.scores > POSSIBLE
        lengths = tf.where(exists, pool.lengths, 0)
        real = tf.sequence_mask(lengths, self.max_length)
        # (T, B, K, S) -> (B, T, K, S), then the slot of each step
        attended = tf.transpose(state.alignments.stack(), [1, 0, 2, 3])
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


class _State(NamedTuple):
    time: Any
    groups: tuple  # of `Group`
    model: Any
    alignments: Any  # TensorArray of T x (B, K, S), by beam


def _joined(tensors, axis=1):
    return tensors[0] if len(tensors) == 1 else tf.concat(tensors, axis)


def _source_length(beams, task, state):
    """How many positions alignments are over, where somebody asks."""
    if not beams.covers:
        return None
    if task.source_mask is not None:
        return tf.shape(task.source_mask)[1]
    # Only a step tells. A graph that knows its shapes leaves it out.
    tokens = tf.fill([task.batch, beams.search.width], task.start_token)
    _, alignments, _ = task.step(tokens, state)
    return tf.shape(alignments)[-1]
