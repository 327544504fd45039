"""Rows that are done leave the batch; each gets what it gets alone.

Alone a row cannot leave before the end, so a row by itself is the oracle.
"""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers
from support import toys
from support.exports import own_options
from support.lazily import ask
from support.own_search import Mirostat
from support.toys import SOURCE
from support.toys import TARGET
from support.transformers import transformer

import keras_attn
from keras_attn.decoding import loop

pytestmark = pytest.mark.full

RANDOM = np.random.default_rng(5)
LINES = [
    "".join(RANDOM.choice(list("abcde"), size=n))
    for n in RANDOM.integers(1, 6, 13)
]
# Where each row is cut, so that rows end at many different steps.
LENGTHS = [1, 24, 3, 2, 17, 5, 3, 24, 9, 4, 2, 12, 6]


def rnn(seed=9, **options):
    return toys.model(
        keras_attn.AttentionDecoder(
            layers.GRUCell(8), keras_attn.BahdanauAttention(8), **options
        ),
        seed=seed,
    )


MODELS = {
    "rnn": rnn,
    "input feeding": lambda: rnn(order="post", input_feeding=True),
    "transformer": lambda: transformer(layers.MultiHeadAttention(2, 4)),
    "ensemble": lambda: [
        rnn(),
        transformer(layers.MultiHeadAttention(2, 4), seed=7),
    ],
}
SEARCHES = {
    "greedy": lambda: keras_attn.GreedySearch(max_length=24),
    "beam": lambda: keras_attn.BeamSearch(
        3, num_hypotheses=2, max_length=24, length_penalty=1.0
    ),
    "beam with rules": lambda: keras_attn.BeamSearch(
        3,
        min_length=2,
        max_length=24,
        max_per_source=(3, 1),
        coverage_penalty=0.2,
        no_repeat_ngram=2,
        early_stopping="never",
    ),
    "groups": lambda: keras_attn.BeamSearch(
        4, num_hypotheses=3, max_length=24, groups=2, diversity=0.5
    ),
    "draws": lambda: keras_attn.Sampling(max_length=24, num_hypotheses=2),
    "mirostat": lambda: Mirostat(max_length=24, num_hypotheses=2),
}


@pytest.fixture(autouse=True)
def left(monkeypatch):
    """Lets single rows leave too; returns how many were at work then."""
    found, without = [], loop._without

    def noting(*given):
        rows, *others = without(*given)

        def note(rows):
            found.append(int(rows))
            return np.zeros(0, "int32")

        seen = tf.numpy_function(note, [tf.size(rows)], tf.int32)
        with tf.control_dependencies([seen]):
            return tf.identity(rows), *others

    monkeypatch.setattr(loop, "LEAST", 1)
    monkeypatch.setattr(loop, "_without", noting)
    return found


def assert_same(one, other):
    np.testing.assert_array_equal(one.tokens, other.tokens)
    np.testing.assert_array_equal(one.finished, other.finished)
    np.testing.assert_allclose(one.scores, other.scores, atol=1e-5)
    assert one.alignments.shape[2] == other.alignments.shape[2]
    width = other.alignments.shape[3]
    np.testing.assert_allclose(
        one.alignments[..., :width], other.alignments, atol=1e-5
    )


def alone(call, inputs, request):
    for i in range(len(LINES)):
        row = tf.nest.map_structure(
            lambda x, i=i: x[i : i + 1], (inputs, request)
        )
        yield i, call(*row)


@pytest.mark.sample_cases(2)
@pytest.mark.parametrize("search", SEARCHES)
@pytest.mark.parametrize("name", MODELS)
def test_each_row_is_decoded_as_if_alone(name, search, left):
    made = keras_attn.Translator(
        MODELS[name](), SOURCE, TARGET, SEARCHES[search]()
    )
    pipeline = made.pipeline
    inputs = pipeline.sources.inputs((tf.constant(LINES),))
    request = {"options": {"max_length": tf.constant(LENGTHS)}}
    if pipeline.search.draws:
        request["seed"] = tf.range(len(LINES))
    else:
        ids = np.zeros((len(LINES), 2), "int32")
        ids[4:7] = [[4, 5], [5, 0], [4, 4]]
        request["prefix"] = tf.constant(ids)
    found = pipeline.search_inputs(inputs, request)
    assert len(left) > 1 and len(set(found.lengths.numpy()[:, 0])) > 3
    left.clear()
    for i, row in alone(pipeline.search_inputs, inputs, request):
        assert_same(
            tf.nest.map_structure(lambda x, i=i: x[i : i + 1], found),
            row,
        )
    assert not left


def test_rows_leave_at_every_number_of_rows(left):
    made = keras_attn.Translator(
        rnn(), SOURCE, TARGET, keras_attn.BeamSearch(2, max_length=8)
    )
    whole = made(LINES, options={"max_length": [1] * 12 + [8]})
    assert left[0] == 1
    assert whole.text[12] == made(LINES[12:]).text[0]
    for count in range(1, 5):
        left.clear()
        lengths = list(range(1, count + 1))
        found = made(LINES[:count], options={"max_length": lengths})
        assert left == sorted(set(left), reverse=True)
        assert len(found) == count
        for line, length, x in zip(LINES, lengths, found, strict=False):
            (alone,) = made([line], options={"max_length": [length]})
            assert x.text == alone.text
    assert len(made([])) == 0


