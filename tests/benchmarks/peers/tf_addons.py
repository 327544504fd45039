"""TensorFlow Addons' seq2seq (end of life), in an environment of its own.

`AttentionWrapper` around the cell, `BasicDecoder` and `BeamSearchDecoder`.
In training the output layer stands outside the loop, which is the faster
of the two usual ways.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import tensorflow as tf
import tensorflow_addons as tfa
import workloads
from workloads import END
from workloads import PAD
from workloads import START

layers, seq2seq = tf.keras.layers, tfa.seq2seq
NO_BIAS = {"use_bias": False}


class Net(tf.Module):
    def __init__(self, workload):
        super().__init__()
        w = self.workload = workload
        lstm = w.cell == "lstm"
        half = (layers.LSTM if lstm else layers.GRU)(
            w.encoder, return_sequences=True, return_state=True
        )
        cell = (layers.LSTMCell if lstm else layers.GRUCell)(w.units)
        self.source_embedding = layers.Embedding(w.source_size, w.embedding)
        self.target_embedding = layers.Embedding(w.target_size, w.embedding)
        self.encoder = layers.Bidirectional(half)
        self.attention = seq2seq.BahdanauAttention(w.attention)
        self.vector = layers.Dense(w.units, activation="tanh", **NO_BIAS)
        self.cell = seq2seq.AttentionWrapper(
            cell, self.attention, attention_layer=self.vector
        )
        self.output_layer = layers.Dense(w.target_size)
        sampler = seq2seq.TrainingSampler()
        self.decoder = seq2seq.BasicDecoder(self.cell, sampler)

    def encode(self, source):
        mask = tf.not_equal(source, PAD)
        memory, *states = self.encoder(self.source_embedding(source), mask=mask)
        count = len(states) // 2
        states = [
            tf.concat([states[i], states[count + i]], -1) for i in range(count)
        ]
        lengths = tf.reduce_sum(tf.cast(mask, tf.int32), -1)
        # Keras 2 cells want a bare tensor where there is one state only.
        return memory, lengths, states if count > 1 else states[0]

    def start(self, memory, lengths, states, width=1):
        """Gives the wrapper its memory; returns its first state."""
        if width > 1:
            memory, lengths, states = tf.nest.map_structure(
                lambda x: seq2seq.tile_batch(x, width),
                (memory, lengths, states),
            )
        self.attention.setup_memory(memory, memory_sequence_length=lengths)
        zero = self.cell.get_initial_state(
            batch_size=tf.shape(memory)[0], dtype=tf.float32
        )
        return zero.clone(cell_state=states)

    def __call__(self, source, target):
        state = self.start(*self.encode(source))
        lengths = tf.reduce_sum(tf.cast(target != PAD, tf.int32), -1)
        outputs, _, _ = self.decoder(
            self.target_embedding(target),
            initial_state=state,
            sequence_length=lengths,
        )
        return self.output_layer(outputs.rnn_output)

    def load(self, arrays):
        def cell(name):
            parts = "kernel", "recurrent", "bias"
            return [arrays[f"{name}/{part}"] for part in parts]

        self.source_embedding.set_weights([arrays["source_embedding"]])
        self.target_embedding.set_weights([arrays["target_embedding"]])
        self.encoder.set_weights([*cell("forward"), *cell("backward")])
        self.attention.memory_layer.set_weights([arrays["memory_kernel"]])
        self.attention.query_layer.set_weights([arrays["query_kernel"]])
        self.attention.attention_v.assign(arrays["score_vector"])
        self.cell._cell.set_weights(cell("cell"))
        self.vector.set_weights([arrays["vector_kernel"]])
        self.output_layer.set_weights(
            [arrays["output_kernel"], arrays["output_bias"]]
        )


class Peer:
    kinds = ("train", "greedy", "beam")
    versions = {
        "tensorflow": tf.__version__,
        "tensorflow_addons": tfa.__version__,
    }

    def __init__(self, workload, threads, variant=""):
        tf.config.threading.set_intra_op_parallelism_threads(threads)
        tf.config.threading.set_inter_op_parallelism_threads(threads)
        self.workload = workload
        self.net = Net(workload)
        source, target, _ = workloads.batch(workload, 2)
        self.net(tf.constant(source), tf.constant(target))
        self.net.load(workloads.weights(workload))
        self.variables = list(self.net.trainable_variables)
        self.optimizer = tf.keras.optimizers.Adam()

    def parameters(self):
        return sum(v.shape.num_elements() for v in self.variables)

    def train(self, size):
        source, target, labels = map(
            tf.constant, workloads.batch(self.workload, size)
        )

        @tf.function
        def step(source, target, labels):
            with tf.GradientTape() as tape:
                logits = self.net(source, target)
                losses = tf.nn.sparse_softmax_cross_entropy_with_logits(
                    labels, logits
                )
                weights = tf.cast(labels != PAD, tf.float32)
                loss = tf.reduce_sum(losses * weights) / tf.reduce_sum(weights)
            gradients = tape.gradient(loss, self.variables)
            self.optimizer.apply_gradients(
                zip(gradients, self.variables, strict=True)
            )
            return loss

        return lambda: float(step(source, target, labels))

    def greedy(self, size):
        decoder = seq2seq.BasicDecoder(
            self.net.cell,
            seq2seq.GreedyEmbeddingSampler(self.net.target_embedding),
            output_layer=self.net.output_layer,
            maximum_iterations=self.workload.target_length,
        )

        def search(source):
            outputs, _, _ = decoder(
                None,
                start_tokens=tf.fill([size], START),
                end_token=END,
                initial_state=self.net.start(*self.net.encode(source)),
            )
            return (outputs.sample_id,)

        return self.decode(search, size)

    def beam(self, size):
        width = self.workload.width
        decoder = seq2seq.BeamSearchDecoder(
            self.net.cell,
            width,
            embedding_fn=self.net.target_embedding,
            output_layer=self.net.output_layer,
            maximum_iterations=self.workload.target_length,
        )

        def search(source):
            outputs, state, _ = decoder(
                None,
                start_tokens=tf.fill([size], START),
                end_token=END,
                initial_state=self.net.start(*self.net.encode(source), width),
            )
            ids = tf.transpose(outputs.predicted_ids, [0, 2, 1])
            return ids, state.log_probs

        return self.decode(search, size)

    def decode(self, search, size):
        source = tf.constant(workloads.batch(self.workload, size)[0])
        search = tf.function(search)
        return lambda: [x.numpy() for x in search(source)]
