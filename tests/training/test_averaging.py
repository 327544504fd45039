"""`average`: the mean of models and of their files; `LastCheckpoints`.

Runs on every backend.
"""

import weakref

import keras
import numpy as np
import pytest
from keras import layers
from keras import ops

import keras_attn

# Keras reads variables in a way that NumPy 2 deprecates.
pytestmark = pytest.mark.filterwarnings("ignore:__array__ implementation")


def arrays(model):
    """Returns the variables of a model, in float64 where they are floats."""
    found = [np.asarray(ops.convert_to_numpy(x)) for x in model.variables]
    return [
        x.astype("float64") if keras.backend.is_float_dtype(str(x.dtype)) else x
        for x in found
    ]


def dense(units=2, **options):
    source = keras.Input((4,))
    return keras.Model(source, layers.Dense(units, **options)(source))


def plain(seed):
    keras.utils.set_random_seed(seed)
    return dense()


def normalised(seed):
    """A model with moving means, and with dropout, whose state is no float."""
    keras.utils.set_random_seed(seed)
    source = keras.Input((4,))
    x = layers.BatchNormalization()(source)
    x = layers.Dropout(0.5)(x)
    model = keras.Model(source, layers.Dense(3)(x))
    model.set_weights([np.random.normal(size=x.shape) for x in model.weights])
    return model


def sharing(seed):
    """A layer that is called twice, also within a model of its own."""
    keras.utils.set_random_seed(seed)
    source = keras.Input((4,))
    shared = layers.Dense(4)
    inner = keras.Model(source, layers.Dense(4)(shared(source)))
    outer = keras.Input((4,))
    return keras.Model(outer, inner(shared(shared(outer))))


def halves(seed):
    """Layers of 16 bits between those of 32."""
    keras.utils.set_random_seed(seed)
    source = keras.Input((4,))
    x = layers.Dense(5, dtype="bfloat16")(source)
    x = layers.Dense(6, dtype="float16")(x)
    return keras.Model(source, layers.Dense(3, dtype="mixed_bfloat16")(x))


def twins(seed):
    """Branches that only the order of their layers tells apart."""
    keras.utils.set_random_seed(seed)
    source = keras.Input((4,))
    first, second = layers.Dense(3), layers.Dense(3)
    after = second(source), first(source)
    outputs = layers.Subtract()([layers.Activation("tanh")(after[0]), after[1]])
    return keras.Model(source, outputs)


def recurrent(seed):
    keras.utils.set_random_seed(seed)
    source = keras.Input((None,), dtype="int32")
    target = keras.Input((None,), dtype="int32")
    embed = layers.Embedding(7, 4, mask_zero=True)
    memory = layers.Bidirectional(
        layers.GRU(2, return_sequences=True, dropout=0.1)
    )(embed(source))
    hidden = keras_attn.AttentionDecoder(
        layers.GRUCell(4), keras_attn.BahdanauAttention(4)
    )(embed(target), memory)
    return keras.Model([source, target], layers.Dense(7)(hidden))


def scheduled(seed):
    plain = recurrent(seed)
    return keras_attn.ScheduledSamplingModel(
        plain.inputs, plain.outputs[0], 0.5
    )


def sequential(seed):
    keras.utils.set_random_seed(seed)
    return keras.Sequential([keras.Input((4,)), layers.Dense(3)])


MAKERS = [
    normalised,
    plain,
    sharing,
    halves,
    twins,
    recurrent,
    scheduled,
    sequential,
]


def written(models, folder):
    paths = [folder / f"{i}.keras" for i in range(len(models))]
    for path, model in zip(paths, models, strict=True):
        model.save(path)
    return paths


def require_mean(mean, models, seeds=True):
    """Compares with the mean that NumPy computes, rounded to each dtype.

    Keras's files do not hold the states of draws, the `seeds`.
    """
    assert [tuple(x.shape) for x in mean.variables] == [
        tuple(x.shape) for x in models[0].variables
    ]
    for variable, found, *parts in zip(
        mean.variables, arrays(mean), *map(arrays, models), strict=True
    ):
        if not keras.backend.is_float_dtype(variable.dtype):
            if seeds or "seed" not in variable.path:
                np.testing.assert_array_equal(found, parts[-1])
            continue
        expected = ops.convert_to_tensor(np.mean(parts, axis=0), variable.dtype)
        expected = np.asarray(ops.convert_to_numpy(expected), "float64")
        np.testing.assert_array_equal(found, expected)


