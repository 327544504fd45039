"""Helpers of the tests of the cut: small inputs, and the comparison."""

import keras
import numpy as np
from keras import layers
from keras import ops

import keras_attn
from keras_attn import Incremental

SOURCES, TARGETS = 7, 9  # sizes of the vocabularies

SOURCE = np.array([[3, 4, 5, 6, 2], [5, 2, 0, 0, 0], [2, 0, 0, 0, 0]], "int32")
TARGET = np.array([[1, 4, 5, 8], [1, 7, 7, 3], [1, 3, 6, 4]], "int32")


def inputs():
    return (
        keras.Input((None,), dtype="int32", name="source"),
        keras.Input((None,), dtype="int32", name="target"),
    )


def embedded(source, target):
    return (
        layers.Embedding(SOURCES, 6, mask_zero=True)(source),
        layers.Embedding(TARGETS, 6, mask_zero=True)(target),
    )


def decoder(cell=None, attention=None, **options):
    return keras_attn.AttentionDecoder(
        cell or layers.GRUCell(6),
        attention or keras_attn.BahdanauAttention(5),
        **options,
    )


def with_path(build):
    """A model whose path is `build(embedded target, memory) -> hidden`."""
    source, target = inputs()
    memory, embedding = embedded(source, target)
    hidden = build(embedding, memory)
    return keras.Model([source, target], layers.Dense(TARGETS)(hidden))


def speak_up(model):
    """Gives a model larger weights than fresh ones, so that mistakes show."""
    random = np.random.default_rng(4)
    for variable in model.weights:
        value = random.normal(scale=0.6, size=variable.shape)
        if "variance" in variable.path:
            value = np.abs(value)
        variable.assign(value)
    return model


def run_by_steps(cut, arrays, hoist=False):
    """Logits `(batch, beams, time, ...)` and alignments, step by step.

    Args:
        cut: An `Incremental`.
        arrays: The sources, and the targets `(batch, [beams,] time)`.
        hoist: Whether to hoist products out of the loop.
    """
    *sources, target = arrays
    targets = target if target.ndim == 3 else target[:, None]
    encoded = cut.encode(*map(ops.convert_to_tensor, sources))
    if hoist:
        cut, encoded = cut.hoist(encoded)
    _, beams, length = targets.shape
    state = cut.start(encoded, beams, length + 2)
    logits, alignments = [], []
    for t in range(length):
        step, attended, state = cut.step(
            ops.convert_to_tensor(targets[:, :, t]), state, encoded
        )
        logits.append(ops.convert_to_numpy(step))
        if attended is not None:
            alignments.append(ops.convert_to_numpy(attended))
    logits = np.stack(logits, 2)
    alignments = np.stack(alignments, 2) if alignments else None
    if target.ndim == 2:
        return logits[:, 0], None if alignments is None else alignments[:, 0]
    return logits, alignments


def sources_of(model):
    """Returns an array for each input of a model but the last."""
    random = np.random.default_rng(0)

    def source(x):
        if x.dtype == "int32":
            return SOURCE
        shape = [5 if size is None else size for size in x.shape[1:]]
        return random.normal(size=(len(SOURCE), *shape)).astype("float32")

    return [source(x) for x in model.inputs[:-1]]


def assert_cut_equals_whole(model, atol=1e-5):
    """Decodes two targets per source, and compares with the whole model.

    Returns:
        The logits `(batch, beams, time, vocabulary)`.
    """
    sources = sources_of(model)
    both = np.stack([TARGET, np.roll(TARGET, 1, axis=0)[:, ::-1]], axis=1)
    cut = Incremental(model)
    logits, alignments = run_by_steps(cut, [*sources, both])
    for beam in range(2):
        target = np.ascontiguousarray(both[:, beam])
        whole = model([*sources, target], training=False)
        whole = ops.convert_to_numpy(whole)
        assert np.std(whole) > 1e-4  # it does compute something
        np.testing.assert_allclose(logits[:, beam], whole, atol=atol)
    cut.check(*map(ops.convert_to_tensor, [*sources, TARGET]))
    hoisted, its_alignments = run_by_steps(cut, [*sources, both], hoist=True)
    np.testing.assert_allclose(hoisted, logits, atol=atol)
    if alignments is not None:
        np.testing.assert_allclose(alignments.sum(-1), 1.0, atol=1e-5)
        np.testing.assert_allclose(its_alignments, alignments, atol=atol)
    return logits
