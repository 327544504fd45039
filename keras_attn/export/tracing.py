"""`without_cudnn`: a context for tracing an export's functions."""

import contextlib

from keras_attn.keras_internals import layers_within


@contextlib.contextmanager
def without_cudnn(models):
    """Disables the cuDNN kernels of the models' layers within this context.

    On a machine with a GPU, Keras would otherwise choose them, and the export
    would not run on a CPU.
    """
    layers = [layer for model in models for layer in layers_within(model)]
    cells = [layer for layer in layers if hasattr(layer, "use_cudnn")]
    before = [layer.use_cudnn for layer in cells]
    try:
        for layer in cells:
            layer.use_cudnn = False
        yield
    finally:
        for layer, use_cudnn in zip(cells, before, strict=True):
            layer.use_cudnn = use_cudnn
