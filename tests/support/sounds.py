"""Sounds that are computed, for models of speech."""

import numpy as np


def sounds(rate=16_000, seconds=(2.0, 1.25, 0.5, 0.2, 0.0)):
    """Returns noise that swells, of each of some lengths, float32."""
    random = np.random.default_rng(0)
    found = []
    for i, length in enumerate(seconds):
        place = np.arange(int(length * rate))
        noise = random.normal(size=len(place))
        swell = np.sin(place / (300 + 200 * i))
        found.append((0.3 * noise * swell).astype("float32"))
    return found


def batch(some):
    """Returns sounds as an array, padded with zeros."""
    longest = max(map(len, some))
    return np.stack([np.pad(x, (0, longest - len(x))) for x in some])
