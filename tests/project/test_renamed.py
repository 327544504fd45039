"""Old names raise errors that say the new ones; what was saved still loads."""

import copy
import importlib
import subprocess
import sys

import keras
import pytest

import keras_attn
from keras_attn import renamed
from keras_attn.decoding import Integer


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


def test_a_room_of_texts_has_its_names():
    from keras_attn import text

    for name in text.__all__:
        assert getattr(text, name).__name__ == name
    assert text.Text is keras_attn.Text
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = text.nothing


def test_an_old_name_of_decoding_is_told_as_an_attribute_too():
    with pytest.raises(AttributeError, match="is `keras_attn.decoding.Searc"):
        _ = keras_attn.decoding.Task
    with pytest.raises(AttributeError, match="has no attribute 'nothing'$"):
        _ = keras_attn.decoding.nothing


def test_a_module_that_never_was_is_not_found():
    with pytest.raises(ModuleNotFoundError, match="No module named"):
        importlib.import_module("keras_attn.nothing")


@pytest.mark.parametrize(
    "program, new",
    [
        ("from keras_attn.search import Real", "decoding"),
        ("from keras_attn import Decode", "DecodingMetrics"),
        ("from keras_attn import hub", "models.keras_hub"),
        ("from keras_attn.decoding import Task", "decoding.SearchInput"),
    ],
)
def test_a_program_of_before_is_told_the_new_name(program, new):
    with pytest.raises(ModuleNotFoundError, match=f"is `keras_attn.{new}` si"):
        exec(program)
    assert not hasattr(keras_attn, program.split()[-1])


@pytest.mark.full
def test_every_layer_comes_with_a_star_where_tensorflow_is_missing():
    program = (
        "import sys, keras_attn\n"
        "sys.modules['tensorflow'] = None\n"
        "from keras_attn import *\n"
        "print(BahdanauAttention.__name__, 'Translator' in globals())"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True
    )
    assert done.stdout.split() == ["BahdanauAttention", "False"], done.stderr


@pytest.mark.parametrize(
    "call, new",
    [
        (lambda: keras_attn.ScaledDotAttention(heads=2), "num_heads=2"),
        (lambda: keras_attn.BeamSearch(width=3), "num_beams=3"),
        (
            lambda: keras_attn.SpecialTokens(by_prefix=(5,)),
            r"prompt_tokens=\(5,\)",
        ),
    ],
)
def test_an_old_argument_says_the_new_one(call, new):
    with pytest.raises(ValueError, match=f"since version 0.4.*Pass `{new}`"):
        call()


OWNERS = {
    "BeamSearch.width": keras_attn.BeamSearch,
    "BeamSearch.normalise": keras_attn.BeamSearch,
    "GreedySearch.asked": keras_attn.GreedySearch,
    "ScaledDotAttention.heads": keras_attn.ScaledDotAttention,
    "SpecialTokens.silent": keras_attn.SpecialTokens,
    "SpecialTokens.by_prefix": keras_attn.SpecialTokens,
    "Text.likeliest": lambda: keras_attn.Text(["a"], "characters"),
}


@pytest.mark.parametrize("name", OWNERS)
def test_an_old_attribute_says_the_new_one(name):
    owner, attribute = OWNERS[name](), name.partition(".")[2]
    with pytest.raises(AttributeError, match=f"`{name}` is called `") as error:
        getattr(owner, attribute)
    new = str(error.value).split("`")[3]
    assert hasattr(owner, new) and not hasattr(owner, attribute)
    assert hasattr(copy.deepcopy(owner), new)


@pytest.mark.full
def test_an_old_option_of_a_request_says_the_new_one(toys):
    with pytest.raises(ValueError, match="`width` is called `num_beams`"):
        toys["pre"](["a"], options={"width": 1})


def test_an_old_argument_of_a_step_says_the_new_one(toys):
    cut = toys["pre"].pipeline.cut
    with pytest.raises(ValueError, match="`apart` is called `per_row_posit"):
        cut.step(None, None, None, apart=True)
    with pytest.raises(TypeError, match=r"no such argument.*\['other'\]"):
        cut.step(None, None, None, other=True)


def test_configs_of_before_have_the_old_arguments():
    special = keras_attn.SpecialTokens.of({"by_prefix": (5,)})
    assert special == keras_attn.SpecialTokens(prompt_tokens=(5,))
    search = keras_attn.BeamSearch(3)
    config = search.get_config()
    config["width"] = config.pop("num_beams")
    assert keras_attn.BeamSearch.from_config(config) == search
    attention = keras_attn.ScaledDotAttention(num_heads=2)
    config = attention.get_config()
    config["heads"] = config.pop("num_heads")
    made = keras_attn.ScaledDotAttention.from_config(config)
    assert made.num_heads == 2


@keras.saving.register_keras_serializable("tests")
class OfHeads(keras_attn.Attention):
    """Has an argument of its own with the old name."""

    def __init__(self, heads=4, **kwargs):
        super().__init__(keras_attn.DotScore(), num_heads=heads, **kwargs)

    def get_config(self):
        found = super().get_config()
        kept = {x: found[x] for x in ("name", "head_dim", "value_dim")}
        return kept | {"heads": self.num_heads}


def test_a_subclass_may_have_an_argument_of_the_old_name():
    assert OfHeads.from_config(OfHeads(2).get_config()).num_heads == 2


class Narrower(keras_attn.BeamSearch):
    """Declares the number of beams anew."""

    num_beams: int = Integer(default=3, low=1, high=8, request=True)


def test_an_option_declared_anew_keeps_its_name_of_before():
    assert Narrower.from_config({"width": 4}) == Narrower(4)
    assert Narrower().request_options.in_exports("num_beams") == "width"
    with pytest.raises(ValueError, match="Pass `num_beams=4`"):
        Narrower(width=4)


@pytest.mark.parametrize(
    "option, name",
    [
        (Integer(default=1, low=1), "width"),
        (Integer(default=2, low=1, high="width"), "num_hypotheses"),
    ],
)
def test_an_option_of_the_old_name_is_refused(option, name):
    with pytest.raises(TypeError, match="'width' is called 'num_beams' since"):
        type("Own", (keras_attn.BeamSearch,), {name: option})


def test_an_old_format_says_the_new_one(toys, tmp_path):
    with pytest.raises(ValueError, match='called "tf_saved_model" since'):
        toys["pre"].export(tmp_path, format="saved_model")


def test_a_splitter_of_before_is_told_the_new_attribute():
    class Own(keras_attn.Splitter):
        normalises = True
        separator = " "

        def split(self, strings):
            raise AssertionError

    with pytest.raises(ValueError, match="Pass `normalizes=True`"):
        keras_attn.Text(["a"], split=Own())


def test_a_search_of_before_is_told_the_new_method():
    class Own(keras_attn.Search):
        def choose(self, step, state):
            return step.likeliest()

    from keras_attn.decoding.search_trial import try_search

    with pytest.raises(Exception, match="`Step.likeliest` is called `argmax`"):
        try_search(Own(max_length=3), 5)
