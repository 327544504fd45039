"""Which tests hold on TensorFlow alone, and why."""

import keras
import pytest


def needs_tensorflow(what):
    """Returns the mark of a test of `what`, which only TensorFlow has."""
    return pytest.mark.skipif(
        keras.backend.backend() != "tensorflow",
        reason=f"{what} is TensorFlow's alone",
    )
