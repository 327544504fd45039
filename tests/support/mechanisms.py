"""The table: every attention once, and the axes that tests combine with it.

A new mechanism is one more row of `MECHANISMS`. `test_mechanisms.py` then tests
every promise for it. The rows at the end are mechanisms as a user may write
them, which look back at past alignments.

Nothing here needs TensorFlow: `test_backends.py` walks the same table on
other backends.
"""

import itertools
from collections.abc import Callable
from typing import NamedTuple

import keras
import numpy as np
import pytest
from keras import layers
from keras import ops

import keras_attn

BATCH, TARGET, SOURCE = 3, 4, 5
QUERY_DIM, VALUE_DIM, INPUT_DIM = 4, 6, 3
VOCABULARY = 7


@keras.saving.register_keras_serializable("tests")
class TiredScore(keras_attn.GeneralScore):
    """A general score, lower where much was read: reads `history.total`."""

    def build(self, query_shape, key_shape):
        super().build(query_shape, key_shape)
        self.fatigue = self.add_weight(
            name="fatigue", shape=(), initializer="ones"
        )

    def call(self, query, keys, history):
        total = ops.cast(history.total, query.dtype)
        return super().call(query, keys) - self.fatigue * total


@keras.saving.register_keras_serializable("tests")
class AdvancingAlignment(keras_attn.Alignment):
    """A softmax drawn to what follows `history.previous`."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.softmax = keras_attn.SoftmaxAlignment()

    def call(self, scores, allowed=None, history=()):
        following = ops.pad(history.previous, [[0, 0], [0, 0], [1, 0]])
        scores = ops.cast(scores, "float32") + following[:, :, :-1]
        return self.softmax(scores, allowed)


@keras.saving.register_keras_serializable("tests")
class ClockAlignment(keras_attn.Alignment):
    """A softmax drawn to the position with the number `history.step`."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.softmax = keras_attn.SoftmaxAlignment()

    def call(self, scores, allowed=None, history=()):
        step = ops.cast(ops.expand_dims(history.step, -1), "float32")
        position = ops.arange(scores.shape[-1] or ops.shape(scores)[-1])
        distance = ops.abs(ops.cast(position, "float32") - step)
        return self.softmax(ops.cast(scores, "float32") - distance, allowed)


class Mechanism(NamedTuple):
    """A row of the table: a name, how to make it, and its exceptions."""

    name: str
    make: Callable
    value_dim: int = VALUE_DIM  # queries are QUERY_DIM wide
    sums_to_one: bool = True  # its weights, without a mask
    differentiable: bool = True  # at inference
    learns: bool = True  # by gradients, in training
    random: bool = False  # in training, also without dropout


def _scored(score, **options):
    return lambda **k: keras_attn.Attention(score(), **options, **k)


def _aligned(alignment, **options):
    def make(**k):
        score = keras_attn.AdditiveScore(5)
        return keras_attn.Attention(score, alignment(), **options, **k)

    return make


