"""Saved translators load in another process, without training objects."""

import json
import os
import pathlib
import shutil
import subprocess
import sys
import textwrap
import zipfile

import keras
import numpy as np
import pytest
from keras import layers
from support import toys as toy_models

import keras_attn
from keras_attn import Translator

SOURCE, TARGET, LINES = toy_models.SOURCE, toy_models.TARGET, toy_models.LINES
SEARCH = keras_attn.GreedySearch(max_length=6)


@keras.saving.register_keras_serializable("test_translator_saved")
class Twice(layers.Dense):
    """A layer that is registered."""

    def call(self, inputs):
        return 2 * super().call(inputs)


class Schedule(keras.optimizers.schedules.LearningRateSchedule):
    """A schedule that no other process knows."""

    def __call__(self, step):
        return 0.01

    def get_config(self):
        return {}


class WithoutConfig(keras.optimizers.schedules.LearningRateSchedule):
    """An object that Keras cannot even write."""

    def __call__(self, step):
        return 0.01


class Ones(keras.metrics.Metric):
    """A metric that no other process knows."""

    def update_state(self, y_true, y_pred, sample_weight=None):
        pass

    def result(self):
        return 1.0


def my_loss(y_true, y_pred):
    return keras_attn.SequenceCrossentropy()(y_true, y_pred)


def made(last=layers.Dense, length=None, **options):
    """A model whose last layer is of a class."""
    source = keras.Input((None,), dtype="int32")
    target = keras.Input((length,), dtype="int32")
    hidden = keras_attn.AttentionDecoder(
        layers.GRUCell(8), keras_attn.BahdanauAttention(8)
    )(
        layers.Embedding(TARGET.size, 8, mask_zero=True)(target),
        layers.Embedding(SOURCE.size, 8, mask_zero=True)(source),
    )
    logits = last(TARGET.size, **options)(hidden)
    model = keras.Model([source, target], logits)
    toy_models.speak_up(model, seed=5)
    return model


def translator_of(model):
    return Translator(model, SOURCE, TARGET, SEARCH)


def train(model):
    data = keras_attn.pairs(LINES, ["AA B"] * len(LINES), SOURCE, TARGET)
    model.fit(data, epochs=2, verbose=0, shuffle=False)


def decoded_by_another_process(directory, before=""):
    program = f"""
        {before}
        import keras_attn
        translator = keras_attn.Translator.load({str(directory)!r})
        print(translator({LINES!r}).text)
        """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        check=True,
        capture_output=True,
        text=True,
    )
    return done.stdout.splitlines()[-1]


def names_in(path):
    """Returns the names of classes and variables in a `.keras` file."""
    import h5py

    with zipfile.ZipFile(path) as archive:
        config = archive.read("config.json").decode()
        found = []
        with archive.open("model.weights.h5") as file:
            h5py.File(file).visit(found.append)
    return config, found


@pytest.mark.full
@pytest.mark.parametrize("schedule", [Schedule, WithoutConfig])
def test_a_model_compiled_with_parts_of_its_own_is_loaded_by_another_process(
    schedule, tmp_path
):
    model = made()
    model.compile(
        keras.optimizers.Adam(schedule()),
        loss=my_loss,
        metrics=[Ones()],
        jit_compile=False,
    )
    train(model)
    translator = translator_of(model)
    optimizer, steps = model.optimizer, int(model.optimizer.iterations)
    attributes = set(vars(model))
    translator.save(tmp_path)
    assert decoded_by_another_process(tmp_path) == repr(translator(LINES).text)
    config, variables = names_in(tmp_path / "model.keras")
    assert "Schedule" not in config and "Ones" not in config
    assert not any("optimizer" in x for x in variables)
    # The user's own model goes on training where it was.
    assert model.optimizer is optimizer and model.compiled
    assert set(vars(model)) == attributes
    train(model)
    assert int(model.optimizer.iterations) > steps


