"""Plain Keras 3: what a careful user writes by hand, without our library.

The step is a cell that `keras.layers.RNN` unrolls in training. Since Keras 3
cannot hand a cell constants, the memory is put on the cell before the loop.
Decoding is a `tf.while_loop` over that cell, beams as tiled rows. The variant
"unroll" trains with the loop unrolled.
"""

import keras
import tensorflow as tf
import workloads
from workloads import END
from workloads import PAD
from workloads import START

layers = keras.layers


class AttentionCell(layers.Layer):
    """One step of the decoder. Its states: those of the cell, then `a`."""

    def __init__(self, workload, **kwargs):
        super().__init__(**kwargs)
        units = workload.units
        lstm = workload.cell == "lstm"
        self.cell = (layers.LSTMCell if lstm else layers.GRUCell)(units)
        self.query = layers.Dense(workload.attention, use_bias=False)
        self.score = layers.Dense(1, use_bias=False)
        self.vector = layers.Dense(units, activation="tanh", use_bias=False)
        self.state_size = [units] * (3 if lstm else 2)
        self.output_size = units

    def build(self, input_shape):
        batch, embedding = input_shape
        self.cell.build((batch, embedding + self.output_size))
        self.query.build((batch, self.output_size))
        self.score.build((batch, None, self.query.units))
        self.vector.build((batch, 2 * self.output_size))

    def call(self, inputs, states):
        *states, vector = states
        state, states = self.cell(tf.concat([inputs, vector], -1), states)
        hidden = tf.tanh(self.query(state)[:, None] + self.keys)
        scores = tf.squeeze(self.score(hidden), -1)
        scores = tf.where(self.mask, scores, -1e9)
        context = tf.einsum("bs,bsd->bd", tf.nn.softmax(scores), self.memory)
        vector = self.vector(tf.concat([state, context], -1))
        return vector, [*states, vector]


class Net(keras.Model):
    def __init__(self, workload, unroll=False):
        super().__init__()
        lstm = workload.cell == "lstm"
        half = (layers.LSTM if lstm else layers.GRU)(
            workload.encoder, return_sequences=True, return_state=True
        )
        self.source_embedding = layers.Embedding(
            workload.source_size, workload.embedding
        )
        self.target_embedding = layers.Embedding(
            workload.target_size, workload.embedding
        )
        self.encoder = layers.Bidirectional(half)
        self.keys = layers.Dense(workload.attention, use_bias=False)
        self.cell = AttentionCell(workload)
        self.decoder = layers.RNN(
            self.cell, return_sequences=True, unroll=unroll
        )
        self.output_layer = layers.Dense(workload.target_size)

    def encode(self, source):
        """The memory and all that is made of it once, and the first states."""
        mask = tf.not_equal(source, PAD)
        memory, *states = self.encoder(self.source_embedding(source), mask=mask)
        count = len(states) // 2
        states = [
            tf.concat([states[i], states[count + i]], -1) for i in range(count)
        ]
        states.append(tf.zeros_like(states[0]))
        return (memory, self.keys(memory), mask), states

    def call(self, inputs):
        source, target = inputs
        attended, states = self.encode(source)
        self.cell.memory, self.cell.keys, self.cell.mask = attended
        vectors = self.decoder(
            self.target_embedding(target),
            initial_state=states,
            mask=tf.not_equal(target, PAD),
        )
        return self.output_layer(vectors)

    def step(self, token, states, attended):
        self.cell.memory, self.cell.keys, self.cell.mask = attended
        vector, states = self.cell(self.target_embedding(token), states)
        return self.output_layer(vector), states

    def load(self, arrays):
        def cell(name):
            return [arrays[f"{name}/{part}"] for part in CELL]

        self.source_embedding.set_weights([arrays["source_embedding"]])
        self.target_embedding.set_weights([arrays["target_embedding"]])
        self.encoder.set_weights([*cell("forward"), *cell("backward")])
        self.keys.set_weights([arrays["memory_kernel"]])
        self.cell.cell.set_weights(cell("cell"))
        self.cell.query.set_weights([arrays["query_kernel"]])
        self.cell.score.set_weights([arrays["score_vector"][:, None]])
        self.cell.vector.set_weights([arrays["vector_kernel"]])
        self.output_layer.set_weights(
            [arrays["output_kernel"], arrays["output_bias"]]
        )


CELL = "kernel", "recurrent", "bias"