MECHANISMS = [
    Mechanism("bahdanau", lambda **k: keras_attn.BahdanauAttention(5, **k)),
    Mechanism(
        "normed bahdanau",
        lambda **k: keras_attn.BahdanauAttention(5, True, True, **k),
    ),
    Mechanism(
        "luong dot",
        lambda **k: keras_attn.LuongAttention("dot", **k),
        value_dim=QUERY_DIM,
    ),
    Mechanism(
        "luong general", lambda **k: keras_attn.LuongAttention("general", **k)
    ),
    Mechanism(
        "luong concat",
        lambda **k: keras_attn.LuongAttention("concat", units=5, **k),
    ),
    Mechanism(
        "luong location",
        lambda **k: keras_attn.LuongAttention("location", max_source=9, **k),
    ),
    Mechanism(
        "luong local-m",
        lambda **k: keras_attn.LuongAttention(
            "general", alignment="local-m", window=3, **k
        ),
    ),
    Mechanism(
        "luong local-p",
        lambda **k: keras_attn.LuongAttention(
            "general", alignment="local-p", window=1, **k
        ),
        sums_to_one=False,
    ),
    Mechanism(
        "scaled dot",
        lambda **k: keras_attn.ScaledDotAttention(**k),
        value_dim=QUERY_DIM,
    ),
    Mechanism(
        "learned scale",
        _scored(lambda: keras_attn.ScaledDotScore(learned_scale=True)),
        value_dim=QUERY_DIM,
    ),
    Mechanism("cosine", _scored(keras_attn.CosineScore), value_dim=QUERY_DIM),
    Mechanism(
        "location-sensitive",
        _scored(
            lambda: keras_attn.LocationSensitiveScore(
                5, filters=2, kernel_size=3
            )
        ),
    ),
    *(
        Mechanism(
            f"coverage by {kind}",
            _scored(lambda kind=kind: keras_attn.CoverageScore(5, kind=kind)),
        )
        for kind in ("count", "fertility", "learned")
    ),
    Mechanism("sharpened", _aligned(lambda: keras_attn.SoftmaxAlignment(0.5))),
    Mechanism("smoothed", _aligned(keras_attn.SigmoidAlignment)),
    Mechanism("sparsemax", _aligned(keras_attn.SparsemaxAlignment)),
    Mechanism("entmax", _aligned(keras_attn.EntmaxAlignment)),
    *(
        Mechanism(
            f"monotonic, {mode}",
            _aligned(
                lambda mode=mode: keras_attn.MonotonicAlignment(
                    mode, initial_bias=0.0
                )
            ),
            sums_to_one=False,
            differentiable=mode != "hard",
            learns=mode != "hard",
        )
        for mode in ("recursive", "parallel", "hard")
    ),
    Mechanism(
        "hard",
        _aligned(lambda: keras_attn.HardAlignment(seed=1)),
        differentiable=False,
        random=True,
    ),
    Mechanism(
        "reinforced",
        _aligned(lambda: keras_attn.ReinforceAlignment(seed=1)),
        differentiable=False,
        random=True,
    ),
    Mechanism(
        "several heads",
        _scored(keras_attn.ScaledDotScore, num_heads=2, head_dim=3),
    ),
    Mechanism(
        "several heads that look back",
        _scored(
            lambda: keras_attn.CoverageScore(5, kind="learned"),
            num_heads=2,
            gate=True,
        ),
    ),
    Mechanism(
        "several heads that walk alone",
        _aligned(
            lambda: keras_attn.MonotonicAlignment(initial_bias=0.0),
            num_heads=2,
            head_dim=3,
        ),
        sums_to_one=False,
    ),
    Mechanism(
        "several local heads",
        lambda **k: keras_attn.LuongAttention(
            "concat", units=5, alignment="local-p", window=1, num_heads=2, **k
        ),
        sums_to_one=False,
    ),
    Mechanism(
        "projected and gated",
        _scored(keras_attn.GeneralScore, value_dim=VALUE_DIM, gate=True),
    ),
    # Mechanisms as a user may write them, which look back.
    Mechanism("tired", _scored(TiredScore)),
    Mechanism("advancing", _aligned(AdvancingAlignment)),
    Mechanism("clock", _aligned(ClockAlignment)),
]


def named(name):
    """Returns the row of this name."""
    return next(x for x in MECHANISMS if x.name == name)


def each_of(mechanisms):
    """Parametrizes by some rows of the table."""
    return pytest.mark.parametrize(
        "mechanism", [pytest.param(m, id=m.name) for m in mechanisms]
    )


each_mechanism = each_of(MECHANISMS)


@keras.saving.register_keras_serializable("tests")
class UserCell(keras.layers.Layer):
    """A cell as a user may write one: two widths of state, no `training`."""

    def __init__(self, units, **kwargs):
        super().__init__(**kwargs)
        self.units = units
        self.state_size = [units, 2]
        self.output_size = units

    def build(self, input_shape):
        def weight(name, *shape):
            return self.add_weight(
                name=name, shape=shape, initializer="glorot_uniform"
            )

        self.kernel = weight("kernel", input_shape[-1], self.units)
        self.recurrent = weight("recurrent", self.units + 2, self.units)
        self.slow = weight("slow", self.units, 2)

    def call(self, inputs, states):
        hidden, slow = states
        both = ops.concatenate([hidden, slow], axis=-1)
        hidden = ops.tanh(
            ops.matmul(inputs, self.kernel) + ops.matmul(both, self.recurrent)
        )
        slow = 0.5 * slow + ops.matmul(hidden, self.slow)
        return hidden, [hidden, slow]

    def get_config(self):
        return {**super().get_config(), "units": self.units}


