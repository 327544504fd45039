"""`pairs()` of features: pictures, frames of sound, and features with text."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

import keras_attn

TEXT = keras_attn.Text("abc", split="characters")


def frames(lengths, dim=3, dtype="float32"):
    """Returns arrays `(length, dim)`; all frames of array `i` are `i + 1`."""
    return [
        np.full((length, dim), i + 1, dtype) for i, length in enumerate(lengths)
    ]


def targets(count):
    """Returns lines by which rows are known: "a", "aa" and so on."""
    return ["a" * (i % 7 + 1) for i in range(count)]


def test_pictures_keep_their_shape_dtype_and_names():
    pictures = np.arange(20 * 12, dtype="uint8").reshape(20, 2, 2, 3)
    data = keras_attn.pairs(
        pictures, targets(20), None, TEXT, batch_size=4, seed=1
    )
    seen = []
    for (picture, target_in), target_out in data:
        assert picture.dtype == tf.uint8 and picture.shape[1:] == (2, 2, 3)
        assert target_in.shape == target_out.shape
        for x, line in zip(picture, TEXT.strings(target_out), strict=True):
            (index,) = np.flatnonzero((pictures == x.numpy()).all((1, 2, 3)))
            assert line.numpy().decode() == targets(20)[index]
            seen.append(index)
    assert sorted(seen) == [*range(20)]


def test_frames_of_different_lengths_are_padded_with_zeros():
    lengths = [2, 9, 5, 9, 1, 3]
    data = keras_attn.pairs(
        frames(lengths), targets(6), None, TEXT, batch_size=2, seed=1
    )
    found = {}
    for (x, _), target_out in data:
        assert x.dtype == tf.float32
        assert x.shape[1] == max(np.count_nonzero(x[..., 0], axis=1))
        for row, line in zip(x.numpy(), TEXT.strings(target_out), strict=True):
            index = len(line.numpy())
            length = lengths[index - 1]
            assert np.all(row[:length] == index) and not row[length:].any()
            found[index] = length
    assert found == dict(enumerate(lengths, 1))


def test_rows_of_similar_length_share_a_batch():
    lengths = [2, 30] * 20
    data = keras_attn.pairs(
        frames(lengths), ["a"] * 40, None, TEXT, batch_size=10, buckets=2
    )
    for (x, _), _ in data:
        (length,) = {*np.count_nonzero(x[..., 0], axis=1)}
        assert length == x.shape[1]


def test_features_of_one_shape_leave_the_buckets_to_the_targets():
    data = keras_attn.pairs(
        np.ones((40, 30, 1)), ["a", "a" * 20] * 20, None, TEXT, buckets=2
    )
    for (x, _), target_out in data:
        assert x.shape[1:] == (30, 1)
        assert len({*np.count_nonzero(target_out, axis=1)}) == 1


def test_batch_tokens_count_frames():
    data = keras_attn.pairs(
        frames([10] * 9 + [5]), ["a"] * 10, None, TEXT, batch_tokens=30
    )
    assert max(x.shape[0] * x.shape[1] for (x, _), _ in data) <= 30


def test_features_beside_a_text():
    data = keras_attn.pairs(
        {"hint": ["a", "bb"], "frames": frames([2, 4])},
        ["c", "cc"],
        {"hint": TEXT, "frames": None},
        TEXT,
        buckets=1,
        shuffle=False,
    )
    (hint, x, target_in), target_out = next(iter(data))
    assert TEXT.strings(hint).numpy().tolist() == [b"a", b"bb"]
    assert x.numpy()[..., 0].tolist() == [[1, 1, 0, 0], [2, 2, 2, 2]]
    assert target_in.shape == target_out.shape == (2, 3)


def test_padding_share_counts_ids_alone():
    with_features = keras_attn.pairs(
        frames([1, 50]), ["a", "aaa"], None, TEXT, buckets=1
    )
    with_text = keras_attn.pairs(["", ""], ["a", "aaa"], TEXT, TEXT, buckets=1)
    (_, inputs), _ = next(iter(with_text))
    assert inputs.shape == (2, 4)
    assert with_features.padding_share() == 4 / 16


def test_an_epoch_is_known_by_its_number():
    def order(data):
        return [x.numpy()[:, 0, 0].tolist() for (x, _), _ in data]

    data = keras_attn.pairs(frames([3] * 30), targets(30), None, TEXT, seed=1)
    first, second = order(data), order(data)
    assert first != second
    data.set_epoch(0)
    assert order(data) == first


def test_float64_becomes_float32():
    data = keras_attn.pairs(frames([2], dtype="float64"), ["a"], None, TEXT)
    assert data.element_spec[0][0].dtype == tf.float32


@pytest.mark.full
def test_check_and_fit_take_them():
    source = keras.Input((None, 3))
    target = keras.Input((None,), dtype="int32")
    memory = layers.Masking()(source)
    memory = layers.Dense(8)(memory)
    hidden = keras_attn.AttentionDecoder(
        keras_attn.GRUCell(8), keras_attn.BahdanauAttention(8)
    )(layers.Embedding(TEXT.size, 8, mask_zero=True)(target), memory)
    model = keras.Model([source, target], layers.Dense(TEXT.size)(hidden))
    model.compile("adam", loss=keras_attn.SequenceCrossentropy())
    data = keras_attn.pairs(
        frames([2, 9, 5, 9, 1, 3]), targets(6), None, TEXT, batch_size=2
    )
    keras_attn.check(model, data)
    history = model.fit(data, epochs=2, verbose=0)
    assert np.isfinite(history.history["loss"]).all()


@pytest.mark.parametrize(
    ("features", "message"),
    [
        (5, "must be an array, or a list of arrays"),
        ("ab", "single string"),
        ({"x": [1.0]}, "with the same names, in the order"),
        (["ab", "c"], "must be numbers"),
        ([1.0, 2.0], "must be arrays of one dtype"),
        (frames([2], 3) + frames([2], 4), "differ in no axis but the first"),
        (frames([2]) + frames([2], dtype="int32"), "arrays of one dtype"),
        (frames([2, 2, 2]), "3 sources, 2 targets"),
        (tf.data.Dataset.range(2), "all of them must be"),
        (np.ones((0, 2)), "at least one"),
    ],
)
def test_bad_features_are_refused(features, message):
    with pytest.raises(ValueError, match=message):
        keras_attn.pairs(features, ["a", "b"], None, TEXT)


def test_streams_of_lines_with_features_are_refused():
    lines = tf.data.Dataset.from_tensor_slices(["a", "b"])
    with pytest.raises(ValueError, match="Features can't be paired"):
        keras_attn.pairs(lines, lines, None, TEXT)