@pytest.mark.full
def test_a_model_within_that_was_compiled_is_loaded_too(tmp_path):
    ids = keras.Input((None,), dtype="int32")
    embed = layers.Embedding(SOURCE.size, 8, mask_zero=True)
    inner = keras.Model(ids, embed(ids))
    inner.compile(
        keras.optimizers.Adam(WithoutConfig()),
        "mse",
        [Ones()],
        jit_compile=False,
    )
    source = keras.Input((None,), dtype="int32")
    target = keras.Input((None,), dtype="int32")
    hidden = keras_attn.AttentionDecoder(
        layers.GRUCell(8), keras_attn.BahdanauAttention(8)
    )(layers.Embedding(TARGET.size, 8, mask_zero=True)(target), inner(source))
    model = keras.Model([source, target], layers.Dense(TARGET.size)(hidden))
    translator = translator_of(model)
    translator.save(tmp_path)
    assert inner.compiled and inner.optimizer is not None
    assert Translator.load(tmp_path)(LINES).text == translator(LINES).text


@pytest.mark.full
@pytest.mark.parametrize("within", [False, True])
def test_what_an_earlier_version_saved_with_a_loss_of_ones_own_is_loaded(
    within, tmp_path
):
    """The file holds optimizer and compile state, as files did.

    Nothing of it is registered with Keras, so it is as unknown here as in
    another process.
    """
    model = made()
    model.compile(
        keras.optimizers.Adam(Schedule()),
        loss=my_loss,
        metrics=[Ones()],
        jit_compile=False,
    )
    train(model)
    if within:
        outer = [keras.Input((None,), dtype="int32") for _ in range(2)]
        model = keras.Model(outer, model(outer))
    translator = translator_of(model)
    translator.save(tmp_path)
    model.save(tmp_path / "model.keras")
    assert "Schedule" in names_in(tmp_path / "model.keras")[0]
    assert Translator.load(tmp_path)(LINES).text == translator(LINES).text


@pytest.mark.full
def test_a_saved_translator_is_no_larger_for_its_training(tmp_path):
    model = made()
    translator_of(model).save(tmp_path / "fresh")
    model.compile(
        "adam", loss=keras_attn.SequenceCrossentropy(), jit_compile=False
    )
    train(model)
    translator_of(model).save(tmp_path / "trained")
    fresh, trained = (
        (tmp_path / x / "model.keras").stat().st_size
        for x in ("fresh", "trained")
    )
    assert trained < 1.05 * fresh


class Thrice(layers.Dense):
    """A layer that is not registered."""

    def call(self, inputs):
        return 3 * super().call(inputs)


@pytest.mark.full
def test_layers_that_are_not_registered_go_by_custom_objects(tmp_path):
    translator = translator_of(made(Thrice))
    translator.save(tmp_path)
    with pytest.raises(ValueError) as error:
        Translator.load(tmp_path)
    assert (
        "holds the class 'Thrice', which this process must know. Received: "
        "custom_objects=None. Pass it in `Translator.load(directory, "
        "custom_objects={'Thrice': Thrice})`, or decorate it with "
        "`@keras.saving.register_keras_serializable()` before saving and "
        "import its module before loading." in str(error.value)
    )
    with pytest.raises(ValueError, match=r"Received: custom_objects=\['No'\]"):
        Translator.load(tmp_path, custom_objects={"No": Thrice})
    loaded = Translator.load(tmp_path, custom_objects={"Thrice": Thrice})
    assert loaded(LINES).text == translator(LINES).text


@pytest.mark.full
def test_functions_that_are_not_registered_go_by_custom_objects(tmp_path):
    def gently(x):
        return 0.5 * x

    translator = translator_of(made(activation=gently))
    translator.save(tmp_path)
    with pytest.raises(ValueError, match="holds the function 'gently'"):
        Translator.load(tmp_path)
    loaded = Translator.load(tmp_path, custom_objects={"gently": gently})
    assert loaded(LINES).text == translator(LINES).text


