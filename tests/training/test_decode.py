"""`DecodingMetrics`: scores of decoded text in a training's logs."""

import functools
import sys
import warnings

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers

import keras_attn

LINES = ["ab", "ba", "b", "abba"]
TEXT = keras_attn.Text("ab", split="characters", max_length=9)
DATA = keras_attn.pairs(LINES, LINES, TEXT, TEXT, shuffle=False)


def build(source=None):
    if source is None:
        source = keras.Input((None,), dtype="int32", name="source")
    target = keras.Input((None,), dtype="int32", name="target")
    memory = source
    if source.dtype == "int32":
        memory = layers.Embedding(TEXT.size, 8, mask_zero=True)(source)
    # Without recurrence, as a loop takes seconds to trace.
    words = layers.Embedding(TEXT.size, 8, mask_zero=True)(target)
    context = keras_attn.ScaledDotAttention()(words, memory)
    hidden = layers.Dropout(0.1)(layers.Concatenate()([context, words]))
    model = keras.Model([source, target], layers.Dense(TEXT.size)(hidden))
    model.compile(
        keras.optimizers.Adam(0.01),
        loss=keras_attn.SequenceCrossentropy(),
        jit_compile=False,
    )
    return model


@pytest.fixture(scope="module")
def copy():
    search = keras_attn.GreedySearch(max_length=6)
    return keras_attn.Translator(build(), TEXT, TEXT, search)


def fit(copy, *callbacks, epochs=1, **options):
    return copy.model.fit(
        DATA,
        epochs=epochs,
        shuffle=False,
        callbacks=callbacks,
        **{"verbose": 0} | options,
    ).history


def test_the_logs_have_the_scores_of_what_the_translator_says_now(copy):
    names = "bleu", "chrf", "wer", "cer", "ser"
    decode = keras_attn.DecodingMetrics(copy, LINES, LINES, names, show=0)
    history = fit(copy, decode)
    found = copy(LINES).text  # after the epoch, as the callback saw it
    assert decode.translations.text == found
    for name in names:
        expected = keras_attn.metrics.BY_NAME[name](found, LINES)
        assert history[f"val_{name}"] == [expected]


def test_metrics_may_be_functions_with_several_references(copy):
    references = [["ab", "a"], ["ba"], "b", ["a", "b", "abba"]]
    given = []

    def longest(hypotheses, references):
        given.append(references)
        return max(map(len, hypotheses))

    metrics = {"longest": longest, "letters": "cer"}
    for chosen in metrics, [longest]:
        decode = keras_attn.DecodingMetrics(
            copy, LINES, references, chosen, show=0
        )
        history = fit(copy, decode)
        expected = {
            f"val_{x}" for x in (metrics if chosen is metrics else ["longest"])
        }
        assert set(history) - {"loss"} == expected
    assert given == [references] * 2


def scores_of(*values):
    """Returns a metric that gives these scores, one for each decoding."""
    left = iter(values)
    return {"bleu": lambda *_: next(left)}


def every_other(copy, *values):
    """Decodes after the epochs 1, 2, 4 and so on, with these scores."""
    metrics = scores_of(*values)
    return keras_attn.DecodingMetrics(
        copy, LINES, LINES, metrics, every=2, show=0
    )


def test_epochs_between_two_decodings_have_no_score(copy):
    decode = keras_attn.DecodingMetrics(
        copy, LINES, LINES, scores_of(1, 2, 3, 4, 5), every=3, show=0
    )
    history = fit(copy, decode, epochs=7)
    assert history["val_bleu"] == [1, 2, 3, 4]
    assert decode.epochs == [1, 3, 6, 7]  # the first and the last too
    assert len(history["loss"]) == 7
    history = fit(copy, decode)
    assert (history["val_bleu"], decode.epochs) == ([5], [1])


def test_early_stopping_waits_for_decodings_and_not_for_epochs(copy):
    # Decodings after the epochs 1, 2, 4 and 6; the best is the second.
    decode = every_other(copy, 10, 30, 20, 25, 40)
    stop = keras.callbacks.EarlyStopping("val_bleu", mode="max", patience=2)
    history = fit(copy, decode, stop, epochs=8)
    assert history["val_bleu"] == [10, 30, 20, 25]
    assert stop.stopped_epoch == 6 - 1


