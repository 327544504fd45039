"""Training in half precision: as good as in float32, within noise."""

import contextlib

import keras
import pytest
from support import resuming

import keras_attn


@contextlib.contextmanager
def policy(name):
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(name)
    try:
        yield
    finally:
        keras.config.set_dtype_policy(before)


def perplexity(name, seed, epochs=12):
    """Returns the perplexity of a decoder after a training from a seed."""
    with policy(name):
        model, text = resuming.build(decoder=True, seed=seed)
        data = keras_attn.pairs(
            *[resuming.LINES] * 2, text, text, batch_size=4, seed=seed
        )
        model.fit(data, epochs=epochs, verbose=0, shuffle=False)
        model.compile(metrics=[keras_attn.Perplexity()], jit_compile=False)
        return model.evaluate(data, verbose=0, return_dict=True)["perplexity"]


@pytest.mark.full
def test_half_precision_trains_as_well_as_float32():
    seeds = 1, 2
    whole = [perplexity("float32", seed) for seed in seeds]
    for name in "mixed_bfloat16", "mixed_float16":
        half = [perplexity(name, seed) for seed in seeds]
        # Trainings of other seeds differ by more.
        for one, other in zip(whole, half, strict=True):
            assert other == pytest.approx(one, rel=0.05), (whole, half)
