"""One group of beams, and a step of beam search over it."""

from typing import Any
from typing import NamedTuple

import tensorflow as tf

from keras_attn.decoding.banks import Extensions
from keras_attn.decoding.banks import by_tokens
from keras_attn.decoding.banks import likeliest_of_each
from keras_attn.decoding.candidates import extend
from keras_attn.decoding.hypotheses import IMPOSSIBLE
from keras_attn.decoding.hypotheses import NEVER
from keras_attn.decoding.hypotheses import POSSIBLE
from keras_attn.decoding.hypotheses import append
from keras_attn.decoding.hypotheses import gather
from keras_attn.decoding.options import is_fixed
from keras_attn.decoding.pool import Pool
from keras_attn.decoding.pool import best
from keras_attn.decoding.pool import empty_pool
from keras_attn.decoding.pool import join
from keras_attn.decoding.pool import normalize
from keras_attn.decoding.pool import ranked

UNATTENDED = 1e-6  # the smallest coverage, so that its logarithm is finite


class Group(NamedTuple):
    """Beams, best first, and the pool of hypotheses that have ended."""

    last: Any  # (B, K)
    logp: Any  # (B, K), without penalties; `IMPOSSIBLE` for missing beams
    done: Any  # (B,)
    tokens: Any  # (B, K, T)
    beam_ids: Any  # (B, K, T): the beam, of all groups, whose step made a token
    lengths: Any  # (B,), of the beams; None if all equal the time
    coverage: Any  # (B, K, S), attention so far, or None without a penalty
    rules: tuple  # the state of each rule
    pool: Pool