@pytest.mark.sample_cases(3)
@pytest.mark.parametrize("make", MAKERS, ids=[x.__name__ for x in MAKERS])
def test_each_weight_is_the_mean_and_the_models_stay_as_they_were(make):
    models = [make(seed) for seed in (1, 2, 3)]
    before = [arrays(x) for x in models]
    mean = keras_attn.average(models)
    require_mean(mean, models)
    for model, values in zip(models, before, strict=True):
        assert mean is not model
        for now, then in zip(arrays(model), values, strict=True):
            np.testing.assert_array_equal(now, then)


# Keras's files lose the weights of layers that nested models share.
@pytest.mark.full
@pytest.mark.sample_cases(1)
@pytest.mark.parametrize(
    "make",
    [x for x in MAKERS if x is not sharing],
    ids=[x.__name__ for x in MAKERS if x is not sharing],
)
def test_files_have_the_mean_of_their_models(make, tmp_path):
    models = [make(seed) for seed in (1, 2, 3)]
    mean = keras_attn.average(written(models, tmp_path))
    require_mean(mean, models, seeds=False)
    assert type(mean) is type(models[0])
    mixed = [tmp_path / "0.keras", models[1], str(tmp_path / "2.keras")]
    require_mean(keras_attn.average(mixed), models, seeds=False)


@pytest.mark.parametrize("make", [twins, sharing])
def test_the_mean_of_equal_models_computes_what_they_do(make):
    model = make(1)
    copied = keras_attn.average([model, model])
    inputs = np.random.normal(size=(2, 4)).astype("float32")
    np.testing.assert_allclose(
        ops.convert_to_numpy(copied(inputs)),
        ops.convert_to_numpy(model(inputs)),
        rtol=1e-6,
    )


@pytest.mark.full
def test_only_one_file_is_in_memory_at_a_time(tmp_path, monkeypatch):
    paths = written([plain(1), plain(2), plain(3)], tmp_path)
    read, alive = [], []
    load = keras.saving.load_model

    def spy(path, **options):
        alive.append(sum(x() is not None for x in read))
        model = load(path, **options)
        read.append(weakref.ref(model))
        return model

    monkeypatch.setattr(keras.saving, "load_model", spy)
    keras_attn.average(paths)
    assert alive == [0, 0, 0]


def test_a_trained_model_comes_back_without_its_optimizer(tmp_path):
    def loss(y_true, y_pred):
        return ops.mean(ops.square(y_true - y_pred), axis=-1)

    model = dense()
    model.compile("adam", loss, run_eagerly=True)
    model.fit(np.ones((2, 4)), np.ones((2, 2)), verbose=0)
    for given in ([model], written([model], tmp_path)):
        mean = keras_attn.average(given)
        require_mean(mean, [model])
        assert not mean.compiled and model.compiled


def test_many_small_numbers_are_not_lost():
    """Sums in bfloat16 would stop to grow at 256."""
    model = dense(dtype="bfloat16", use_bias=False)
    model.set_weights([np.ones((4, 2))])
    mean = keras_attn.average([model] * 300)
    assert arrays(mean)[0].tolist() == [[1.0, 1.0]] * 4


class Counter(layers.Layer):
    """Has integers of a shape."""

    def __init__(self, shape, value, **options):
        super().__init__(**options)
        self.shape, self.value = tuple(shape), value

    def build(self, input_shape):
        self.count = self.add_weight(
            name="count",
            shape=self.shape,
            dtype="int32",
            initializer=keras.initializers.Constant(self.value),
            trainable=False,
        )

    def call(self, inputs):
        return inputs

    def get_config(self):
        own = {"shape": self.shape, "value": self.value}
        return super().get_config() | own


def counting(shape, value):
    source = keras.Input((4,))
    return keras.Model(source, Counter(shape, value)(source))


def test_a_counter_is_that_of_the_last_model():
    mean = keras_attn.average([counting((), 3), counting((), 8)])
    assert arrays(mean)[0] == 8


def test_integers_that_differ_have_no_mean():
    keras_attn.average([counting((2,), 3), counting((2,), 3)])
    message = (
        r"counter\w*/count` of shape \(2,\) and dtype int32, which differs"
    )
    with pytest.raises(ValueError, match=message):
        keras_attn.average([counting((2,), 3), counting((2,), 8)])


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (
            lambda: dense(units=3),
            r"dense\w*/kernel` of shape \(4, 2\) and dtype float32 in "
            r"models\[0\], and `dense\w*/kernel` of shape \(4, 3\)",
        ),
        (
            lambda: dense(use_bias=False),
            r"is `dense\w*/bias` of shape \(2,\) .* and missing in models\[1\]",
        ),
        (
            lambda: dense(dtype="float16"),
            r"of shape \(4, 2\) and dtype float16 in models\[1\]",
        ),
        (
            lambda: keras.Sequential([dense(), layers.BatchNormalization()]),
            r"is missing in models\[0\], and `\w+/batch_norm\w*/gamma` of",
        ),
    ],
    ids=["shape", "less", "dtype", "more"],
)
def test_the_first_variable_that_differs_is_named(other, message):
    other = other()
    if not other.built:
        other.build((None, 4))
    with pytest.raises(ValueError, match=message):
        keras_attn.average([dense(), other])