def sequence_loss(labels, logits):
    """Mean cross-entropy over the labels that are not padding."""
    labels = tf.cast(labels, tf.int32)
    weights = tf.cast(tf.not_equal(labels, PAD), logits.dtype)
    losses = tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
    return tf.reduce_sum(losses * weights) / tf.reduce_sum(weights)


class KerasPeer:
    """Base class of the peers on Keras 3: data, and a compiled train step."""

    kinds = ("train", "greedy", "beam")
    versions = {"tensorflow": tf.__version__, "keras": keras.__version__}

    def __init__(self, workload, threads):
        tf.config.threading.set_intra_op_parallelism_threads(threads)
        tf.config.threading.set_inter_op_parallelism_threads(threads)
        self.workload = workload
        self.arrays = workloads.weights(workload)

    def parameters(self):
        return self.net.count_params()

    def batch(self, size):
        return workloads.batch(self.workload, size)

    def train(self, size):
        source, target, labels = map(tf.constant, self.batch(size))
        return lambda: float(self.net.train_on_batch([source, target], labels))

    def decode(self, function, size):
        source = tf.constant(self.batch(size)[0])
        return lambda: [x.numpy() for x in function(source)]


class Peer(KerasPeer):
    def __init__(self, workload, threads, variant=""):
        super().__init__(workload, threads)
        self.net = Net(workload, unroll=variant == "unroll")
        source, target, _ = self.batch(2)
        self.net([source, target])
        self.net.load(self.arrays)
        self.net.compile("adam", loss=sequence_loss)
        if variant == "unroll":
            self.kinds = ("train",)

    def greedy(self, size):
        return self.decode(tf.function(self.greedy_search), size)

    def beam(self, size):
        return self.decode(tf.function(self.beam_search), size)

    def greedy_search(self, source):
        length, rows = self.workload.target_length, source.shape[0]
        attended, states = self.net.encode(source)

        def proceed(t, token, finished, ids, scores, states):
            return ~tf.reduce_all(finished)

        def body(t, token, finished, ids, scores, states):
            logits, states = self.net.step(token, states, attended)
            token = tf.argmax(logits, -1, output_type=tf.int32)
            steps = tf.gather(tf.nn.log_softmax(logits), token, batch_dims=1)
            scores += tf.where(finished, 0.0, steps)
            token = tf.where(finished, PAD, token)
            finished |= tf.equal(token, END)
            ids = ids.write(t, token)
            return t + 1, token, finished, ids, scores, states

        ids = tf.TensorArray(tf.int32, length, element_shape=[None])
        start = tf.fill([rows], START)
        finished = tf.zeros([rows], tf.bool)
        ids, scores = tf.while_loop(
            proceed,
            body,
            (0, start, finished, ids, tf.zeros([rows]), states),
            maximum_iterations=length,
        )[3:5]
        return tf.transpose(ids.stack()), scores

    def beam_search(self, source):
        width, length = self.workload.width, self.workload.target_length
        size, rows = self.workload.target_size, source.shape[0]
        attended, states = self.net.encode(source)
        attended, states = tf.nest.map_structure(
            lambda x: tf.repeat(x, width, 0), (attended, states)
        )
        # A finished hypothesis continues with END, at no cost.
        stay = tf.where(tf.range(size) == END, 0.0, -1e9)
        first = tf.where(tf.range(width) == 0, 0.0, -1e9)

        def proceed(t, token, finished, ids, scores, states):
            return ~tf.reduce_all(finished)

        def body(t, token, finished, ids, scores, states):
            logits, states = self.net.step(
                tf.reshape(token, [-1]), states, attended
            )
            steps = tf.nn.log_softmax(tf.reshape(logits, [rows, width, size]))
            steps = tf.where(finished[..., None], stay, steps)
            total = tf.reshape(scores[..., None] + steps, [rows, -1])
            scores, flat = tf.math.top_k(total, width)
            parent, token = flat // size, flat % size
            ids = tf.gather(ids, parent, batch_dims=1)
            ids = tf.where(tf.range(length) == t, token[..., None], ids)
            finished = tf.gather(finished, parent, batch_dims=1)
            finished |= tf.equal(token, END)
            row = tf.reshape(parent + width * tf.range(rows)[:, None], [-1])
            states = [tf.gather(x, row) for x in states]
            return t + 1, token, finished, ids, scores, states

        ids, scores = tf.while_loop(
            proceed,
            body,
            (
                0,
                tf.fill([rows, width], START),
                tf.zeros([rows, width], tf.bool),
                tf.zeros([rows, width, length], tf.int32),
                tf.tile(first[None], [rows, 1]),
                states,
            ),
            maximum_iterations=length,
        )[3:5]
        return ids, scores