def test_the_learning_rate_falls_by_decodings_and_not_by_epochs(copy):
    rates = []
    callbacks = [
        every_other(copy, 10, 30, 20, 25, 24),
        keras.callbacks.ReduceLROnPlateau(
            "val_bleu", mode="max", patience=2, factor=0.5
        ),
        keras.callbacks.LambdaCallback(
            on_epoch_end=lambda *_: rates.append(
                float(copy.model.optimizer.learning_rate)
            )
        ),
    ]
    copy.model.optimizer.learning_rate = 0.01
    fit(copy, *callbacks, epochs=8)
    np.testing.assert_allclose(rates, [0.01] * 5 + [0.005] * 3)
    copy.model.optimizer.learning_rate = 0.01


def test_the_best_checkpoint_is_that_of_the_best_decoding(copy, tmp_path):
    seen = []
    callbacks = [
        every_other(copy, 10, 30, 20, 25),
        keras_attn.BestCheckpoint(
            tmp_path / "best.weights.h5",
            "val_bleu",
            mode="max",
            save_weights_only=True,
        ),
        keras_attn.BestCheckpoint(
            tmp_path / "{epoch}-{val_bleu:.0f}.keras", "val_bleu", mode="max"
        ),
        keras.callbacks.LambdaCallback(
            on_epoch_end=lambda *_: seen.append(copy.model.get_weights()[0])
        ),
    ]
    fit(copy, *callbacks, epochs=6)
    found = sorted(x.name for x in tmp_path.iterdir())
    assert found == [
        "1-10.keras",
        "2-30.keras",
        "_-_.keras.json",
        "best.weights.h5",
        "best.weights.h5.json",
    ]
    copy.model.load_weights(tmp_path / "best.weights.h5")
    np.testing.assert_array_equal(copy.model.get_weights()[0], seen[1])


def test_a_checkpoint_that_would_overwrite_the_best_is_refused(copy, tmp_path):
    before = list(warnings.filters), warnings.showwarning
    plain = keras.callbacks.ModelCheckpoint(
        tmp_path / "best.keras", "val_bleu", mode="max", save_best_only=True
    )
    with pytest.raises(ValueError, match="overwrites the best.*BestCheckpoint"):
        fit(copy, every_other(copy, 10, 30, 20), plain, epochs=4)
    assert (list(warnings.filters), warnings.showwarning) == before


def test_a_best_checkpoint_without_its_score_is_refused(copy, tmp_path):
    best = keras_attn.BestCheckpoint(tmp_path / "x.keras", "val_bleu", "max")
    for callbacks in [], [every_other(copy, 1), best][::-1]:
        with pytest.raises(ValueError, match=r"`val_bleu`.*\['loss'\].*after"):
            fit(copy, *callbacks or [best])
    with pytest.raises(ValueError, match="`mode` must be.*Received: mode='up'"):
        keras_attn.BestCheckpoint(tmp_path / "x.keras", "val_bleu", "up")


def test_a_table_has_a_score_for_each_decoding(copy, tmp_path):
    table = keras.callbacks.CSVLogger(tmp_path / "log.csv")
    fit(copy, every_other(copy, 10, 30, 20), table, epochs=4)
    rows = (tmp_path / "log.csv").read_text().splitlines()
    assert [x.split(",")[-1] for x in rows] == [
        *("val_bleu", "10.0", "30.0", "NA", "20.0")
    ]


def test_keras_s_tensorboard_has_a_point_for_each_decoding(copy, tmp_path):
    pytest.importorskip("tensorboard")
    board = keras.callbacks.TensorBoard(tmp_path)
    fit(copy, every_other(copy, 10, 30, 20), board, epochs=4)
    (file,) = (tmp_path / "validation").iterdir()
    records = tf.data.TFRecordDataset(str(file))
    events = [tf.compat.v1.Event.FromString(x.numpy()) for x in records]
    assert [
        (event.step, float(tf.make_ndarray(value.tensor)))
        for event in events
        for value in event.summary.value
        if "bleu" in value.tag
    ] == [(0, 10.0), (1, 30.0), (3, 20.0)]