def _keras_cell(kind, units=QUERY_DIM, **options):
    # Keras's default is orthogonal, which TensorFlow lacks in bfloat16.
    return kind(units, recurrent_initializer="glorot_uniform", **options)


CELLS = {
    "rnn": lambda **k: _keras_cell(layers.SimpleRNNCell, **k),
    "gru": lambda **k: _keras_cell(layers.GRUCell, **k),
    "lstm": lambda **k: _keras_cell(layers.LSTMCell, **k),
    "stack": lambda **k: [
        _keras_cell(layers.GRUCell, units=3, **k),
        _keras_cell(layers.LSTMCell, **k),
    ],
    "user's": lambda **k: UserCell(QUERY_DIM, **k),
}

WIRINGS = {
    "pre": {"order": "pre"},
    "post": {"order": "post"},
    "post, not fed": {"order": "post", "input_feeding": False},
}

# Which target and source positions are real, one string per row.
MASKS = {
    "none": (None, None),
    "right": (["1111", "1110", "1000"], ["11111", "11000", "10000"]),
    "left target": (["1111", "0111", "0001"], None),
    "inner": (["1011", "0110", "1001"], ["10101", "01110", "00001"]),
    "source": (None, ["11110", "00111", "11011"]),
    "a row of padding": (["1111", "0000", "1100"], ["11111", "00000", "11110"]),
}


def masks(name):
    """The boolean masks of the target and of the source, or `None`."""
    return tuple(
        rows and np.array([[c == "1" for c in row] for row in rows])
        for rows in MASKS[name]
    )


def decoder(mechanism, cell="gru", wiring="pre", emit="attentional", **kwargs):
    """An `AttentionDecoder` of these parts."""
    return keras_attn.AttentionDecoder(
        CELLS[cell](), mechanism.make(), emit=emit, **WIRINGS[wiring], **kwargs
    )


