"""`ResumeTraining`: a training that was cut off ends with the same weights."""

import pathlib
import signal
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf
from support import resuming

import keras_attn

# Keras reads variables in a way that NumPy 2 deprecates.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation")


class Stop(Exception):
    pass


def stop_after(updates):
    """Returns a callback that ends a training by an error."""
    left = [updates]

    def count(batch, logs):
        left[0] -= 1
        if not left[0]:
            raise Stop

    return keras.callbacks.LambdaCallback(on_train_batch_end=count)


def require_equal(found, expected):
    for x, y in zip(found, expected, strict=True):
        np.testing.assert_array_equal(x, y)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The weights of a training that nobody disturbed."""
    return resuming.train(tmp_path_factory.mktemp("whole"))


@pytest.mark.full
def test_a_training_cut_off_twice_ends_with_the_same_weights(whole, tmp_path):
    # In the second epoch, then in the third.
    for updates in (resuming.BATCHES + 3, resuming.BATCHES + 1):
        with pytest.raises(Stop):
            resuming.train(tmp_path, stop_after(updates))
    assert [x.name for x in tmp_path.iterdir()] == ["epoch-2"]
    require_equal(resuming.train(tmp_path), whole)
    # Once more, it has nothing to do.
    require_equal(resuming.train(tmp_path), whole)


def run(*arguments):
    program = pathlib.Path(resuming.__file__)
    return subprocess.run([sys.executable, program, *map(str, arguments)])


@pytest.mark.parametrize(
    "moments, kind",
    [
        pytest.param([14], "plain"),
        pytest.param([1, "saving", 9], "plain", marks=pytest.mark.full),
        pytest.param([10, 11, 10], "decoder", marks=pytest.mark.full),
    ],
)
def test_a_killed_training_ends_with_the_same_weights(
    moments, kind, whole, tmp_path
):
    decoder, expected, backup = kind == "decoder", whole, tmp_path / "backup"
    if decoder:
        expected = resuming.train(tmp_path / "whole", decoder=True)
    for moment in moments:
        killed = run(backup, moment, kind)
        assert killed.returncode == -signal.SIGKILL
    require_equal(resuming.train(backup, decoder=decoder), expected)


def test_without_it_the_draws_of_dropout_are_lost(whole, tmp_path):
    # Why Keras's own callback is not enough, as of Keras 3.15.
    model, _ = resuming.build()
    seeds = [x for x in model.variables if "seed_generator" in x.path]
    before = [x.numpy() for x in seeds]
    for x in seeds:
        x.assign(x + 1)
    model.save_weights(tmp_path / "x.weights.h5")
    model.load_weights(tmp_path / "x.weights.h5")
    assert before and not np.array_equal(seeds[0].numpy(), before[0])


def test_at_the_end_what_was_saved_is_deleted(tmp_path):
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse", jit_compile=False)
    x = np.ones((2, 1), "float32")
    backup = tmp_path / "backup"
    model.fit(x, x, verbose=0, callbacks=[keras_attn.ResumeTraining(backup)])
    assert not backup.exists()


def small(**options):
    """A model of one weight and bias, and its data."""
    keras.utils.set_random_seed(1)
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    optimizer = keras.optimizers.Adam(0.1, **options)
    model.compile(optimizer, "mse", run_eagerly=True)
    return model, np.linspace(-1, 1, 4, dtype="float32")[:, None]


def test_the_next_fit_of_a_resumed_program_skips_no_epoch(tmp_path):
    def program(*callbacks):
        model, x = small()
        epochs = []
        for name in "first", "second":
            resume = keras_attn.ResumeTraining(
                tmp_path / name, delete_checkpoint=False
            )
            history = model.fit(
                x, x, epochs=3, verbose=0, callbacks=[*callbacks, resume]
            )
            epochs.append(history.epoch)
        return [*epochs, model.fit(x, x, epochs=2, verbose=0).epoch]

    with pytest.raises(Stop):
        program(stop_after(3))
    assert program() == [[2], [0, 1, 2], [0, 1]]
    # Both are over, so no epoch is left.
    assert program() == [[], [], [0, 1]]


def test_a_mean_that_is_swapped_in_is_not_taken_for_the_weights(tmp_path):
    def run(folder, epochs, swap_first=False):
        model, x = small(use_ema=True, ema_momentum=0.9)
        callbacks = [
            keras_attn.ResumeTraining(
                tmp_path / folder, delete_checkpoint=False
            ),
            keras.callbacks.SwapEMAWeights(swap_on_epoch=True),
        ]
        if swap_first:
            callbacks.reverse()
        model.fit(
            x,
            3 * x + 1,
            epochs=epochs,
            batch_size=2,
            shuffle=False,
            verbose=0,
            callbacks=callbacks,
        )
        return model.get_weights()

    whole = run("whole", 4)
    run("cut", 2)
    for x, y in zip(run("cut", 4), whole, strict=True):
        np.testing.assert_allclose(x, y, atol=1e-6)
    with pytest.raises(ValueError, match="Put `SwapEMAWeights` after it"):
        run("refused", 4, swap_first=True)


@pytest.mark.parametrize("mode", ["min", "max"])
def test_a_best_score_counts_after_a_kill_but_not_in_a_new_training(
    mode, tmp_path
):
    best = tmp_path / "best.weights.h5"
    sign = {"min": -1, "max": 1}[mode]

    def run(scores, stops_after=None, threshold=None):
        """Returns the epochs after which the model was saved."""
        model, x = small()
        saved = []

        def note(epoch, logs):
            if best.exists():
                saved.append(epoch)
                best.unlink()
            if epoch == stops_after:
                raise Stop

        score = keras.callbacks.LambdaCallback(
            on_epoch_end=lambda epoch, logs: logs.update(
                val_score=sign * scores[epoch]
            )
        )
        callbacks = [
            score,
            keras_attn.BestCheckpoint(
                best, "val_score", mode, True, 0, threshold
            ),
            keras_attn.ResumeTraining(tmp_path / "resume"),
            keras.callbacks.LambdaCallback(on_epoch_end=note),
        ]
        try:
            model.fit(x, x, epochs=len(scores), verbose=0, callbacks=callbacks)
        except Stop:
            pass
        return saved

    nan = float("nan")
    assert run([nan, 1, nan, 9, 4, 5, 10, 3], stops_after=3) == [1, 3]
    assert run([nan, 1, nan, 9, 4, 5, 10, 3], stops_after=4) == []
    assert run([nan, 1, nan, 9, 4, 5, 10, 3]) == [6]
    # A new training forgets it, even if it was killed before its first save.
    scores, threshold = [1, 1, 5, 6], sign * 4
    assert run(scores, stops_after=1, threshold=threshold) == []
    assert run(scores, threshold=threshold) == [2, 3]
    assert run([1, 0]) == [0]


@pytest.mark.parametrize(
    ("steps", "change", "received"),
    [
        (4, lambda data: data.repeat(), "steps_per_epoch=4 .*endless"),
        (3, lambda data: data, "steps_per_epoch=3 for data of 4 batches"),
    ],
)
def test_epochs_that_do_not_begin_anew_are_refused(
    steps, change, received, tmp_path
):
    model, text = resuming.build()
    data = keras_attn.pairs(["0"] * 4, ["1"] * 4, text, text, batch_size=1)
    with pytest.raises(ValueError, match=received):
        model.fit(
            change(data),
            steps_per_epoch=steps,
            verbose=0,
            callbacks=[keras_attn.ResumeTraining(tmp_path, data)],
        )


@pytest.mark.full
def test_data_that_begins_anew_in_each_epoch_is_taken(tmp_path):
    model, text = resuming.build()
    data = keras_attn.pairs(["0"] * 4, ["1"] * 4, text, text, batch_size=1)
    size = tf.data.experimental.assert_cardinality
    for other, steps in (
        (data, None),
        (data, 4),
        (data.take(2), None),
        (data.filter(lambda *_: True).apply(size(4)), None),
    ):
        history = model.fit(
            other,
            steps_per_epoch=steps,
            epochs=2,
            shuffle=False,
            verbose=0,
            callbacks=[keras_attn.ResumeTraining(tmp_path, data)],
        )
        assert history.epoch == [0, 1] and data.next_epoch == 2


@pytest.mark.full
def test_another_model_is_refused(whole, tmp_path):
    resuming.train(tmp_path)
    model, text = resuming.build()
    layer = keras.layers.Dropout(0.1)
    other = keras.Model(model.inputs, layer(model.output))
    other.compile("adam", keras_attn.SequenceCrossentropy(), jit_compile=False)
    data = keras_attn.pairs(["0"], ["1"], text, text)
    with pytest.raises(ValueError):
        other.fit(
            data,
            verbose=0,
            callbacks=[keras_attn.ResumeTraining(tmp_path, data)],
        )
    with pytest.raises(ValueError, match="no method `set_epoch`"):
        keras_attn.ResumeTraining(tmp_path, data.take(1))


def order_of(data):
    return [target.numpy().tolist() for _, target in data]


def test_the_number_of_an_epoch_decides_its_order():
    _, text = resuming.build()

    def made(seed=2, **options):
        lines = resuming.LINES
        options = {"batch_size": 4, "seed": seed} | options
        return keras_attn.pairs(lines, lines, text, text, **options)

    data = made()
    orders = [order_of(data) for _ in range(3)]
    assert orders[0] != orders[1] != orders[2]
    again = made()
    again.set_epoch(2)
    assert order_of(again) == orders[2]
    assert order_of(again) not in orders  # it is the fourth
    again.set_epoch(1)
    assert order_of(again.take(2)) == orders[1][:2]
    assert order_of(made(seed=3)) != orders[0]


@pytest.mark.full
def test_fit_reads_an_epoch_once_with_its_number():
    model, text = resuming.build()
    lines = resuming.LINES[:8]
    data = keras_attn.pairs(lines, lines, text, text, batch_size=4, seed=1)
    starts = []
    model.fit(
        data,
        epochs=3,
        verbose=0,
        shuffle=False,
        callbacks=[
            keras.callbacks.LambdaCallback(
                on_epoch_begin=lambda epoch, _: data.set_epoch(epoch),
                on_epoch_end=lambda epoch, _: starts.append(data.next_epoch),
            )
        ],
    )
    assert starts == [1, 2, 3]


@pytest.mark.full
def test_a_seed_of_keras_repeats_the_order_too():
    _, text = resuming.build()
    lines = resuming.LINES

    def first():
        return order_of(keras_attn.pairs(lines, lines, text, text, 4))

    keras.utils.set_random_seed(1)
    one = first()
    other = first()
    keras.utils.set_random_seed(1)
    assert first() == one != other


@pytest.mark.full
@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
def test_mixed_precision_goes_on_likewise(policy, tmp_path):
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(policy)
    try:
        expected = resuming.train(tmp_path / "whole", decoder=True)
        with pytest.raises(Stop):
            resuming.train(tmp_path / "cut", stop_after(17), decoder=True)
        found = resuming.train(tmp_path / "cut", decoder=True)
    finally:
        keras.config.set_dtype_policy(before)
    require_equal(found, expected)
    assert tf.reduce_all([np.isfinite(x).all() for x in found])