@pytest.mark.full
def test_registered_layers_need_nothing_but_their_module(tmp_path):
    translator = translator_of(made(Twice))
    translator.save(tmp_path)
    with pytest.raises(subprocess.CalledProcessError) as error:
        decoded_by_another_process(tmp_path)
    assert "holds the class 'Twice'" in error.value.stderr
    here = pathlib.Path(__file__)
    paths = [str(here.parent), str(here.parents[1])]
    before = f"import sys; sys.path[:0] = {paths}; import {__name__}"
    assert decoded_by_another_process(tmp_path, before) == repr(
        translator(LINES).text
    )


@pytest.mark.full
def test_targets_of_one_length_alone_are_saved_with_a_layer_of_ones_own(
    tmp_path,
):
    translator = translator_of(made(Twice, length=6))
    translator.save(tmp_path)
    loaded = Translator.load(tmp_path)
    assert loaded(LINES).text == translator(LINES).text


def test_custom_objects_that_are_no_dictionary_are_refused(tmp_path):
    with pytest.raises(ValueError, match=r"must be a dictionary.*Received: \["):
        Translator.load(tmp_path, custom_objects=[Thrice])


def tied(nested):
    """Returns logits by the embedding's matrix, of a nested model or not."""
    embed = layers.ReversibleEmbedding(
        TARGET.size, 8, mask_zero=True, name="tied"
    )
    source = keras.Input((None,), dtype="int32")
    target = keras.Input((None,), dtype="int32")
    hidden = keras_attn.AttentionDecoder(
        layers.GRUCell(8), keras_attn.BahdanauAttention(8)
    )(
        embed(target),
        layers.Embedding(SOURCE.size, 8, mask_zero=True)(source),
    )
    inner = keras.Model([source, target], hidden, name="backbone")
    if nested:
        outer = [keras.Input((None,), dtype="int32") for _ in range(2)]
        model = keras.Model(outer, embed(inner(outer), reverse=True))
    else:
        model = keras.Model(inner.inputs, embed(inner.output, reverse=True))
    toy_models.speak_up(model, seed=4)
    return model


def test_a_layer_shared_with_a_model_within_is_refused_when_saving(tmp_path):
    translator = translator_of(tied(nested=True))
    directory = tmp_path / "saved"
    with pytest.raises(ValueError) as error:
        translator.save(directory)
    assert str(error.value).startswith(
        "The model can be saved, but not loaded again, so nothing was "
        "written. 'tied' (ReversibleEmbedding) belongs to the model "
        f"'backbone' and to a model around it, and Keras {keras.__version__} "
        "loses the weights of such layers. Do not call the inner model; build "
        "the outer one on its tensors, "
        "`keras.Model(inner.inputs, layer(inner.output))`, which shares the "
        'weights. Or keep `model.save_weights("model.weights.h5")`, and build '
        "the model in code. Received, on a trial: ValueError: "
    )
    assert not directory.exists()


@pytest.mark.full
def test_what_that_message_advises_works(tmp_path):
    translator = translator_of(tied(nested=False))
    translator.save(tmp_path / "saved")
    loaded = Translator.load(tmp_path / "saved")
    assert loaded(LINES).text == translator(LINES).text
    nested, fresh = tied(nested=True), tied(nested=True)
    fresh.set_weights([0 * x for x in fresh.get_weights()])
    nested.save_weights(tmp_path / "model.weights.h5")
    fresh.load_weights(tmp_path / "model.weights.h5")
    ids = SOURCE.ids(LINES)
    np.testing.assert_array_equal(fresh([ids, ids]), nested([ids, ids]))


class Forgetful(layers.Dense):
    """A layer whose config lacks the argument `strength`."""

    def __init__(self, units, strength=1.0, **kwargs):
        super().__init__(units, **kwargs)
        self.strength = strength

    def call(self, inputs):
        return self.strength * super().call(inputs)


class Demanding(Forgetful):
    """A layer that cannot be made without this argument."""

    def __init__(self, units, *, strength, **kwargs):
        super().__init__(units, strength, **kwargs)