def test_a_shortlist_is_kept(left):
    made = keras_attn.Translator(
        rnn(),
        SOURCE,
        TARGET,
        keras_attn.BeamSearch(3, max_length=24),
        shortlist=keras_attn.Shortlist(
            np.tile(RANDOM.permutation(TARGET.size)[:5], (SOURCE.size, 1)),
            always=[],
        ),
    )
    options = {"max_length": LENGTHS}
    found = made(LINES, options=options)
    assert left
    for i, line in enumerate(LINES):
        (row,) = made([line], options={"max_length": LENGTHS[i : i + 1]})
        assert found[i].text == row.text
        np.testing.assert_allclose(found[i].score, row.score, atol=1e-5)


class Remembers(layers.Layer):
    """The sum of the past positions, times a table that all rows share."""

    def call(self, x):
        return keras.ops.cumsum(x, axis=1)


class WithATable(keras_attn.Stepper):
    """Breaks the rule that rows can be taken from what it prepares."""

    def prepare(self, constants):
        return keras.ops.ones((3,))

    def start(self, prepared, batch, beams, max_length):
        return keras.ops.zeros((batch, beams, 8))

    def step(self, inputs, prepared, state, position):
        (x,) = inputs.values()
        state = state + x * prepared[0]
        return state, None, state


def test_with_a_stepper_from_outside_all_rows_stay(left):
    keras_attn.stepper_for(Remembers)(WithATable)
    source = keras.Input((None,), dtype="int32")
    target = keras.Input((None,), dtype="int32")
    memory = layers.Embedding(SOURCE.size, 8, mask_zero=True)(source)
    x = layers.Embedding(TARGET.size, 8)(target)
    x = layers.Add()([x, layers.MultiHeadAttention(2, 4)(x, memory)])
    x = Remembers()(x)
    model = keras.Model([source, target], layers.Dense(TARGET.size)(x))
    made = keras_attn.Translator(
        model, SOURCE, TARGET, keras_attn.GreedySearch(max_length=24)
    )
    made(LINES, options={"max_length": LENGTHS})
    assert not left


def test_under_xla_all_rows_stay(left):
    plain, compiled = (
        keras_attn.Translator(
            rnn(),
            SOURCE,
            TARGET,
            keras_attn.BeamSearch(3, max_length=24),
            jit_compile=jit_compile,
        )(LINES, options={"max_length": LENGTHS})
        for jit_compile in (False, True)
    )
    assert left
    assert plain.text == compiled.text


@pytest.mark.sample_cases(1)
@pytest.mark.parametrize("name", ["rnn", "transformer"])
def test_the_loader_of_tensorflow_serving_answers_alike(
    name, tmp_path, monkeypatch, left
):
    monkeypatch.undo()  # an export cannot hold a Python function
    monkeypatch.setattr(loop, "LEAST", 1)
    made = keras_attn.Translator(
        MODELS[name](), SOURCE, TARGET, keras_attn.BeamSearch(3, max_length=24)
    )
    asked = {
        **own_options(made, LINES),
        "max_length": np.array(LENGTHS, "int32"),
    }
    path = made.export(tmp_path, signatures=["options"])
    rows = [
        {key: x[i : i + 1] for key, x in asked.items()}
        for i in range(len(LINES))
    ]
    together, *apart = ask(
        [(path, "options", inputs, "c") for inputs in (asked, *rows)]
    )
    assert len({len(x.split()) for x in together["text"]}) > 3
    for i, row in enumerate(apart):
        assert together["text"][i] == row["text"][0]
        np.testing.assert_allclose(
            together["score"][i], row["score"][0], atol=1e-5
        )


@keras.saving.register_keras_serializable("test_leaving")
class OwnWeight(layers.Layer):
    """Returns its own weight, which has no axis of the batch."""

    def __init__(self, shape, **options):
        super().__init__(**options)
        self.shape = shape

    def build(self, _):
        self.weight = self.add_weight(shape=self.shape, name="weight")

    def call(self, x):
        return keras.ops.convert_to_tensor(self.weight)

    def compute_output_spec(self, x):
        return keras.KerasTensor(self.shape, "float32")


def test_no_row_leaves_a_constant_without_a_batch():
    source = keras.Input((None,), dtype="int32", name="source")
    target = keras.Input((None,), dtype="int32", name="target")
    memory = layers.Embedding(SOURCE.size, 8, mask_zero=True)(source)
    unmasked = layers.Embedding(SOURCE.size, 2)(source)
    decoder = keras_attn.AttentionDecoder(
        layers.GRUCell(8), keras_attn.BahdanauAttention(8)
    )
    hidden = decoder(layers.Embedding(TARGET.size, 6)(target), memory)
    table = OwnWeight((TARGET.size, 8))(unmasked)
    logits = keras.ops.einsum("btd,vd->btv", hidden, table)
    logits += OwnWeight((1, 1, TARGET.size))(unmasked)
    model = keras.Model([source, target], logits)
    toys.speak_up(model, 9)
    search = keras_attn.BeamSearch(3, max_length=24)
    made = keras_attn.Translator(model, SOURCE, TARGET, search)
    found = made(LINES, options={"max_length": LENGTHS})
    for line, length, row in zip(LINES, LENGTHS, found, strict=True):
        (alone,) = made([line], options={"max_length": [length]})
        assert row.tokens == alone.tokens
        np.testing.assert_allclose(row.score, alone.score, atol=1e-4)
