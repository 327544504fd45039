"""The step of a model for clients that search themselves.

What a model encodes and what it carries are structures; at the border of a
signature they are flat, tensors by name.
"""

import tensorflow as tf

from keras_attn.structures import flatten
from keras_attn.structures import pack
from keras_attn.text import END
from keras_attn.text import PAD
from keras_attn.text import START


class Steps:
    """The functions behind `encode`, `step` and `strings`.

    `encode` must be traced before `step`, which takes what that gives.

    Args:
        graph: `Graph` of a translator.
    """

    def __init__(self, graph):
        self.graph = graph
        self._encoded = self._state = None  # structures, of symbolic tensors

    def specs(self, name) -> tuple[tf.TensorSpec, ...]:
        """The inputs of `step` and of `strings`."""
        if name == "strings":
            return (tf.TensorSpec([None, None], tf.int32, name="ids"),)
        # The first axes of a state are batch and beams, however many.
        return (
            tf.TensorSpec([None, None], tf.int32, name="tokens"),
            *(
                tf.TensorSpec([None, None, *x.shape[2:]], x.dtype, name)
                for name, x in _named("state", self._state).items()
            ),
            *(
                tf.TensorSpec([None, *x.shape[1:]], x.dtype, name)
                for name, x in _named("encoded", self._encoded).items()
            ),
        )

    def encode(self, *given):
        graph = self.graph
        inputs = graph.sources.inputs(given)
        with graph.scope():
            encoded = graph.cut.encode(*inputs)
            state = graph.cut.start(encoded, 1, graph.search.max_length)
            width = graph.width(inputs, encoded)
        self._encoded, self._state = encoded, state
        columns = graph.columns(inputs, encoded, width)
        tokens, lengths = graph.sources.tokens(given, columns, width)
        return {
            "source_tokens": tokens,
            "source_length": lengths,
            "tokens": tf.fill([tf.shape(inputs[0])[0], 1], START),
            **_named("state", state),
            **_named("encoded", encoded),
        }

    def step(self, tokens, *tensors):
        states = len(_named("state", self._state))
        state = pack(self._state, tensors[:states])
        encoded = pack(self._encoded, tensors[states:])
        with self.graph.scope():
            logits, alignments, state = self.graph.step(tokens, state, encoded)
        logp = tf.nn.log_softmax(tf.cast(logits, tf.float32))
        never = [PAD, START, *self.graph.forbidden]
        never = tf.reduce_any(
            tf.one_hot(never, logp.shape[-1], True, False), axis=0
        )
        return {
            "log_probabilities": tf.where(never, float("-inf"), logp),
            "alignments": alignments,
            **_named("state", state),
        }

    def strings(self, ids):
        # What follows the end token was never meant.
        ended = tf.cumsum(tf.cast(ids == END, tf.int32), axis=1) > 0
        ids = tf.where(ended, PAD, ids)
        return {"text": self.graph.target_text.strings(ids)}


def _named(name, structure):
    """The tensors of a structure: `name_0`, `name_1` and so on."""
    return {f"{name}_{i}": x for i, x in enumerate(flatten(structure))}
