"""What a `Translator` must be told of a model, and what it refuses."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers
from keras import ops
from support.published import LENGTH
from support.published import SIZE
from support.published import TEXT
from support.published import TutorialTransformer
from support.published import simple

import keras_attn

# The models' authors are warned when they build and train.
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")
SEARCH = keras_attn.GreedySearch(max_length=5)


def translator(model, *texts, **options):
    return keras_attn.Translator(
        model, *(texts or (TEXT, TEXT)), SEARCH, **options
    )


def plain(change=lambda x: x, outputs=lambda x: x, **options):
    source, target, _, state = simple(**options)
    x = change(layers.Embedding(SIZE, 12)(target))
    x = layers.GRU(12, return_sequences=True)(x, initial_state=state)
    return keras.Model([source, target], outputs(layers.Dense(SIZE)(x)))


def named():
    model = plain()
    source, target = model.inputs
    return keras.Model({"source": source, "target": target}, model.output)


def stateful():
    source, target = (keras.Input(batch_shape=(4, None)) for _ in range(2))
    state = layers.GRU(12)(layers.Embedding(SIZE, 12)(source))
    x = layers.Embedding(SIZE, 12)(target)
    x = layers.GRU(12, return_sequences=True, stateful=True)(x) + state[:, None]
    return keras.Model([source, target], layers.Dense(SIZE)(x))


class Unbuilt(TutorialTransformer):
    pass


class Failing(TutorialTransformer):
    def call(self, inputs):
        if len(inputs[0].shape) == 2 and inputs[0].shape[1] is None:
            raise RuntimeError("no such length")
        return super().call(inputs)


def failing():
    model = Failing()
    ids = np.ones((1, 3), "int32")
    model((ids, ids))
    return model


@pytest.mark.sample_cases(5)
@pytest.mark.parametrize(
    ("make", "options", "message"),
    [
        (named, {}, "must be named.*target='target'"),
        (named, {"target": "other"}, r"one of \['source', 'target'\]"),
        (plain, {"output": "logits"}, "the name or the number of the output"),
        (plain, {"output": 1}, "the name or the number of the output"),
        (
            lambda: plain(outputs=lambda x: [x, 2 * x]),
            {},
            "Of several outputs .* output=",
        ),
        (
            lambda: plain(outputs=lambda x: {"a": x, "b": x[..., 1:]}),
            {"output": "c"},
            r"\['a', 'b'\]. Received: output='c'",
        ),
        (
            lambda: plain(outputs=lambda x: x[:, -1]),
            {},
            r"output of shape \(None, 10\). A model that predicts only",
        ),
        (plain, {"pad_to": 0}, "`pad_to` must be an integer, at least 1"),
        (plain, {"pad_to": {"spruce": 3}}, r"names of source texts, \['sour"),
        (plain, {"padding": "x"}, "padding='x', which it does not have"),
        (plain, {"recompute": "no"}, "`recompute` must be True or False"),
        (
            plain,
            {"forbidden": ["[UNK]"]},
            "The special tokens are named '<pad>', '<s>', '</s>', '<unk>'",
        ),
        (
            stateful,
            {},
            "`stateful=True`, so it remembers other batches; build",
        ),
        (Unbuilt, {}, "`Unbuilt` that was not built. Call it once"),
        (failing, {}, "`Failing` must run on its inputs.*no such length"),
        (lambda: "model.keras", {}, "needs|decodes with a `keras.Model`"),
        (
            lambda: keras.Model(*[layers.Input((3,))] * 2),
            {},
            "at least two inputs",
        ),
    ],
)
def test_what_is_not_clear_is_asked_for(make, options, message):
    with pytest.raises(ValueError, match=message):
        translator(make(), **options)


def test_padding_of_arrays_is_refused():
    frames = keras.Input((None, 3))
    target = keras.Input((None,), dtype="int32")
    x = layers.Embedding(SIZE, 12)(target)
    x = layers.GRU(12, return_sequences=True)(
        x, initial_state=layers.GRU(12)(frames)
    )
    model = keras.Model([frames, target], layers.Dense(SIZE)(x))
    with pytest.raises(ValueError, match="whose sources are arrays"):
        translator(model, None, TEXT, pad_to=4)


@pytest.mark.full
def test_an_input_of_one_length_has_no_other():
    source = keras.Input((LENGTH,), dtype="int32", name="line")
    target = keras.Input((None,), dtype="int32")
    state = layers.GRU(12)(layers.Embedding(SIZE, 12)(source))
    x = layers.Embedding(SIZE, 12)(target)
    x = layers.GRU(12, return_sequences=True)(x, initial_state=state)
    model = keras.Model([source, target], layers.Dense(SIZE)(x))
    with pytest.raises(ValueError, match="'line' takes 9 tokens.*pad_to=8"):
        translator(model, pad_to=8)
    made = translator(model, pad_to=9)
    # One id is the end token's.
    assert made.source_text.max_length == LENGTH - 1
    (found,) = made(["abcdefabcdef"])
    assert found.truncated
    assert not made(["abcdef"])[0].truncated


def fixed_target():
    source, _, _, state = simple()
    target = keras.Input((LENGTH,), dtype="int32", name="before")
    x = layers.Embedding(SIZE, 12)(target)
    x = layers.GRU(12, return_sequences=True)(x, initial_state=state)
    return keras.Model([source, target], layers.Dense(SIZE)(x))


@pytest.mark.full
def test_a_search_is_as_long_as_the_model_allows():
    model = fixed_target()
    made = keras_attn.Translator(model, TEXT, TEXT)
    assert made.search.max_length == LENGTH
    assert made.target_text.max_length == LENGTH - 1
    assert made.score(["ab"], ["abcdefabcdef"]).truncated == [True]
    with pytest.raises(ValueError, match="of 9 tokens at most.*max_length=9"):
        keras_attn.Translator(
            model, TEXT, TEXT, keras_attn.BeamSearch(2, max_length=10)
        )


@pytest.mark.full
def test_a_default_search_stops_where_a_table_of_positions_ends():
    class Positions(layers.Layer):
        def __init__(self):
            super().__init__()
            self.table = layers.Embedding(20, 12)

        def call(self, x):
            return x + self.table(ops.arange(ops.shape(x)[1]))

    made = keras_attn.Translator(plain(Positions()), TEXT, TEXT)
    assert made.search.max_length == 20
    assert len(made(["ab"])[0].tokens) <= 20
    with pytest.raises(ValueError, match="fails on random ids, a target of 21"):
        keras_attn.Translator(
            plain(Positions()), TEXT, TEXT, keras_attn.GreedySearch(21)
        )


class Backwards(layers.Layer):
    def call(self, x):
        return x + 0.5 * ops.flip(ops.cumsum(ops.flip(x, 1), axis=1), 1)


class TokenByToken(layers.Layer):
    def call(self, x):
        return ops.tanh(x)


@pytest.mark.full
def test_a_layer_that_looks_ahead_is_named():
    with pytest.raises(ValueError, match="'culprit' .* looks at later tokens"):
        translator(plain(Backwards(name="culprit")))


@pytest.mark.full
def test_a_whole_model_that_looks_ahead_is_refused():
    class Ahead(TutorialTransformer):
        def call(self, inputs):
            context, x = inputs
            y = super().call((context, x))
            return y + ops.flip(y, 1)

    model = Ahead()
    ids = np.ones((1, 3), "int32")
    model((ids, ids))
    with pytest.raises(ValueError, match="looks at later tokens.*`target`"):
        translator(model)


def test_a_model_without_memory_is_refused():
    source, target, _, state = simple()
    x = TokenByToken()(layers.Embedding(SIZE, 12)(target))
    x = x + ops.expand_dims(state, 1)
    model = keras.Model([source, target], layers.Dense(SIZE)(x))
    with pytest.raises(ValueError, match="nothing to decode.*target="):
        translator(model)


def test_a_text_with_more_ids_than_the_model_is_refused():
    more = keras_attn.Text("abcdefghijklm", split="characters")
    with pytest.raises(ValueError, match="of 10 ids, and a text of 17"):
        translator(plain(), more, TEXT)
    model, ids = TutorialTransformer(), np.ones((1, 3), "int32")
    model((ids, ids))
    with pytest.raises(ValueError, match="pass the `Text`s that it was"):
        translator(model, more, TEXT)


@pytest.mark.full
def test_inputs_in_the_other_order_are_told():
    model = plain()
    source, target = model.inputs
    turned = keras.Model([target, source], model.output)
    with pytest.raises(ValueError, match="`target`|target="):
        translator(turned)
    made = translator(turned, target="target")
    assert made(["ab"]).text == translator(model)(["ab"]).text


def test_a_stepper_of_ones_own_that_is_wrong_is_not_passed_over():
    class Summing(layers.Layer):
        def call(self, x):
            return ops.cumsum(x, axis=1)

    @keras_attn.stepper_for(Summing)
    class Wrong(keras_attn.Stepper):
        def step(self, inputs, prepared, state, position):
            return inputs["x"], None, state

    with pytest.raises(ValueError, match="by its stepper `Wrong`"):
        translator(plain(Summing()))


@pytest.mark.full
def test_the_model_stays_as_it_was():
    model = TutorialTransformer()
    ids = np.ones((2, 3), "int32")
    expected = np.asarray(model((ids, ids)))
    weights = [id(x) for x in model.weights]
    made = translator(model)
    np.testing.assert_array_equal(model((ids, ids)), expected)
    assert [id(x) for x in model.weights] == weights
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("adam", loss)
    model.fit((ids, ids), ids, epochs=2, verbose=0)
    # It follows the training: a score is the trained model's.
    given = TEXT.ids(["a"]).numpy(), np.array([[1]])
    logits = np.asarray(model(given))[0, -1]
    logp = logits - np.log(np.exp(logits).sum())
    score = made.score(["a"], [""]).scores[0]
    np.testing.assert_allclose(score, logp[TEXT.special.end], atol=1e-4)


def test_a_call_that_decides_by_python_on_lengths_is_refused():
    class Deciding(TutorialTransformer):
        def call(self, inputs):
            context, x = inputs
            y = super().call((context, x))
            return 2 * y if x.shape[1] is not None and x.shape[1] < 2 else y

    model = Deciding()
    ids = np.ones((1, 3), "int32")
    model((ids, ids))
    with pytest.raises(ValueError, match="decide by Python"):
        translator(model)


class Shortening(TutorialTransformer):
    """Returns less in a graph than outside."""

    def call(self, inputs):
        y = super().call(inputs)
        return y if y.shape[1] is not None else y[:, : ops.shape(y)[1] // 2]


class FailingInGraphs(TutorialTransformer):
    def call(self, inputs):
        y = super().call(inputs)
        if y.shape[1] is None:
            raise RuntimeError("there is no number")
        return y


@pytest.mark.sample_cases(1)
@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (Shortening, r"returns \(3, 0, 10\) there, and \(3, 1, 10\) when"),
        (FailingInGraphs, "there is no number"),
    ],
)
def test_a_call_that_does_another_thing_in_a_graph_is_refused(kind, message):
    model, ids = kind(), np.ones((1, 3), "int32")
    model((ids, ids))
    with pytest.raises(ValueError, match=message):
        translator(model)


@pytest.mark.full
def test_inputs_may_be_nested():
    class Nested(keras.Model):
        def __init__(self):
            super().__init__()
            self.embedding = layers.Embedding(SIZE, 12)
            self.project = layers.Dense(12)
            self.gru = layers.GRU(12, return_sequences=True)
            self.logits = layers.Dense(SIZE)

        def call(self, inputs):
            given, target = inputs
            x = ops.mean(self.project(given["frames"]), axis=1)
            x = x + ops.mean(self.embedding(given["ids"]), axis=1)
            return self.logits(
                self.gru(self.embedding(target), initial_state=x)
            )

    model, ids = Nested(), np.ones((2, 3), "int32")
    frames = np.random.default_rng(0).normal(size=(2, 5, 4))
    model(({"ids": ids, "frames": frames}, ids))
    made = keras_attn.Translator(model, {"ids": TEXT}, TEXT, SEARCH)
    found = made.score({"ids": ["ab", "fc"], "frames": frames}, ["", ""])
    given = {"ids": TEXT.source_ids(["ab", "fc"]).numpy(), "frames": frames}
    start = np.full((2, 1), TEXT.special.start[-1])
    logits = np.asarray(model((given, start)))[:, 0]
    logp = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    np.testing.assert_allclose(
        found.scores, logp[:, TEXT.special.end], atol=1e-4
    )


@pytest.mark.full
def test_the_first_argument_may_be_an_array():
    class Arguments(keras.Model):
        def __init__(self):
            super().__init__()
            self.inner = speech_parts()

        def call(self, frames, target):
            return self.inner([frames, target])

    model = Arguments()
    frames = np.random.default_rng(0).normal(size=(2, 5, 4))
    model(frames, np.ones((2, 3), "int32"))
    made = translator(model, None, TEXT)
    found = made.score(frames, ["", ""])
    logits = np.asarray(model(frames, np.full((2, 1), TEXT.special.start[-1])))
    logp = logits[:, 0] - np.log(np.exp(logits[:, 0]).sum(-1, keepdims=True))
    np.testing.assert_allclose(
        found.scores, logp[:, TEXT.special.end], atol=1e-4
    )


def speech_parts():
    frames = keras.Input((None, 4))
    target = keras.Input((None,), dtype="int32")
    x = layers.Embedding(SIZE, 12)(target)
    x = layers.GRU(12, return_sequences=True)(
        x, initial_state=layers.GRU(12)(frames)
    )
    return keras.Model([frames, target], layers.Dense(SIZE)(x))


@pytest.mark.full
def test_without_recomputing_it_is_said_that_it_could_help():
    model, ids = TutorialTransformer(), np.ones((1, 3), "int32")
    model((ids, ids))
    with pytest.raises(ValueError, match="nothing to decode") as caught:
        translator(model, recompute=False)
    assert any("`recompute=True`" in x for x in caught.value.__notes__)


@pytest.mark.full
def test_an_output_of_a_call_is_named_by_its_key():
    class Dictionary(TutorialTransformer):
        def call(self, inputs):
            y = super().call(inputs)
            return {"twice": 2 * y, "logits": y}

    model, ids = Dictionary(), np.ones((1, 3), "int32")
    model((ids, ids))
    with pytest.raises(ValueError, match=r"the outputs \{'twice'"):
        translator(model)
    made = translator(model, output="logits")
    given = TEXT.ids(["a"]).numpy(), np.array([[1]])
    logits = np.asarray(model(given)["logits"])
    logp = logits[0, -1] - np.log(np.exp(logits[0, -1]).sum())
    score = made.score(["a"], [""]).scores[0]
    np.testing.assert_allclose(score, logp[TEXT.special.end], atol=1e-4)


class Two(layers.Layer):
    """Returns two parts of its input."""

    def call(self, x, first):
        return x[..., :first], x[..., :SIZE]


@pytest.mark.full
def test_two_outputs_of_one_layer_are_told_apart():
    model = plain(outputs=lambda x: Two(name="two")(x, first=3))
    assert len(translator(model)(["ab"]).text) == 1
    with pytest.raises(ValueError, match=r"outputs \{'two:0'.*'two:1'"):
        translator(plain(outputs=lambda x: Two(name="two")(x, first=SIZE)))
    for output in (0, "two:0"):
        with pytest.raises(ValueError, match="Received: .*3"):
            translator(model, output=output)
    assert len(translator(model, output="two:1")(["ab"]).text) == 1


@pytest.mark.full
def test_one_output_may_have_two_names():
    model = plain(outputs=lambda x: {"b": x, "a": x})
    for name in "ab":
        assert len(translator(model, output=name)(["ab"]).text) == 1


class WithDefault(TutorialTransformer):
    def call(self, source, target=None, training=None):
        assert training is False
        return super().call((source, target))


@pytest.mark.full
def test_the_second_argument_may_have_a_default():
    model, ids = WithDefault(), np.ones((1, 3), "int32")
    model(ids, target=ids, training=False)
    assert len(translator(model)(["ab", "c"]).text) == 2


@pytest.mark.full
def test_padding_that_wins_a_maximum_now_and_then_is_noticed():
    source, target, _, _ = simple(mask=False)
    x = layers.Embedding(SIZE, 12)(source)
    x = layers.Conv1D(3, 1, activation="relu")(x)
    state = layers.Dense(12)(layers.GlobalMaxPooling1D()(x))
    x = layers.Embedding(SIZE, 12)(target)
    x = layers.GRU(12, return_sequences=True)(x, initial_state=state)
    model = keras.Model([source, target], layers.Dense(SIZE)(x))
    lines = ["abcdefabcdef", *"abcdef", "aa", "ff"]
    for seed in range(3):
        keras.utils.set_random_seed(seed)
        for variable in model.weights:
            variable.assign(np.random.normal(size=variable.shape))
        made = translator(model)
        alone = [made([x])[0].score for x in lines]
        together = [x.score for x in made(lines)]
        np.testing.assert_allclose(together, alone, atol=1e-5)


@pytest.mark.full
def test_a_table_of_positions_in_a_call_of_its_own_ends_the_search():
    class Short(TutorialTransformer):
        def __init__(self):
            super().__init__()
            self.table = layers.Embedding(40, SIZE)

        def call(self, inputs):
            y = super().call(inputs)
            return y + self.table(ops.arange(ops.shape(y)[1]))

    model, ids = Short(), np.ones((1, 3), "int32")
    model((ids, ids))
    made = keras_attn.Translator(model, TEXT, TEXT)
    assert made.search.max_length == 40
    with pytest.raises(ValueError, match="lower `max_length`"):
        keras_attn.Translator(model, TEXT, TEXT, keras_attn.GreedySearch(60))


@keras.saving.register_keras_serializable("adopted_refusals")
def tanh(x):
    return tf.tanh(x)


@pytest.mark.full
def test_a_lambda_with_names_of_its_module_is_not_saved_to_fail(tmp_path):
    decode = translator(plain(layers.Lambda(lambda x: tf.tanh(x), name="own")))
    with pytest.raises(ValueError, match="uses 'tf', which a file does not"):
        decode.save(tmp_path)
    assert not list(tmp_path.iterdir())
    # As the message says.
    decode.model.get_layer("own").function = tanh
    decode.save(tmp_path)
    loaded = keras_attn.Translator.load(tmp_path)
    assert loaded(["abc"]).text == decode(["abc"]).text
