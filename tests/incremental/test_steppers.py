"""A user's own layers, decoded token by token by the user's steppers.

Only public names of the package are used here.
"""

import keras
import numpy as np
import pytest
from keras import layers
from keras import ops
from support import toys
from support.cuts import SOURCE
from support.cuts import TARGET
from support.cuts import assert_cut_equals_whole
from support.cuts import speak_up
from support.cuts import with_path
from support.lazily import ask
from support.lazily import some

import keras_attn
from keras_attn import Incremental

# Keras warns if a layer drops a mask; here that is often intended.
pytestmark = pytest.mark.filterwarnings(
    "ignore:Layer '.*' .* was passed an input with a mask:UserWarning"
)


# A layer that remembers positions, and its stepper, as a user writes them.


def running_mean(inputs):
    count = ops.arange(1, ops.shape(inputs)[1] + 1)
    count = ops.cast(count, inputs.dtype)
    return ops.cumsum(inputs, axis=1) / count[:, None]


@keras.saving.register_keras_serializable("tests")
class CausalMean(layers.Layer):
    """The mean of all positions so far."""

    def call(self, inputs):
        return running_mean(inputs)


@keras_attn.stepper_for(CausalMean)
class CausalMeanStepper(keras_attn.Stepper):
    """Keeps the sum."""

    uses_position = True

    def start(self, prepared, batch, beams, max_length):
        width = self.reads["inputs"].shape[-1]
        return ops.zeros((batch, beams, width), self.layer.compute_dtype)

    def step(self, inputs, prepared, state, position):
        total = state + inputs["inputs"]
        count = ops.cast(position + 1, total.dtype)
        return total / ops.expand_dims(count, -1), None, total


def over_means(mean):
    """A model that attends with the mean of the target so far."""

    def build(x, memory):
        x = mean(x)
        return x + keras_attn.BahdanauAttention(4)(x, memory)

    return speak_up(with_path(build))


def check(model):
    Incremental(model).check(*map(ops.convert_to_tensor, [SOURCE, TARGET]))


def test_a_layer_with_a_stepper_computes_what_the_whole_model_does():
    assert_cut_equals_whole(over_means(CausalMean()))


def test_it_is_stepped_within_a_model_within_the_model():
    inner = keras.Sequential([CausalMean(), layers.Dense(6), CausalMean()])
    assert_cut_equals_whole(over_means(inner))


def test_hypotheses_may_stand_at_different_positions():
    cut = Incremental(over_means(CausalMean()))
    encoded = cut.encode(ops.convert_to_tensor(SOURCE))
    states, expected = [cut.start(encoded, 1, 4)], []
    for t in range(4):
        logits, _, state = cut.step(TARGET[:, t : t + 1], states[-1], encoded)
        states.append(state)
        expected.append(logits)
    at = [0, 2, 3]  # of each row
    state = keras.tree.map_structure(
        lambda *x: ops.stack([x[t][row] for row, t in enumerate(at)]), *states
    )
    tokens = np.array([[TARGET[row, t]] for row, t in enumerate(at)])
    logits, _, _ = cut.step(tokens, state, encoded, per_row_position=True)
    for row, t in enumerate(at):
        np.testing.assert_allclose(logits[row], expected[t][row], atol=1e-5)


def test_rows_are_taken_of_what_is_prepared_and_of_the_state():
    cut = Incremental(over_means(CausalMean()))
    encoded = cut.encode(ops.convert_to_tensor(SOURCE))
    _, _, state = cut.step(TARGET[:, :1], cut.start(encoded), encoded)
    expected, _, _ = cut.step(TARGET[:, 1:2], state, encoded)
    rows = [2, 0]
    state, encoded = keras.tree.map_structure(
        lambda x: None if x is None else ops.take(x, rows, axis=0),
        (state, encoded),
    )
    logits, _, _ = cut.step(TARGET[rows, 1:2], state, encoded)
    np.testing.assert_allclose(logits, ops.take(expected, rows, 0), atol=1e-5)


class Unstepped(layers.Layer):
    def call(self, inputs):
        return running_mean(inputs)


def test_without_its_stepper_the_layer_is_refused():
    model = over_means(Unstepped(name="culprit"))
    with pytest.raises(
        ValueError,
        match="'culprit' .* gives another result .*stepper_for.Unstepped.",
    ):
        check(model)


class Forgetful(CausalMean):
    def call(self, inputs):
        return ops.cumsum(inputs, axis=1)