def test_only_warnings_of_a_score_that_is_to_come_are_silenced(copy):
    def stop(name):
        return keras.callbacks.EarlyStopping(name, mode="max")

    def warns(*_):
        warnings.warn("another", stacklevel=1)

    other = keras.callbacks.LambdaCallback(on_epoch_end=warns)
    decode = every_other(copy, 10, 30, 20)
    with pytest.warns(UserWarning) as caught:
        fit(copy, decode, stop("val_bleu"), stop("val_chrf"), other, epochs=3)
    texts = [str(x.message) for x in caught]
    assert sum("`val_chrf`" in x for x in texts) == 3
    assert texts.count("another") == 3
    assert len(texts) == 6
    # Before it in the list a callback never finds a score.
    with pytest.warns(UserWarning, match="`val_bleu`") as caught:
        fit(copy, stop("val_bleu"), every_other(copy, 10, 30, 20), epochs=3)
    assert len(caught) == 3


def test_keras_s_callbacks_after_it_see_the_scores(copy, tmp_path):
    scores = iter([10.0, 30.0, 20.0, 15.0, 50.0])

    def made_up(*_):
        return next(scores)

    best = tmp_path / "best.weights.h5"
    seen = []
    callbacks = [
        keras_attn.DecodingMetrics(
            copy, LINES, LINES, {"bleu": made_up}, show=0
        ),
        keras.callbacks.ModelCheckpoint(
            best,
            monitor="val_bleu",
            mode="max",
            save_best_only=True,
            save_weights_only=True,
        ),
        keras.callbacks.LambdaCallback(
            on_epoch_end=lambda *_: seen.append(copy.model.get_weights()[0])
        ),
        keras.callbacks.EarlyStopping("val_bleu", mode="max", patience=2),
    ]
    history = fit(copy, *callbacks, epochs=5)
    assert history["val_bleu"] == [10.0, 30.0, 20.0, 15.0]
    copy.model.load_weights(best)
    np.testing.assert_array_equal(copy.model.get_weights()[0], seen[1])


@pytest.mark.full
def test_it_changes_no_weight_and_no_draw():
    def trained(callbacks):
        keras.utils.set_random_seed(3)
        source = keras.Input((None,), dtype="int32", name="source")
        model = build(source)
        if callbacks:
            copy = keras_attn.Translator(
                model, TEXT, TEXT, keras_attn.Sampling(max_length=5)
            )
            callbacks = [
                keras_attn.DecodingMetrics(copy, LINES, LINES, ["cer"], show=0)
            ]
        model.fit(DATA, epochs=2, verbose=0, shuffle=False, callbacks=callbacks)
        return model.get_weights()

    for x, y in zip(trained([]), trained([1]), strict=True):
        np.testing.assert_array_equal(x, y)


def test_it_prints_what_it_decodes(copy, capsys):
    decode = keras_attn.DecodingMetrics(copy, LINES, LINES, ["wer"], show=2)
    fit(copy, decode, verbose=2)
    printed = capsys.readouterr().out
    first, second = decode.translations.text[:2]
    assert f"  ab\n  -> {first}\n     (wanted: ab)\n" in printed
    assert f"  ba\n  -> {second}\n     (wanted: ba)\n" in printed
    assert "abba" not in printed
    assert printed.count("val_wer") == 2  # and in Keras's own line


def test_a_tuple_of_lines_is_taken_as_a_list_is(copy, capsys):
    for rows in ["ab", "b"], ["ab", "b", "ba"]:
        for sources in rows, tuple(rows):
            decode = keras_attn.DecodingMetrics(
                copy, sources, sources, ["cer"], show=2
            )
            fit(copy, decode)
            assert len(decode.translations.text) == len(rows)
            found = capsys.readouterr().out
            assert "\n  ab\n" in found and "\n  b\n" in found


