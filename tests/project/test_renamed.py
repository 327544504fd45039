"""Old names raise errors that say the new ones; what was saved still loads."""

import importlib
import subprocess
import sys

import pytest

import keras_attn
from keras_attn import renamed


@pytest.mark.parametrize("name", renamed.NAMES)
def test_an_old_name_says_where_it_is_now(name):
    new = renamed.NAMES[name]
    with pytest.raises(AttributeError, match=f"It is `keras_attn.{new}` since"):
        getattr(keras_attn, name)
    place, _, new = f"keras_attn.{new}".rpartition(".")
    module = keras_attn
    for part in place.split(".")[1:]:
        module = getattr(module, part, None) or importlib.import_module(place)
    assert hasattr(module, new)


@pytest.mark.parametrize("name", renamed.MODULES)
def test_an_old_module_says_where_it_is_now(name):
    new = f"keras_attn.{renamed.MODULES[name]}"
    with pytest.raises(ModuleNotFoundError, match=f"is `{new}` since"):
        importlib.import_module(f"keras_attn.{name}")
    importlib.import_module(new)


def test_a_module_that_never_was_is_not_found():
    with pytest.raises(ModuleNotFoundError, match="No module named"):
        importlib.import_module("keras_attn.nothing")


def test_a_program_of_before_is_told_the_new_module():
    done = subprocess.run(
        [sys.executable, "-c", "from keras_attn.search import Real"],
        capture_output=True,
        text=True,
    )
    assert "`keras_attn.search` is `keras_attn.decoding`" in done.stderr


@pytest.mark.parametrize(
    "call, new",
    [
        (lambda: keras_attn.ScaledDotAttention(heads=2), "num_heads=2"),
        (lambda: keras_attn.BeamSearch(width=3), "num_beams=3"),
    ],
)
def test_an_old_argument_says_the_new_one(call, new):
    with pytest.raises(ValueError, match=f"since version 0.4.*Pass `{new}`"):
        call()


@pytest.mark.parametrize(
    "name, new", [("width", "num_beams"), ("normalise", "normalize")]
)
def test_an_old_attribute_of_a_search_says_the_new_one(name, new):
    with pytest.raises(AttributeError, match=f"called '{new}' since"):
        getattr(keras_attn.BeamSearch(), name)
    assert not hasattr(keras_attn.GreedySearch(), name)
    with pytest.raises(AttributeError, match=f"attribute '{name}'$"):
        getattr(keras_attn.GreedySearch(), name)


def test_an_old_option_of_a_request_says_the_new_one(toys):
    with pytest.raises(ValueError, match="`width` is called `num_beams`"):
        toys["pre"](["a"], options={"width": 1})


def test_configs_of_before_have_the_old_arguments():
    search = keras_attn.BeamSearch(3)
    config = search.get_config()
    config["width"] = config.pop("num_beams")
    assert keras_attn.BeamSearch.from_config(config) == search
    attention = keras_attn.ScaledDotAttention(num_heads=2)
    config = attention.get_config()
    config["heads"] = config.pop("num_heads")
    made = keras_attn.ScaledDotAttention.from_config(config)
    assert made.num_heads == 2


def test_an_old_format_says_the_new_one(toys, tmp_path):
    with pytest.raises(ValueError, match='called "tf_saved_model" since'):
        toys["pre"].export(tmp_path, format="saved_model")


def test_a_splitter_of_before_is_told_the_new_attribute():
    class Own(keras_attn.Splitter):
        normalises = True
        separator = " "

        def split(self, strings):
            raise AssertionError

    with pytest.raises(ValueError, match="Set `normalizes = True`"):
        keras_attn.Text(["a"], split=Own())


def test_an_old_attribute_of_a_text_says_the_new_one():
    with pytest.raises(AttributeError, match="called 'without_sampling'"):
        _ = keras_attn.Text(["a"], "characters").likeliest


def test_a_search_of_before_is_told_the_new_method():
    class Own(keras_attn.Search):
        def choose(self, step, state):
            return step.likeliest()

    from keras_attn.decoding.search_trial import try_search

    with pytest.raises(Exception, match="called 'argmax' since version 0.4"):
        try_search(Own(max_length=3), 5)