class Beams:
    """The operations on one group of beams in a run of a search.

    Args:
        run: The `Run`.
    """

    def __init__(self, run):
        self.search = search = run.search
        self.search_input = given = run.search_input
        self.num_beams = search.num_beams // search.groups
        self.limits, self.rules = run.limits, run.rules
        self.alpha = search.option("length_penalty", given)
        self.beta = search.option("coverage_penalty", given)
        self.covers = not (is_fixed(self.beta) and self.beta == 0)
        # (B,), or None if all rows have the same number
        num_beams = search.option("num_beams", given)
        self.beams_of_rows = None if is_fixed(num_beams) else num_beams
        self.stops_apart = (
            self.rules.may_exhaust
            or not is_fixed(self.limits.longest)
            or search.cut != "last"  # needs the time at which a row was done
        )

    def first(self, source):
        """Returns the group before the first step.

        Args:
            source: Number of source positions, or None without coverage.
        """
        batch, num_beams = self.search_input.batch, self.num_beams
        empty = empty_pool(batch, num_beams, self.search.max_length)
        # One beam at first: the others would be copies of it.
        alive = tf.one_hot(0, num_beams, 0.0, IMPOSSIBLE)
        return Group(
            last=self.search_input.first_tokens(num_beams),
            logp=tf.tile(alive[None], [batch, 1]),
            done=tf.zeros([batch], tf.bool),
            tokens=empty.tokens,
            beam_ids=empty.beam_ids,
            lengths=tf.zeros([batch], tf.int32) if self.stops_apart else None,
            coverage=(
                tf.zeros([batch, num_beams, source]) if self.covers else None
            ),
            rules=self.rules.start(batch, num_beams),
            pool=empty,
        )

    def advance(
        self, group, time, ruled, alignments, offset=0, diversity_penalty=None
    ):
        """Extends every beam and keeps the best.

        Args:
            group: The `Group`.
            time: Number of tokens so far.
            ruled: The group's logits after the rules, `Ruled`.
            alignments: The group's alignments at this step, `(B, K, S)`.
            offset: Number of beams in the earlier groups.
            diversity_penalty: Costs of tokens `(B, V)`, which change the
                candidates' rank but not their log-probabilities; or None.

        Returns:
            The group with one more token; the index of each beam's parent
            within the group, `(B, K)`; and whether each beam chose a token,
            `(B, K)`, False for sources that are done.
        """
        num_beams = self.num_beams
        value, logp, parents, tokens = self._candidates(
            group, time, ruled, diversity_penalty
        )
        # Only possible candidates among the first `num_beams` may end. This is
        # a mask, not a slice, since XLA compiles the slice of a `top_k` into a
        # full sort, which is ten times slower.
        is_end = tokens == self.search_input.end_token
        first = self._within_beams(tokens.shape[1])
        ends = is_end & first & (logp > POSSIBLE)
        beam_ids = parents + offset if offset else parents
        coverage = penalty = None
        if self.covers:
            coverage = group.coverage + alignments
            penalty = self._coverage_penalty(coverage)
        pool = self._pool_up(
            group, logp, parents, tokens, beam_ids, ends, penalty, time
        )

        # The best `num_beams` candidates that do not end are the next beams.
        going, chosen = tf.math.top_k(tf.where(is_end, NEVER, value), num_beams)
        if diversity_penalty is not None or self.rules.steer:
            there = going > POSSIBLE
            going = tf.gather(logp, chosen, batch_dims=1)
            going = tf.where(there, going, IMPOSSIBLE)
        going = tf.maximum(going, IMPOSSIBLE)
        if self.beams_of_rows is not None:
            going = tf.where(self._within_beams(num_beams), going, IMPOSSIBLE)
        if self.rules.steer:  # so far the order is that of the banks
            going, best = tf.math.top_k(going, num_beams)
            chosen = tf.gather(chosen, best, batch_dims=1)
        parents, tokens = gather((parents, tokens), chosen)
        beam_ids = (
            tf.gather(beam_ids, chosen, batch_dims=1) if offset else parents
        )
        chose = (going > POSSIBLE) & tf.logical_not(group.done)[:, None]
        grown = Group(
            last=tokens,
            logp=going,
            done=group.done | self._stops(going, pool, time + 1),
            tokens=append(group.tokens, parents, tokens, time),
            beam_ids=append(group.beam_ids, parents, beam_ids, time),
            lengths=None,
            coverage=gather(coverage, parents),
            rules=self.rules.update(tokens, group.rules, parents),
            pool=pool,
        )
        if self.stops_apart:
            possible = tf.reduce_any(logp > POSSIBLE, axis=1)
            grown = self._stop_rows(group, grown, possible, time + 1)
        return grown, parents, chose

    def _candidates(self, group, time, ruled, diversity_penalty):
        """Finds the best `C` extensions of a group's beams.

        Returns:
            The values that rank them, their log-probabilities, the beams
            they extend and the tokens they add, each `(B, C)`.
        """
        allowed = ruled.allowed
        if diversity_penalty is not None:
            allowed = ruled.logits if allowed is None else allowed
            allowed -= diversity_penalty[:, None]
        count = min(2, ruled.logits.shape[-1] or 2) * self.num_beams
        found = Extensions(
            *extend(ruled.logits, group.logp, count, ruled.penalties, allowed)
        )
        if self.rules.steer:
            ruled = ruled._replace(allowed=allowed)
            found = self._by_banks(group, time, ruled, found, count)
        value, parents, tokens = found
        logp = value
        if diversity_penalty is not None:
            logp = value + tf.gather(diversity_penalty, tokens, batch_dims=1)
        if self.rules.steer:  # the candidates are ranked by their order
            order = -tf.range(count, dtype=tf.float32)
            value = tf.where(value > POSSIBLE, order, NEVER)
        return value, logp, parents, tokens

    def _by_banks(self, group, time, ruled, found, count):
        """Returns the first `count` extensions by banks.

        Args:
            group: The `Group`.
            time: Number of tokens so far.
            ruled: The group's logits after the rules, `Ruled`.
            found: The best `Extensions` of all its beams.
            count: Number of these extensions.
        """
        if self.beams_of_rows is not None:  # as many as in a smaller search
            most = 2 * self.beams_of_rows[:, None]
            value = tf.where(tf.range(count) < most, found.value, NEVER)
            found = found._replace(value=value)
        following = self.rules.following(group.rules)
        end = tf.fill(tf.shape(following[..., :1]), self.search_input.end_token)
        following = tf.concat([following, end], axis=-1)
        found = found.beside(
            likeliest_of_each(ruled, group.logp),
            by_tokens(ruled, group.logp, following),
        ).without_repeats()
        lacking = self.rules.lacking_after(
            found.tokens, group.rules, found.parents
        )
        left = _by_row(self.limits.longest) - time - 1
        return found.by_banks(lacking, left, count)

    def _within_beams(self, count):
        """Returns whether each of `count` ranks is below the row's beam count.

        The shape is `(B, count)`, or `(1, count)` if all rows have the same
        number of beams.
        """
        if self.beams_of_rows is None:
            return (tf.range(count) < self.num_beams)[None]
        return tf.range(count) < self.beams_of_rows[:, None]

    def _coverage_penalty(self, coverage):
        """Returns `beta * sum(log(min(coverage, 1)))`, of shape `(B, K)`."""
        logs = tf.math.log(tf.clip_by_value(coverage, UNATTENDED, 1.0))
        mask = self.search_input.source_mask
        if mask is not None:
            logs = tf.where(mask[:, None], logs, 0.0)
        return _by_row(self.beta) * tf.reduce_sum(logs, axis=-1)

    def _pool_up(
        self, group, logp, parents, tokens, beam_ids, ends, penalty, time
    ):
        """Merges the candidates that ended into the pool."""
        length = time + 1
        scores = self.normalize(logp, length)
        if penalty is not None:
            scores += tf.gather(penalty, parents, batch_dims=1)
        accepted = ends & tf.logical_not(group.done)[:, None]
        scores = tf.where(accepted, scores, IMPOSSIBLE)
        ended = Pool(
            scores=scores,
            lengths=tf.fill(tf.shape(scores), length),
            tokens=append(group.tokens, parents, tokens, time),
            beam_ids=append(group.beam_ids, parents, beam_ids, time),
        )
        return best(join(group.pool, ended), self.num_beams)

    def _stops(self, logp, pool, length):
        """Returns whether each source stops, `(B,)`."""
        top = logp[:, 0]
        if self.search.groups > 1:  # diversity changed the beams' order
            top = tf.reduce_max(logp, axis=1)
        # Log-probabilities only fall, and the coverage penalty is never
        # positive. So no beam can exceed the score of its present
        # log-probability at the longest length.
        reachable = self.normalize(top, self.limits.longest)
        worst = self._scores_at(pool, self.num_beams)
        stops = worst > POSSIBLE  # the pool is full
        if self.search.early_stopping == "never":
            stops &= worst >= reachable
        elif not self.search.early_stopping:
            stops &= worst >= self.normalize(top, length)
        if self.search.groups > 1:  # later groups depend on when this one stops
            return stops
        last = self._scores_at(pool, self.search.num_hypotheses)
        return stops | ((last > POSSIBLE) & (last >= reachable))

    def _scores_at(self, pool, rank):
        """Returns the score of the hypothesis at this rank, `(B,)`.

        In a row with fewer beams it is that of the row's last hypothesis.
        """
        if self.beams_of_rows is None:
            return pool.scores[:, rank - 1]
        rank = tf.minimum(self.beams_of_rows, rank)
        return tf.gather(pool.scores, rank - 1, batch_dims=1)

    def _stop_rows(self, group, grown, possible, time):
        """Keeps the old state of rows that are done or cannot continue."""
        stays = group.done | tf.logical_not(possible)

        def keep(old, new):
            if old is None:
                return None
            axes = [1] * (len(old.shape) - 1)
            where = tf.reshape(stays, tf.concat([tf.shape(stays), axes], 0))
            return tf.where(where, old, new)

        kept = {
            name: keep(getattr(group, name), getattr(grown, name))
            for name in ("logp", "tokens", "beam_ids", "coverage")
        }
        done = stays | grown.done | (grown.logp[:, 0] <= POSSIBLE)
        if not is_fixed(self.limits.longest):
            done |= time >= self.limits.longest
        lengths = tf.where(stays, group.lengths, time)
        return grown._replace(done=done, lengths=lengths, **kept)

    def normalize(self, logp, length):
        """Returns the scores of hypotheses `(B, K)` or `(B,)` by length."""
        alpha = self.alpha
        if not is_fixed(alpha) and len(logp.shape) == 2:
            alpha = alpha[:, None]
        counted = length + self.search.length_offset
        return normalize(logp, counted, self.search.penalty, alpha)

    def results(self, group, time, count):
        """Returns finished hypotheses, best first, then those cut."""
        cut = group.logp > POSSIBLE
        lengths = tf.fill(tf.shape(cut), time)
        if group.lengths is not None:
            lengths = tf.zeros_like(lengths) + group.lengths[:, None]
            cut &= lengths > 0
        scores = self.normalize(group.logp, tf.maximum(lengths, 1))
        if self.covers:
            scores += self._coverage_penalty(group.coverage)
        cut = Pool(
            scores=tf.where(cut, scores, IMPOSSIBLE),
            lengths=lengths,
            tokens=group.tokens,
            beam_ids=group.beam_ids,
        )
        if self.covers or self.search.groups > 1:  # not sorted by score yet
            cut = best(cut, self.num_beams)
        late = None
        if self.search.cut == "by_score":
            late = group.lengths[:, None] >= _by_row(self.limits.longest)
        wanted = 2 * self.num_beams if self.rules.steer else count
        pool, finished = ranked(group.pool, cut, wanted, late)
        pool, finished = self.lacking_least(pool, finished, count)
        if self.beams_of_rows is None:
            return pool, finished
        within = self._within_beams(count)
        scores = tf.where(within, pool.scores, IMPOSSIBLE)
        return pool._replace(scores=scores), finished & within

    def lacking_least(self, pool, finished, count):
        """Returns `count` hypotheses, those that lack the fewest tokens first.

        Without rules that steer, the pool is returned unchanged.
        """
        if not self.rules.steer:
            return pool, finished
        lacking = self.rules.lacking_in(pool.tokens, pool.lengths)
        there = pool.scores > POSSIBLE
        _, index = tf.math.top_k(-tf.where(there, lacking, tf.int32.max), count)
        return gather((pool, finished), index)


def _by_row(option):
    return option if is_fixed(option) else option[:, None]
