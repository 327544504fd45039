"""Lines of text for batches."""

import numpy as np

import keras_attn

LETTERS = "abcdefgh"


TEXT = keras_attn.Text(LETTERS, split="characters", max_length=9)


def lines(number, seed=0):
    random = np.random.default_rng(seed)
    return [
        "".join(random.choice(list(LETTERS), random.integers(0, 9)))
        for _ in range(number)
    ]


def pairs(sources, targets, **options):
    return keras_attn.pairs(sources, targets, TEXT, TEXT, **options)


def rows(data):
    """All rows of a dataset as pairs of strings, in its order."""
    found = []
    for (source, _), target in data:
        found += zip(
            TEXT.strings(source).numpy().tolist(),
            TEXT.strings(target).numpy().tolist(),
            strict=True,
        )
    return [(x.decode(), y.decode()) for x, y in found]