@keras_attn.stepper_for(Forgetful)
class DividingStepper(CausalMeanStepper):
    """Divides, unlike its layer."""


def test_a_wrong_stepper_is_refused_by_its_name_and_the_layers():
    with pytest.raises(
        ValueError,
        match="'culprit' .Forgetful. gives another result .* by its stepper "
        "`DividingStepper`",
    ):
        check(over_means(Forgetful(name="culprit")))


class Weighted(CausalMean):
    """A subclass with a `call` of its own."""

    def call(self, inputs):
        return 0.5 * super().call(inputs)


class Named(CausalMean):
    """A subclass that computes what its parent does."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.supports_masking = True


def test_a_subclass_with_a_call_of_its_own_needs_a_stepper_of_its_own():
    with pytest.raises(
        ValueError,
        match="'culprit' .* `Weighted` has methods of its own.* `CausalMean`",
    ):
        check(over_means(Weighted(name="culprit")))
    check(over_means(Named()))


class Mixed(layers.Layer):
    """Takes several arguments; some come from the source."""

    def call(self, first, others, memory, memory_mask=None, scale=1.0):
        other, constant = others
        if memory_mask is not None:
            real = ops.cast(memory_mask, memory.dtype)[..., None]
            memory = ops.sum(memory * real, 1) / ops.sum(real, 1)
        constant = memory[:, None] + constant
        return {
            "sum": ops.cumsum(first, axis=1) * scale + constant,
            "other": [other + constant],
        }


@keras_attn.stepper_for(Mixed)
class MixedStepper(keras_attn.Stepper):
    def prepare(self, constants):
        assert constants["first"] is None and constants["others"][0] is None
        assert constants["scale"] == 2.0
        memory, mask = self.with_mask(constants, "memory")
        real = ops.cast(mask, memory.dtype)[..., None]
        mean = ops.sum(memory * real, 1) / ops.sum(real, 1)
        return mean[:, None] + constants["others"][1]

    def start(self, prepared, batch, beams, max_length):
        return ops.zeros((batch, beams, 6))

    def step(self, inputs, prepared, state, position):
        assert set(inputs) == {"first", "others"}
        other, nothing = inputs["others"]
        assert nothing is None
        state = state + inputs["first"]
        scale = self.call.arguments["scale"]
        # As the layer does, in the order of its outputs.
        return (
            {"sum": state * scale + prepared, "other": [other + prepared]},
            None,
            state,
        )


def test_values_reach_a_stepper_by_the_names_of_the_arguments():
    def build(x, memory):
        pooled = layers.GlobalAveragePooling1D(keepdims=True)(memory)
        y = layers.Dense(6)(x)
        found = Mixed()(x, [y, pooled], memory, scale=2.0)
        return layers.Concatenate()([found["sum"], *found["other"]])

    assert_cut_equals_whole(speak_up(with_path(build)))


class Twofold(layers.Layer):
    """Remembers positions only if its argument says so."""

    def __init__(self, remembers, **kwargs):
        super().__init__(**kwargs)
        self.remembers = remembers

    def call(self, inputs):
        return running_mean(inputs) if self.remembers else inputs * 2.0


@keras_attn.stepper_for(Twofold)
class TwofoldMeanStepper(CausalMeanStepper):
    @classmethod
    def accepts(cls, call):
        return call.layer.remembers


def test_a_call_that_no_stepper_accepts_treats_positions_alone():
    def build(x, memory):
        x = Twofold(remembers=True)(Twofold(remembers=False)(x))
        return keras_attn.BahdanauAttention(4)(x, memory)

    check(speak_up(with_path(build)))


@keras.saving.register_keras_serializable("tests_by_name")
class ByName(CausalMean):
    def call(self, inputs):
        return super().call(inputs)


@keras_attn.stepper_for("tests_by_name>ByName")
class ByNameStepper(CausalMeanStepper):
    pass


def test_a_layer_is_found_by_the_name_that_keras_knows_it_by():
    check(over_means(ByName()))


def test_of_several_steppers_the_last_is_asked_first():
    class Own(layers.Layer):
        def call(self, inputs):
            return running_mean(inputs)

    class Wrong(CausalMeanStepper):
        def step(self, *args):
            raise AssertionError("registered first")

    keras_attn.stepper_for(Own)(Wrong)
    keras_attn.stepper_for(Own)(CausalMeanStepper)
    check(over_means(Own()))


class Thrice(layers.Layer):
    def call(self, inputs):
        return running_mean(inputs)


@keras_attn.stepper_for(Thrice)
class ThriceStepper(CausalMeanStepper):
    def step(self, inputs, prepared, state, position):
        mean, _, state = super().step(inputs, prepared, state, position)
        return [mean] * 3, None, state


def test_a_stepper_that_returns_too_much_is_told_what_it_returns():
    cut = Incremental(over_means(Thrice()))
    encoded = cut.encode(ops.convert_to_tensor(SOURCE))
    with pytest.raises(ValueError, match=r"ThriceStepper.* Received: 3 tensor"):
        cut.step(TARGET[:, :1], cut.start(encoded), encoded)


class Needy(layers.Layer):
    def call(self, inputs, start=None):
        return running_mean(inputs)


@keras_attn.stepper_for(Needy)
class NeedyStepper(CausalMeanStepper):
    def __init__(self, call):
        super().__init__(call)
        self.require_constant(start=call.arguments.get("start"))
        if len(self.reads["inputs"].shape) != 3:
            self.refuse("has inputs of another rank")


def test_a_stepper_refuses_calls_by_the_name_of_the_layer():
    def build(x, memory):
        return Needy(name="culprit")(x, start=x)

    with pytest.raises(
        ValueError, match="'culprit' .* `start` that depends on the target"
    ):
        Incremental(with_path(build))


@pytest.mark.parametrize("kind", [CausalMean(), dict, "CausalMean", None])
def test_only_layers_have_steppers(kind):
    with pytest.raises(ValueError, match="`stepper_for` takes classes"):
        keras_attn.stepper_for(kind)


@pytest.mark.parametrize("stepper", [CausalMean, object(), len])
def test_only_steppers_step_layers(stepper):
    with pytest.raises(ValueError, match="decorates a subclass"):
        keras_attn.stepper_for(CausalMean)(stepper)


class Kept(layers.Layer):
    """Adds up what it was given, as `CausalMean` without dividing."""

    def call(self, inputs):
        return ops.cumsum(inputs, axis=1)


@keras_attn.stepper_for(Kept)
class KeptStepper(keras_attn.Stepper):
    """Keeps every position."""

    def start(self, prepared, batch, beams, max_length):
        width = self.reads["inputs"].shape[-1]
        return (
            ops.zeros((batch, beams, max_length, width)),
            ops.zeros((batch, beams), "int32"),
        )

    def step(self, inputs, prepared, state, position):
        kept, number = state
        here = ops.one_hot(number, ops.shape(kept)[2])[..., None]
        kept = kept + here * ops.expand_dims(inputs["inputs"], 2)
        return ops.sum(kept, axis=2), None, (kept, number + 1)

    def time_axes(self, state):
        return 2, None


def test_a_state_names_its_axis_of_time():
    inner = keras.Sequential([Kept(), CausalMean()])

    def build(x, memory):
        x = inner(x)
        x = layers.MultiHeadAttention(2, 3)(x, x, use_causal_mask=True)
        cell, attention = layers.GRUCell(6), keras_attn.BahdanauAttention(4)
        return keras_attn.AttentionDecoder(
            cell, attention, self_attention=keras_attn.ScaledDotAttention()
        )(x, memory)

    cut = Incremental(speak_up(with_path(build)))
    cut.check(*map(ops.convert_to_tensor, [SOURCE, TARGET]))
    encoded = cut.encode(ops.convert_to_tensor(SOURCE))
    state = cut.start(encoded, 2, 5)
    axes = keras.tree.flatten(cut.time_axes(state))
    found = keras.tree.flatten(state)
    assert len(axes) == len(found)
    grow = keras.tree.flatten(cut.start(encoded, 2, 7))
    for axis, x, y in zip(axes, found, grow, strict=True):
        longer = [i for i in range(x.ndim) if x.shape[i] != y.shape[i]]
        assert longer == ([] if axis is None else [axis])
    assert sum(axis is not None for axis in axes) == 1 + 2 + 2


def test_the_states_of_parents_are_taken():
    cut = Incremental(over_means(keras.Sequential([CausalMean(), Kept()])))
    encoded = cut.encode(ops.convert_to_tensor(SOURCE))
    both = TARGET[:, :2]
    _, _, state = cut.step(both, cut.start(encoded, 2, 3), encoded)
    parents = np.array([[1, 0], [0, 0], [1, 1]], "int32")
    found = cut.reorder(state, parents)
    for x, y in zip(
        keras.tree.flatten(state), keras.tree.flatten(found), strict=True
    ):
        x, y = ops.convert_to_numpy(x), ops.convert_to_numpy(y)
        for row in range(3):
            np.testing.assert_array_equal(y[row], x[row][parents[row]])


# Searched, saved, loaded and exported.


def translator(search, mean=CausalMean):
    source = keras.Input((None,), dtype="int32", name="source")
    target = keras.Input((None,), dtype="int32", name="target")
    size = toys.SOURCE.size, toys.TARGET.size
    memory = layers.Embedding(size[0], 8, mask_zero=True)(source)
    means = mean()(layers.Embedding(size[1], 8)(target))
    hidden = keras_attn.BahdanauAttention(8)(means, memory)
    hidden = layers.Concatenate()([means, hidden])
    model = keras.Model([source, target], layers.Dense(size[1])(hidden))
    toys.speak_up(model, seed=3)
    return keras_attn.Translator(model, toys.SOURCE, toys.TARGET, search)


SEARCHES = {
    "beam": lambda: keras_attn.BeamSearch(3, num_hypotheses=2, max_length=7),
    "greedy": lambda: keras_attn.GreedySearch(max_length=7),
}


@pytest.fixture(scope="module", params=some(SEARCHES, ["beam"]))
def made(request):
    if keras.backend.backend() != "tensorflow":
        pytest.skip("searches are TensorFlow's")
    return translator(SEARCHES[request.param]())


@pytest.mark.full
def test_a_search_finds_what_the_whole_model_scores_so(made):
    lines = ["abc", "dead", "b"]
    result = made(lines)
    assert len(set(result.text)) > 1
    expected = made.score(lines, result).scores
    np.testing.assert_allclose(result.scores, expected, atol=1e-4)


def test_a_translator_is_saved_and_loaded(made, tmp_path):
    made.save(tmp_path / "saved")
    loaded = keras_attn.Translator.load(tmp_path / "saved")
    assert loaded(["abc", "dead"]).text == made(["abc", "dead"]).text


@pytest.mark.full
def test_an_export_answers_in_tensorflow_serving_s_loader(made, tmp_path):
    of_clients = ["encode", "step", "strings"]
    path = str(made.export(tmp_path / "exported", signatures=of_clients))
    lines = ["abc", "dead", "b"]
    text = {"text": np.array([x.encode() for x in lines], object)}
    requests = [(path, "serving_default", text, "c"), (path, 7, text, "c")]
    answer, by_client = ask(requests)
    expected = made(lines)
    assert [x.decode() for x in answer["text"]] == list(expected.text)
    np.testing.assert_allclose(answer["score"], expected.scores, atol=1e-4)
    if isinstance(made.search, keras_attn.GreedySearch):
        found = [x.decode() for x in by_client["text"]]
        assert found == list(expected.text)


class Shared(CausalMean):
    """A mean whose stepper re-orders its state itself."""

    def call(self, inputs):
        return super().call(inputs)


@keras_attn.stepper_for(Shared)
class SharedStepper(CausalMeanStepper):
    reordered = []

    def reorder(self, state, parents):
        self.reordered.append(parents)
        return super().reorder(state, parents)


@pytest.mark.full
def test_a_beam_search_has_the_stepper_reorder_its_state():
    if keras.backend.backend() != "tensorflow":
        pytest.skip("searches are TensorFlow's")
    lines = ["abc", "dead", "b"]
    search = SEARCHES["beam"]()
    found = translator(search, Shared)(lines)
    assert SharedStepper.reordered
    assert found.text == translator(search)(lines).text


class Confused(CausalMean):
    """A mean whose stepper leaves each hypothesis its own state."""

    def call(self, inputs):
        return super().call(inputs)


@keras_attn.stepper_for(Confused)
class ConfusedStepper(CausalMeanStepper):
    def reorder(self, state, parents):
        return state


@pytest.mark.parametrize("nested", [False, True])
def test_a_stepper_that_does_not_gather_its_state_is_refused(nested):
    def path(layer):
        def build(x, memory):
            if nested:
                given = keras.Input((None, 6))
                x = keras.Model(given, layer(given))(x)
            else:
                x = layer(x)
            return keras_attn.BahdanauAttention(5)(x, memory)

        return speak_up(with_path(build))

    Incremental(path(Shared())).check(SOURCE, TARGET)
    with pytest.raises(ValueError, match="`ConfusedStepper`"):
        Incremental(path(Confused())).check(SOURCE, TARGET)