def draw(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


def scramble(layer, seed=1):
    """Gives every weight, biases too, random values that matter."""
    random = np.random.default_rng(seed)
    layer.set_weights(
        [random.normal(0, 0.7, w.shape) for w in layer.get_weights()]
    )


def values(structure):
    """NumPy arrays of a structure of tensors, for any backend."""
    return keras.tree.map_structure(ops.convert_to_numpy, structure)


def crossing(**axes):
    """Parametrizes by all combinations of the axes.

    A subset runs always: in it, each value of an axis meets each value of
    every other axis, except that the first axis, the longest, is only crossed
    with the second. The other combinations are marked `full`.
    """
    every = list(itertools.product(*axes.values()))
    cover = set(_pairwise(every))
    params = [
        pytest.param(
            *case,
            id="-".join(getattr(x, "name", str(x)) for x in case),
            marks=() if case in cover else pytest.mark.full,
        )
        for case in every
    ]
    return pytest.mark.parametrize(",".join(axes), params)


def in_turn(every=1, **axes):
    """Parametrizes by all combinations of two axes, for costly tests.

    A subset runs always: it gives each value of the first axis one value of
    the second, in turn. With `every=n` it takes only each n-th value of the
    first axis. The other combinations are marked `full`.
    """
    first, second = (list(axis) for axis in axes.values())
    params = [
        pytest.param(
            x,
            y,
            id=f"{getattr(x, 'name', x)}-{y}",
            marks=()
            if i % len(second) == j and i % every == 0
            else pytest.mark.full,
        )
        for i, x in enumerate(first)
        for j, y in enumerate(second)
    ]
    return pytest.mark.parametrize(",".join(axes), params)


def nth(every, names):
    """Returns parameters of which only each n-th runs always."""
    return [
        pytest.param(name, marks=() if i % every == 0 else pytest.mark.full)
        for i, name in enumerate(names)
    ]


def _pairwise(cases):
    """Greedily chooses cases until all these pairs of values have met."""
    pairs = {
        case: {
            ((i, a), (j, b))
            for (i, a), (j, b) in itertools.combinations(enumerate(case), 2)
            if i > 0 or j == 1
        }
        for case in cases
    }
    missing = set().union(*pairs.values())
    while missing:
        best = max(cases, key=lambda case: len(pairs[case] & missing))
        missing -= pairs[best]
        yield best


def model_of(
    mechanism, wiring="pre", cell="gru", dtype=None, seed=1, **options
):
    """A functional model that attends as a layer and in a decoder.

    It takes source and target ids, with 0 as padding. It returns the layer's
    context and weights and the decoder's output and alignments.
    """
    source = keras.Input((None,), dtype="int32", name="source")
    target = keras.Input((None,), dtype="int32", name="target")
    memory = layers.Embedding(
        VOCABULARY, mechanism.value_dim, mask_zero=True, dtype=dtype
    )(source)
    queries = layers.Embedding(
        VOCABULARY, QUERY_DIM, mask_zero=True, dtype=dtype
    )(target)
    context, weights = mechanism.make(dtype=dtype, **options)(
        queries, memory, return_attention_scores=True
    )
    decoded, alignments = keras_attn.AttentionDecoder(
        CELLS[cell](dtype=dtype),
        mechanism.make(dtype=dtype, **options),
        dtype=dtype,
        **WIRINGS[wiring],
    )(queries, memory, return_attention_scores=True)
    model = keras.Model(
        [source, target], [context, weights, decoded, alignments]
    )
    scramble_weights_of(model, seed)
    return model


def trainable_model_of(mechanism, wiring="pre", **options):
    """`model_of` with logits over the vocabulary as its one output."""
    model = model_of(mechanism, wiring, **options)
    context, _, decoded, _ = model.outputs
    dtype = options.get("dtype")
    both = layers.Concatenate(dtype=dtype)([context, decoded])
    logits = layers.Dense(VOCABULARY, dtype=dtype)(both)
    return keras.Model(model.inputs, logits)


def scramble_weights_of(model, seed):
    """Like `scramble`, but keeps the state of random generators."""
    random = np.random.default_rng(seed)
    for weight in model.weights:
        weight.assign(random.normal(0, 0.7, weight.shape))


def some_ids(batch=BATCH):
    """Source and target ids: full rows, padded ones and one of padding."""
    random = np.random.default_rng(2)
    source = random.integers(1, VOCABULARY, (batch, SOURCE))
    target = random.integers(1, VOCABULARY, (batch, TARGET))
    if batch > 1:
        source[1, 3:], target[1, 2:] = 0, 0
    if batch > 2:
        source[2], target[2] = 0, 0
    return [source, target]


# One model per mechanism; wirings and cells take turns.
SAVED = [
    (mechanism, list(WIRINGS)[i % 3], list(CELLS)[i % 5])
    for i, mechanism in enumerate(MECHANISMS)
]


def save_models(folder, every=1):
    """Saves a model of every n-th mechanism and what it answers."""
    for i, (mechanism, wiring, cell) in enumerate(SAVED[::every]):
        model = model_of(mechanism, wiring, cell)
        model.save(folder / f"{i}.keras")
        np.savez(folder / f"{i}.npz", *values(model(some_ids())))


def check_models(folder, every=1):
    """Asserts that the saved models answer as they did; counts them."""
    saved = SAVED[::every]
    for i, (mechanism, *_) in enumerate(saved):
        model = keras.models.load_model(folder / f"{i}.keras")
        answers = values(model(some_ids()))
        with np.load(folder / f"{i}.npz") as expected:
            for answer, name in zip(answers, expected.files, strict=True):
                np.testing.assert_allclose(
                    answer, expected[name], atol=1e-5, err_msg=mechanism.name
                )
    return len(saved)
