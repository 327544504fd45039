"""KerasHub's samplers over the plain Keras net's step, in a `tf.function`.

The memory is tiled once for the beams and closed over; left in the cache,
KerasHub's usual place, it would be gathered at each step. Its samplers have
no finished state and no length penalty. The variant "xla" compiles.
"""

import keras_hub
import tensorflow as tf
from keras_hub.samplers import BeamSampler
from keras_hub.samplers import GreedySampler
from workloads import END
from workloads import START

from peers import plain_keras


class Peer(plain_keras.Peer):
    kinds = ("greedy", "beam")
    versions = plain_keras.Peer.versions | {"keras_hub": keras_hub.__version__}

    def __init__(self, workload, threads, variant=""):
        super().__init__(workload, threads)
        self.xla = variant == "xla"

    def greedy(self, size):
        sampler = GreedySampler()
        return self.run(lambda *args, **kw: (sampler(*args, **kw),), 1, size)

    def beam(self, size):
        width = self.workload.width
        sampler = BeamSampler(num_beams=width, return_all_beams=True)
        return self.run(sampler, width, size)

    def run(self, sampler, width, size):
        length = self.workload.target_length

        def decode(source):
            attended, states = self.net.encode(source)
            attended = [tf.repeat(x, width, 0) for x in attended]

            def step(prompt, cache, index):
                token = prompt[:, index - 1]
                logits, cache = self.net.step(token, cache, attended)
                return logits, None, cache

            # START, and room for what will be generated
            prompt = tf.pad(tf.fill([size, 1], START), [[0, 0], [0, length]])
            ids, *scores = sampler(
                step,
                prompt,
                cache=states,
                index=1,
                stop_token_ids=[END],
            )
            return ids[..., 1:], *scores

        return self.decode(tf.function(decode, jit_compile=self.xla), size)