def test_it_writes_pictures_and_tensorboard_s_events(copy, tmp_path):
    pytest.importorskip("matplotlib")
    fit(
        copy,
        keras_attn.DecodingMetrics(
            copy,
            LINES,
            ["a|b", "ba", "b", ["x", "y"]],
            ["ser"],
            show=1,
            pictures=tmp_path / "pictures",
            tensorboard=tmp_path / "logs",
        ),
        epochs=2,
    )
    pictures = sorted((tmp_path / "pictures").iterdir())
    assert [x.name for x in pictures] == [
        "epoch-0001-1.png",
        "epoch-0002-1.png",
    ]
    assert pictures[0].read_bytes()[:4] == b"\x89PNG"
    (file,) = (tmp_path / "logs").iterdir()
    records = tf.data.TFRecordDataset(str(file))
    events = [tf.compat.v1.Event.FromString(x.numpy()) for x in records]
    found = {(e.step, v.tag): v for e in events for v in e.summary.value}
    assert set(found) == {
        (step, tag) for step in (1, 2) for tag in ("decoded", "attention/1")
    }
    text = found[2, "decoded"]
    assert text.metadata.plugin_data.plugin_name == "text"
    (table,) = tf.make_ndarray(text.tensor)
    assert table.decode().splitlines()[2].endswith(r"| a\|b |")
    image = found[2, "attention/1"].image
    pixels = tf.io.decode_png(image.encoded_image_string)
    assert pixels.shape == (image.height, image.width, 4)


def test_sources_may_be_features(capsys):
    frames = keras.Input((None, 8), name="frames")
    model = build(frames)
    search = keras_attn.GreedySearch(max_length=3)
    read = keras_attn.Translator(model, None, TEXT, search)
    sources = np.zeros((2, 4, 8), "float32")
    decode = keras_attn.DecodingMetrics(
        read, sources, ["a", "b"], ["wer"], show=1
    )
    decode.set_model(model)
    decode.set_params({"epochs": 1})
    decode.on_train_begin()
    logs = {}
    decode.on_epoch_end(0, logs)
    assert 0 < logs["val_wer"]
    assert "(wanted: a)" in capsys.readouterr().out


def test_a_translator_of_another_model_is_refused(copy):
    decode = keras_attn.DecodingMetrics(copy, LINES, LINES, ["wer"])
    with pytest.raises(ValueError, match="share no weight"):
        build().fit(DATA, verbose=0, shuffle=False, callbacks=[decode])


def test_what_cannot_be_scored_is_refused(copy):
    with pytest.raises(ValueError, match="4 sources and 1 references"):
        keras_attn.DecodingMetrics(copy, LINES, ["a"])
    with pytest.raises(ValueError, match='"bleu", "chrf".*Received: .blue'):
        keras_attn.DecodingMetrics(copy, LINES, LINES, ["blue"])
    with pytest.raises(ValueError, match="`every` must be a positive"):
        keras_attn.DecodingMetrics(copy, LINES, LINES, every=0)


def test_all_packages_that_are_missing_are_named_at_once(copy, monkeypatch):
    monkeypatch.setitem(sys.modules, "sacrebleu", None)
    monkeypatch.setitem(sys.modules, "rapidfuzz.distance", None)
    for metrics in (
        ["bleu", "chrf", "wer"],
        {
            "x": functools.partial(keras_attn.metrics.bleu, lowercase=True),
            "y": keras_attn.metrics.sequence_error_rate,
        },
    ):
        with pytest.raises(ImportError, match="sacreBLEU.*RapidFuzz"):
            keras_attn.DecodingMetrics(copy, LINES, LINES, metrics)
    monkeypatch.setitem(sys.modules, "matplotlib.backends.backend_agg", None)
    for option in "pictures", "tensorboard":
        with pytest.raises(ImportError, match="RapidFuzz.*Matplotlib"):
            keras_attn.DecodingMetrics(
                copy, LINES, LINES, ["cer"], **{option: "x"}
            )
    keras_attn.DecodingMetrics(copy, LINES, LINES, [len])
