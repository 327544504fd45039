"""A small training that can be killed, for `test_resume.py`.

As a program: `resuming.py FOLDER MOMENT KIND`. A moment is a number of updates,
or "saving": the training then kills itself while it saves its second epoch. A
kind is "plain" or "decoder".
"""

import os
import pathlib
import signal
import sys

import keras
from keras import layers

import keras_attn

LINES = [f"{number:b}" for number in range(3, 40)]
EPOCHS, BATCHES = 3, 10


class Kill(keras.callbacks.Callback):
    """Sends this process SIGKILL after a number of updates."""

    def __init__(self, updates):
        super().__init__()
        self.left = updates

    def on_train_batch_end(self, batch, logs=None):
        self.left -= 1
        if not self.left:
            os.kill(os.getpid(), signal.SIGKILL)


def build(decoder=False, seed=5):
    """A model with dropout; with a decoder it is slower to trace."""
    text = keras_attn.Text("01", split="characters")
    keras.utils.set_random_seed(seed)
    source = keras.Input((None,), dtype="int32")
    target = keras.Input((None,), dtype="int32")
    memory = layers.Embedding(text.size, 8, mask_zero=True)(source)
    words = layers.Embedding(text.size, 8, mask_zero=True)(target)
    words, memory = layers.Dropout(0.2)(words), layers.Dropout(0.2)(memory)
    if decoder:
        hidden = keras_attn.AttentionDecoder(
            layers.LSTMCell(8, dropout=0.1),
            keras_attn.BahdanauAttention(8, dropout=0.1),
        )(words, memory)
    else:
        context = keras_attn.ScaledDotAttention(dropout=0.1)(words, memory)
        hidden = layers.Concatenate()([words, context])
    model = keras.Model([source, target], layers.Dense(text.size)(hidden))
    rate = keras_attn.InverseSquareRootDecay(0.02, warmup_steps=12)
    model.compile(
        keras.optimizers.Adam(rate),
        loss=keras_attn.SequenceCrossentropy(),
        jit_compile=False,
    )
    return model, text


def train(folder, *callbacks, decoder=False):
    """Trains for three epochs, or what is left of them; returns weights."""
    model, text = build(decoder)
    data = keras_attn.pairs(
        LINES, LINES, text, text, batch_size=4, seed=2, buckets=1
    )
    assert len(data) == BATCHES
    model.fit(
        data,
        epochs=EPOCHS,
        verbose=0,
        shuffle=False,
        callbacks=[
            *callbacks,
            keras_attn.ResumeTraining(folder, data, delete_checkpoint=False),
        ],
    )
    return model.get_weights()


def main(folder, moment, decoder):
    callbacks = []
    if moment == "saving":
        rename = pathlib.Path.rename

        def kill_at_second(path, target):
            if path.name == "epoch-2.part":
                os.kill(os.getpid(), signal.SIGKILL)
            return rename(path, target)

        pathlib.Path.rename = kill_at_second
    else:
        callbacks.append(Kill(int(moment)))
    train(folder, *callbacks, decoder=decoder == "decoder")


if __name__ == "__main__":
    main(*sys.argv[1:])
