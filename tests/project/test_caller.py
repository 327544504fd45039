"""Warnings point to the line that called the package, at every door."""

import keras
import pytest
import tensorflow as tf
from keras import layers

import keras_attn

TEXT = keras_attn.Text("ab", split="characters", max_length=2)
SHORT, LONG = ["a", "b"], ["a", "bbb"]


class Lossy(keras_attn.Splitter):
    """Splits into letters and leaves digits out."""

    separator = ""

    def split(self, strings):
        strings = tf.strings.regex_replace(strings, "[0-9]", "")
        return tf.strings.unicode_split(strings, "UTF-8")


def stream(lines):
    return tf.data.Dataset.from_tensor_slices(lines)


def unmasked():
    """A model that computes something else beside longer lines."""
    source = keras.Input((None,), dtype="int32")
    target = keras.Input((None,), dtype="int32")
    memory = layers.Embedding(TEXT.size, 4)(source)
    context = keras_attn.ScaledDotAttention()(
        layers.Embedding(TEXT.size, 4)(target), memory
    )
    return keras.Model([source, target], layers.Dense(TEXT.size)(context))


def assert_points_to(caught, call):
    places = {(x.filename, x.lineno) for x in caught}
    assert places == {(__file__, call.__code__.co_firstlineno)}


# fmt: off
DOORS = {
    "sources": lambda: keras_attn.pairs(LONG, SHORT, TEXT, TEXT),
    "targets": lambda: keras_attn.pairs(SHORT, LONG, TEXT, TEXT),
    "several": lambda: keras_attn.pairs({"x": LONG}, LONG, {"x": TEXT}, TEXT),
    "stream": lambda: keras_attn.pairs(stream(SHORT), stream(LONG), TEXT, TEXT),
    "text": lambda: keras_attn.Text("ab", split=Lossy()),
    "text of lines": lambda: keras_attn.Text.from_lines(["ab1"], Lossy()),
    "translator": lambda: keras_attn.Translator(unmasked(), TEXT, TEXT),
    "check": lambda: keras_attn.check(unmasked(), keras_attn.pairs(SHORT, SHORT, TEXT, TEXT, buckets=1)),  # noqa: E501
}
# fmt: on


@pytest.mark.sample_cases(2)
@pytest.mark.parametrize("door", DOORS)
def test_a_warning_points_to_the_caller(door):
    with pytest.warns(UserWarning) as caught:
        DOORS[door]()
    assert_points_to(caught, DOORS[door])


def test_a_line_that_is_cut_later_points_to_where_the_data_were_made(
    monkeypatch,
):
    monkeypatch.setattr("keras_attn.training.batches.rows._SAMPLE", 2)
    lines = [stream(SHORT + LONG), stream(SHORT + SHORT)]

    def make():
        return keras_attn.pairs(*lines, TEXT, TEXT, shuffle=False)

    data = make()
    with pytest.warns(UserWarning, match="1 of some later sources") as caught:
        list(data)
    (found,) = caught
    assert found.filename == __file__
    assert found.lineno == make.__code__.co_firstlineno + 1


@pytest.mark.full
def test_warnings_of_a_translator_s_methods_point_to_the_caller(toys, tmp_path):
    def assert_points(call, match):
        with pytest.warns(UserWarning, match=match) as caught:
            call()
        assert_points_to(caught, call)

    with pytest.warns(UserWarning, match="Padding"):
        made = keras_attn.Translator(
            unmasked(), TEXT, TEXT, keras_attn.GreedySearch(max_length=3)
        )
    path = tmp_path / "saved"
    made.save(path)
    assert_points(lambda: keras_attn.Translator.load(path), "Padding")
    assert_points(lambda: list(made.stream("aaa")), "more tokens than")
    frames = toys["spectra"]
    assert_points(lambda: frames.export(tmp_path / "frames"), "any size")