def test_a_variable_of_another_name_differs():
    other = keras.Sequential([keras.Input((4,)), Named(name="mine")])
    with pytest.raises(ValueError, match="mine/matrix` of shape"):
        keras_attn.average([dense(use_bias=False), other])


class Named(layers.Layer):
    def build(self, input_shape):
        self.matrix = self.add_weight(name="matrix", shape=(4, 2))

    def call(self, inputs):
        return ops.matmul(inputs, self.matrix)


def test_a_model_that_diverged_is_named(tmp_path):
    paths = written([plain(1), plain(2)], tmp_path)
    bad = plain(3)
    bad.set_weights([np.full((4, 2), np.nan), np.zeros(2)])
    with pytest.raises(ValueError, match=r"which holds NaN in models\[2\]\. "):
        keras_attn.average([*paths, bad])


@pytest.mark.full
def test_what_is_no_model_is_refused(tmp_path):
    text, weights = tmp_path / "a.keras", tmp_path / "a.weights.h5"
    text.write_text("no model")
    dense().save_weights(weights)
    for given, message in (
        ([], "at least one model"),
        ("a.keras", "a list of models"),
        (dense(), "a list of models"),
        (3, "a list of models"),
        ([3], r"models\[0\]=3"),
        ([tmp_path / "none.keras"], "none.keras, which does not exist"),
        ([tmp_path], "Received: the directory"),
        ([text], "a.keras, which is no such file"),
        ([weights], "For each file make the model"),
        ([keras.Sequential([layers.Dense(2)])], "Build the model first"),
    ):
        with pytest.raises(ValueError, match=message):
            keras_attn.average(given)


@pytest.mark.full
def test_an_error_of_keras_says_which_file(tmp_path):
    model = keras.Sequential([keras.Input((4,)), Named()])
    path = tmp_path / "own.keras"
    model.save(path)
    with pytest.raises(TypeError, match="Named") as raised:
        keras_attn.average([path])
    assert str(path) in raised.value.__notes__[0]
    with keras.saving.custom_object_scope({"Named": Named}):
        require_mean(keras_attn.average([path]), [model])


# LastCheckpoints


def train(*callbacks, epochs=1, seed=1, **options):
    """Trains with four batches an epoch."""
    model = normalised(seed)
    model.compile("sgd", "mse", run_eagerly=True)
    data = np.random.default_rng(0).normal(size=(8, 4))
    model.fit(
        data,
        data[:, :3],
        epochs=epochs,
        batch_size=2,
        verbose=0,
        callbacks=[*callbacks],
        **options,
    )
    return model


def names(callback):
    assert callback.paths == sorted(callback.directory.iterdir())
    return [x.stem for x in callback.paths]


def test_the_last_epochs_are_kept(tmp_path):
    last = keras_attn.LastCheckpoints(tmp_path / "last", keep=2)
    assert last.paths == []
    model = train(last, epochs=3)
    assert names(last) == ["epoch-0002", "epoch-0003"]
    found = keras.saving.load_model(last.paths[-1], compile=False)
    for now, then in zip(found.get_weights(), model.get_weights(), strict=True):
        np.testing.assert_array_equal(now, then)
    parts = [keras.saving.load_model(x, compile=False) for x in last.paths]
    require_mean(keras_attn.average(last.paths), parts, seeds=False)


@pytest.mark.sample_cases(1)
@pytest.mark.parametrize(
    ("save_freq", "steps"), [(3, [3, 6, 9, 12]), (6, [6, 12]), (5, [5, 10])]
)
def test_models_are_saved_every_so_many_batches(save_freq, steps, tmp_path):
    last = keras_attn.LastCheckpoints(tmp_path, keep=9, save_freq=save_freq)
    train(last, epochs=3)
    assert names(last) == [f"step-{x:08}" for x in steps]


