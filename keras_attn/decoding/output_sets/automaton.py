"""`Automaton`: a table of the tokens that may follow in each state."""

import numpy as np
import tensorflow as tf

from keras_attn.decoding.hypotheses import NEVER


class Automaton:
    """States and the edges between them; each edge is labelled with a token.

    State 0 is the first one. A hypothesis whose token has no edge moves to a
    state without edges and stays there. The tables are variables instead of
    graph constants, since they may have millions of edges.

    Args:
        sources, tokens, targets: For each edge, the state that it leaves, its
            token and the state that it enters; integers `(edges,)`. The target
            `states` is an additional state without edges.
        states: Number of states.

    Attributes:
        variables: The tables.
        edges: Number of edges.
    """

    def __init__(self, sources, tokens, targets, states: int):
        order = np.lexsort((tokens, sources))
        counts = np.bincount(sources, minlength=states)
        # One more state, which has no edges.
        firsts = np.concatenate([[0], np.cumsum(counts), [len(order)]])
        self.edges, self._dead = len(order), states
        self._most = int(counts.max(initial=1))
        with tf.init_scope():
            self._firsts, self._tokens, self._targets = self.variables = [
                tf.Variable(x.astype("int32"), trainable=False)
                for x in (firsts, tokens[order], targets[order])
            ]

    def start(self, batch, beams) -> tf.Tensor:
        """Returns the first state of each hypothesis, `(batch, beams)`."""
        return tf.zeros([batch, beams], tf.int32)

    def allowed(self, logits, state, fixed_shapes=False) -> tf.Tensor:
        """Returns logits with all tokens forbidden that have no edge.

        Args:
            logits: float32 `(batch, N, vocabulary)`.
            state: States `(batch, N)`.
            fixed_shapes: Whether XLA compiles this. The edges of each state
                are then padded to the largest number of any state.
        """
        first, count = self._edges_of(state)
        most = self._most if fixed_shapes else tf.reduce_max(count)
        number = tf.range(most)
        edge = tf.minimum(first[..., None] + number, self.edges - 1)
        token = tf.gather(self._tokens, edge)
        batch, beams, size = tf.unstack(tf.shape(logits))
        total = batch * beams * size
        row = tf.reshape(tf.range(batch * beams) * size, [batch, beams, 1])
        # Padding past a state's edges is written to an extra place.
        place = tf.where(number < count[..., None], row + token, total)
        place = tf.reshape(place, [-1, 1])
        marks = tf.ones(tf.shape(place)[:1], logits.dtype)
        marks = tf.scatter_nd(place, marks, [total + 1])[:-1]
        return logits + NEVER * (1 - tf.reshape(marks, tf.shape(logits)))

    def after(self, tokens, state) -> tf.Tensor:
        """Returns the states after these tokens, `(batch, N)`."""
        first, count = self._edges_of(state)
        last = first + count
        low, high = first, last
        for _ in range(self._most.bit_length()):  # a binary search
            middle = (low + high) // 2
            less = self._token(middle) < tokens
            more = low < high
            low = tf.where(more & less, middle + 1, low)
            high = tf.where(more & ~less, middle, high)
        found = (low < last) & (self._token(low) == tokens)
        target = tf.gather(self._targets, tf.minimum(low, self.edges - 1))
        return tf.where(found, target, self._dead)

    def _edges_of(self, state):
        """Returns the index of each state's first edge and its edge count."""
        first = tf.gather(self._firsts, state)
        return first, tf.gather(self._firsts, state + 1) - first

    def _token(self, edge):
        return tf.gather(self._tokens, tf.minimum(edge, self.edges - 1))


def steps_to_end(sources, targets, states: int) -> np.ndarray:
    """Returns the fewest tokens from each state to the end, -1 if unreachable.

    Args:
        sources, targets: As for an `Automaton`; the end is the state
            `states`.
        states: Number of states.
    """
    order = np.argsort(targets, kind="stable")
    firsts = np.searchsorted(targets[order], np.arange(states + 2))
    found = np.full(states + 1, -1)
    found[states], front, steps = 0, np.array([states]), 0
    while len(front):
        counts = firsts[front + 1] - firsts[front]
        skipped = np.cumsum(counts) - counts
        places = np.arange(counts.sum()) + np.repeat(
            firsts[front] - skipped, counts
        )
        before = np.unique(sources[order[places]])
        front, steps = before[found[before] < 0], steps + 1
        found[front] = steps
    return found