@pytest.mark.full
@pytest.mark.sample_cases(1)
@pytest.mark.parametrize("kind", [Forgetful, Demanding])
def test_a_layer_that_forgets_its_arguments_is_refused_when_saving(
    kind, tmp_path
):
    translator = translator_of(made(kind, strength=3.0))
    with pytest.raises(
        ValueError, match=rf"classes of your own, \['{kind.__name__}'\]. Does"
    ):
        translator.save(tmp_path / "saved")
    assert not (tmp_path / "saved").exists()


@pytest.mark.full
def test_a_failing_save_leaves_what_was_there_whole(tmp_path):
    first = translator_of(made())
    first.save(tmp_path)
    (tmp_path / "notes").write_text("mine")

    def contents():
        return {x.name: x.read_bytes() for x in tmp_path.iterdir()}

    before = contents()
    with pytest.raises(ValueError, match="not loaded again"):
        translator_of(tied(nested=True)).save(tmp_path)
    assert contents() == before
    assert Translator.load(tmp_path)(LINES).text == first(LINES).text


@pytest.mark.full
def test_saving_again_leaves_no_models_of_before_and_touches_nothing_else(
    toys, tmp_path
):
    toys["ensemble"].save(tmp_path)
    (tmp_path / "notes").write_text("mine")
    toys["greedy"].save(tmp_path)
    assert sorted(os.listdir(tmp_path)) == [
        "model.keras",
        "notes",
        "source.txt",
        "source.txt.json",
        "target.txt",
        "target.txt.json",
        "translator.json",
    ]
    options = json.loads((tmp_path / "translator.json").read_text())
    assert options["models"] == ["model.keras"]


@pytest.mark.full
@pytest.mark.parametrize("which", ["", "1"])
def test_the_directory_of_an_export_is_called_one(which, toys, tmp_path):
    toys["greedy"].export(tmp_path)
    directory = tmp_path / which
    with pytest.raises(ValueError) as error:
        Translator.load(directory)
    assert str(error.value) == (
        "`Translator.load` needs the models that `Translator.save` writes. "
        f"Received: {directory} holds an export of `Translator.export()`, a "
        "graph to be served. Serve it, `python -m keras_attn_serving "
        f"--model_base_path={tmp_path} --model_name=NAME`, or load its "
        f"signatures, `tf.saved_model.load('{tmp_path / '1'}').signatures`. "
        "To load a translator, call `Translator.save(directory)` too when "
        "you export."
    )


OUTSIDE = ["../model.keras", "..", "a/model.keras", "", None, "model.keras/"]


@pytest.mark.full
def test_a_saved_translator_reads_no_model_of_another_directory(toys, tmp_path):
    toys["ensemble"].save(tmp_path / "saved")
    path = tmp_path / "saved" / "translator.json"
    options = json.loads(path.read_text())
    shutil.copy(tmp_path / "saved" / "model-1.keras", tmp_path / "model.keras")
    for name in [*OUTSIDE, str(tmp_path / "model.keras")]:
        options["models"][1] = name
        path.write_text(json.dumps(options))
        with pytest.raises(ValueError) as error:
            Translator.load(tmp_path / "saved")
        words = "may name only files that lie beside it, without a directory. "
        assert f"{path} {words}Received: {name!r}." in str(error.value)


@pytest.mark.full
def test_a_saved_translator_may_consist_of_links(toys, tmp_path):
    """As in caches of models, whose files are links to another folder."""
    toys["greedy"].save(tmp_path / "blobs")
    (tmp_path / "saved").mkdir()
    for file in (tmp_path / "blobs").iterdir():
        (tmp_path / "saved" / file.name).symlink_to(file)
    loaded = Translator.load(tmp_path / "saved")
    assert loaded(LINES).text == toys["greedy"](LINES).text


def test_what_a_directory_holds_instead_is_said(tmp_path):
    (tmp_path / "model.keras").write_text("")
    with pytest.raises(
        FileNotFoundError,
        match=r"translator.json is missing.*holds \['model.keras'\]",
    ):
        Translator.load(tmp_path)
    with pytest.raises(FileNotFoundError, match="There is no directory"):
        Translator.load(tmp_path / "nowhere")