@pytest.mark.parametrize(
    ("policy", "accumulated", "size"),
    [
        ("float32", 4, 1.0),
        ("mixed_float16", 4, 1.0),
        ("mixed_float16", None, 200.0),  # some gradients are infinite
    ],
)
def test_batches_without_an_update_count_too(
    policy, accumulated, size, tmp_path
):
    layer = layers.Dense(1, dtype=policy)
    model = keras.Sequential([keras.Input((3,)), layer])
    optimizer = keras.optimizers.SGD(
        1e-3, gradient_accumulation_steps=accumulated
    )
    if policy == "mixed_float16":
        optimizer = keras.optimizers.LossScaleOptimizer(optimizer)
    model.compile(optimizer, "mse", run_eagerly=True)

    def fit(first, end):
        last = keras_attn.LastCheckpoints(tmp_path, keep=3, save_freq=5)
        model.fit(
            np.full((10, 3), size, "float32"),
            np.full((10, 1), 3e3, "float32"),
            batch_size=1,
            initial_epoch=first,
            epochs=end,
            verbose=0,
            callbacks=[last],
        )
        return names(last)

    assert fit(0, 2) == [f"step-{x:08}" for x in (10, 15, 20)]
    assert int(optimizer.iterations) < 20
    assert fit(2, 3) == [f"step-{x:08}" for x in (20, 25, 30)]


@pytest.mark.full
def test_a_training_that_goes_on_adds_to_the_files(tmp_path):
    for save_freq in "epoch", 3:
        folder = tmp_path / str(save_freq)
        last = keras_attn.LastCheckpoints(folder, keep=3, save_freq=save_freq)
        model = train(last, epochs=2)
        again = keras_attn.LastCheckpoints(folder, keep=3, save_freq=save_freq)
        model.fit(
            np.ones((8, 4)),
            np.ones((8, 3)),
            initial_epoch=2,
            epochs=4,
            batch_size=2,
            verbose=0,
            callbacks=[again],
        )
        expected = {
            "epoch": ["epoch-0002", "epoch-0003", "epoch-0004"],
            3: [f"step-{x:08}" for x in (9, 12, 15)],
        }
        assert names(again) == expected[save_freq]


class Killed(Exception):
    pass


@pytest.mark.full
@pytest.mark.parametrize("save_freq", ["epoch", 3])
def test_with_resume_training_a_run_that_was_cut_off_saves_the_same(
    save_freq, tmp_path
):
    def run(name, dies_at=None):
        def die(batch, logs):
            die.left -= 1
            if not die.left:
                raise Killed

        die.left = dies_at or -1
        last = keras_attn.LastCheckpoints(tmp_path / name, 3, save_freq)
        train(
            last,
            keras.callbacks.LambdaCallback(on_train_batch_end=die),
            keras_attn.ResumeTraining(tmp_path / f"{name}-resume"),
            epochs=3,
            shuffle=False,
        )
        return last

    expected = run("whole")
    with pytest.raises(Killed):
        run("cut", dies_at=7)
    found = run("cut")
    assert names(found) == names(expected)
    for one, other in zip(found.paths, expected.paths, strict=True):
        models = [
            keras.saving.load_model(x, compile=False) for x in (one, other)
        ]
        for x, y in zip(*(m.get_weights() for m in models), strict=True):
            np.testing.assert_array_equal(x, y)


@pytest.mark.full
def test_a_training_that_begins_anew_replaces_the_files_of_another(tmp_path):
    train(keras_attn.LastCheckpoints(tmp_path, keep=3), epochs=4)
    last = keras_attn.LastCheckpoints(tmp_path, keep=3)
    assert len(last.paths) == 3  # nothing is lost before the first save
    train(last, epochs=2, seed=2)
    assert names(last) == ["epoch-0001", "epoch-0002"]


@pytest.mark.full
def test_a_save_that_was_cut_off_leaves_no_model(tmp_path, monkeypatch):
    last = keras_attn.LastCheckpoints(tmp_path, keep=2)
    train(last, epochs=2)
    save = keras.Model.save

    def cut_off(model, path, **options):
        save(model, path, **options)
        path.write_bytes(path.read_bytes()[:100])
        raise KeyboardInterrupt

    monkeypatch.setattr(keras.Model, "save", cut_off)
    with pytest.raises(KeyboardInterrupt):
        train(last, epochs=3)
    assert [x.stem for x in last.paths] == ["epoch-0001", "epoch-0002"]
    keras_attn.average(last.paths)
    monkeypatch.undo()
    train(last, epochs=3)
    assert names(last) == ["epoch-0002", "epoch-0003"]


def test_other_files_of_the_directory_stay(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    (tmp_path / "best.keras").write_text("mine")
    train(keras_attn.LastCheckpoints(tmp_path, keep=1), epochs=2)
    found = sorted(x.name for x in tmp_path.iterdir())
    assert found == ["best.keras", "epoch-0002.keras", "notes.txt"]


@pytest.mark.parametrize(
    "options", [{"keep": 0}, {"save_freq": 0}, {"save_freq": "batch"}]
)
def test_wrong_numbers_are_refused(options, tmp_path):
    with pytest.raises(ValueError, match="must be a positive integer"):
        keras_attn.LastCheckpoints(tmp_path, **options)
