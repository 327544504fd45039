"""Plain Keras, the tutorials' way: a Python loop around `predict_on_batch`."""

import keras
import numpy as np
import workloads
from workloads import START

from peers import plain_keras


class Encode(keras.Model):
    def __init__(self, net):
        super().__init__()
        self.net = net

    def call(self, source):
        return self.net.encode(source)


class Step(keras.Model):
    def __init__(self, net):
        super().__init__()
        self.net = net

    def call(self, inputs):
        token, states, attended = inputs
        return self.net.step(token, states, attended)


class Peer(plain_keras.Peer):
    kinds = ("greedy",)

    def greedy(self, size):
        source, target, _ = workloads.batch(self.workload, size)
        encode, step = Encode(self.net), Step(self.net)

        def run():
            attended, states = encode.predict_on_batch(source)
            token, ids = target[:, 0], []
            assert (token == START).all()
            for _ in range(self.workload.target_length):
                inputs = (token, states, attended)
                logits, states = step.predict_on_batch(inputs)
                token = logits.argmax(-1)
                ids.append(token)
            return [np.stack(ids, axis=1)]

        return run
