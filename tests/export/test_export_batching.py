"""Requests of several clients in one batch: merged must equal separate.

`batching.py` merges them as TensorFlow Serving does; its own loader
answers. Bad rows get answers of their own.
"""

import keras
import numpy as np
import pytest
from keras import layers
from support import toys as toy_models
from support.exports import CORE_OPERATIONS
from support.exports import TEXT_OPERATIONS
from support.exports import as_bytes
from support.exports import ids_of
from support.exports import nodes
from support.exports import option_inputs
from support.exports import saved_model
from support.exports import warm_ups
from support.lazily import Answers
from support.lazily import Lazily
from support.lazily import some

import keras_attn

pytestmark = pytest.mark.full

# Clients whose requests are merged: of unequal width, and number of rows.
CLIENTS = [["abc", "", "dead"], ["b"], ["edcbaabcde", "bad cab"]]
FRAMES = [
    np.random.default_rng(i).normal(size=(rows, columns, 3)).astype("float32")
    for i, (rows, columns) in enumerate([(2, 5), (1, 3), (2, 8)])
]
# How many hypotheses each client follows, and when it begins.
SEARCHES = [(1, 0), (3, 2), (2, 1)]
LONGEST = 7


def _history():
    """Two attentions that look at past alignments, each in its way."""
    decoder = keras_attn.AttentionDecoder(
        layers.GRUCell(8),
        [
            keras_attn.Attention(
                keras_attn.LocationSensitiveScore(5, filters=2, kernel_size=3)
            ),
            keras_attn.Attention(
                keras_attn.CoverageScore(5, kind="learned"), num_heads=2
            ),
        ],
    )
    source, target, memory, embedded = _inputs()
    return _translator([source, target], decoder(embedded, [memory, memory]))


def _windows():
    """Local attention, whose window is chosen by source and position."""
    source, target, memory, embedded = _inputs()
    decoder = keras_attn.AttentionDecoder(
        layers.GRUCell(8),
        [
            keras_attn.LuongAttention(
                "general", alignment=alignment, window=window
            )
            for alignment, window in (("local-p", 1), ("local-m", 3))
        ],
    )
    return _translator([source, target], decoder(embedded, [memory, memory]))


def _positions():
    """A Transformer that knows where it is, also in a model within."""
    source, target, memory, embedded = _inputs()
    x = keras_attn.PositionEmbedding(LONGEST)(embedded)
    own = layers.MultiHeadAttention(2, 4)(x, x, use_causal_mask=True)
    x = layers.LayerNormalization()(layers.Add()([x, own]))
    inner = keras.Input((None, 8))
    within = keras.Model(inner, keras_attn.SinePositionEncoding()(inner))
    x = within(x)
    x = layers.Add()([x, layers.MultiHeadAttention(2, 4)(x, memory)])
    return _translator([source, target], x)


def _without_attention():
    source, target, memory, embedded = _inputs()
    state = layers.GRU(8)(memory)
    x = layers.GRU(8, return_sequences=True)(embedded, initial_state=state)
    return _translator([source, target], x)


def _unmasked():
    """Features without a mask; the second memory is half as long."""
    source = keras.Input((None, 3), name="frames")
    target = keras.Input((None,), dtype="int32", name="target")
    memory = layers.Dense(8, activation="tanh")(source)
    half = layers.AveragePooling1D(2, padding="same")(memory)
    decoder = keras_attn.AttentionDecoder(
        layers.GRUCell(8),
        [
            keras_attn.Attention(
                keras_attn.LocationSensitiveScore(5, filters=2, kernel_size=3)
            ),
            keras_attn.BahdanauAttention(5),
        ],
    )
    embedded = layers.Embedding(toy_models.TARGET.size, 8)(target)
    return _translator(
        [source, target], decoder(embedded, [memory, half]), reads_text=False
    )


def _inputs():
    source = keras.Input((None,), dtype="int32", name="source")
    target = keras.Input((None,), dtype="int32", name="target")
    memory = layers.Embedding(toy_models.SOURCE.size, 8, mask_zero=True)(source)
    embedded = layers.Embedding(toy_models.TARGET.size, 8)(target)
    return source, target, memory, embedded


def _translator(inputs, hidden, reads_text=True):
    logits = layers.Dense(toy_models.TARGET.size)(hidden)
    model = keras.Model(inputs, logits)
    toy_models.speak_up(model, seed=5)
    return keras_attn.Translator(
        model,
        toy_models.SOURCE if reads_text else None,
        toy_models.TARGET,
        keras_attn.BeamSearch(3, num_hypotheses=2, max_length=LONGEST),
    )


MAKERS = {
    "history": _history,
    "windows": _windows,
    "positions": _positions,
    "without attention": _without_attention,
    "unmasked": _unmasked,
}
LOOPS = [*MAKERS, "greedy", "spectra", "ensemble"]


# The others of `LOOPS` are left to `make test-all`.
ALWAYS = ["history", "greedy", "spectra"]


@pytest.fixture(scope="module")
def translators(toys):
    return Lazily(
        lambda name: MAKERS[name]() if name in MAKERS else toys[name], LOOPS
    )


@pytest.fixture(scope="module")
def exports(translators, tmp_path_factory):
    further = {"spectra": {"lengths": True}, "unmasked": {"lengths": False}}
    return Lazily(
        lambda name: translators[name].export(
            tmp_path_factory.mktemp("exports"),
            signatures="all" if name in ("greedy", "spectra") else ["step"],
            **further.get(name, {}),
        ),
        LOOPS,
    )


def per_row(value, rows, dtype="int32"):
    return np.full(rows, value, dtype)


def options(translator, rows, **given):
    """Returns all inputs of `options` but the sources, with the defaults."""
    inputs = {
        name: per_row(-1, rows, dtype.as_numpy_dtype)
        for name, dtype in option_inputs(translator.search).items()
    }
    return inputs | {"prefix": as_bytes([""] * rows)} | given


def of_lines(lines):
    return {"text": as_bytes(lines)}


def of_frames(frames):
    return {
        "frames": frames,
        "lengths": per_row(frames.shape[1], len(frames)),
    }


def requests(translators, name):
    """Returns the requests of all clients, by signature."""
    sources = [of_lines(x) for x in CLIENTS]
    if name == "spectra":
        sources = [of_frames(x) for x in FRAMES]
    rows = [len(next(iter(x.values()))) for x in sources]
    targets = [["AA B", "", "D"], ["K K ñ EH B"], ["EH EH", "B"]]
    found = {
        signature: sources
        for signature in ("serving_default", "nbest", "align", "encode")
    }
    found["options"] = [
        source | options(translators[name], n, max_length=per_row(i + 3, n))
        for i, (source, n) in enumerate(zip(sources, rows, strict=True))
    ]
    terms = ["", "B\nD", "AA"]
    found["terms"] = [
        request
        | {
            "terms": as_bytes([terms[(i + k) % 3] for k in range(n)]),
            "avoid": as_bytes(["K"] * n),
        }
        for i, (request, n) in enumerate(
            zip(found["options"], rows, strict=True)
        )
    ]
    found["score"] = [
        source | {"target": as_bytes(target[:n])}
        for source, target, n in zip(sources, targets, rows, strict=True)
    ]
    found["ids"] = sources
    if name != "spectra":
        text = translators[name].source_text
        found["ids"] = [ids_of(text, lines) for lines in CLIENTS]
    # The first is cut and has no end token; the last is shorter.
    found["strings"] = [
        {"ids": np.array(ids, "int32"), "lengths": np.array(n, "int32")}
        for ids, n in (
            ([[4, 5]], [2]),
            ([[6, 7, 8, 9, 4], [5, 2, 9, 9, 9]], [5, 2]),
            ([[5, 6, 7]], [1]),
        )
    ]
    return found


SIGNATURES = [
    "serving_default",
    "nbest",
    "align",
    "ids",
    "options",
    "terms",
    "score",
    "encode",
    "strings",
]


def searches(name):
    """The clients' own searches: sources, hypotheses and their delays."""
    sources = [of_lines(x) for x in CLIENTS]
    if name == "spectra":
        sources = [of_frames(x) for x in FRAMES]
    if name == "unmasked":
        sources = [{"frames": x} for x in FRAMES]
    return [
        (source, width, delay)
        for source, (width, delay) in zip(sources, SEARCHES, strict=True)
    ]


@pytest.fixture(scope="module")
def answers(translators, exports, tmp_path_factory):
    """Merged and separate answers, by export and signature."""

    def cases_of(name):
        cases = {}
        if name in ("greedy", "spectra"):
            for signature, asked in requests(translators, name).items():
                cases[signature, "merged"] = signature, asked
                for i, each in enumerate(asked):
                    cases[signature, i] = signature, each
        asked = searches(name)
        cases["loop", "merged"] = LONGEST, asked
        for i, each in enumerate(asked):
            cases["loop", i] = LONGEST, [(*each[:2], 0)]
        for signature, inputs in warm_ups(exports[name]):
            cases[f"warm up {signature}", 0] = signature, inputs
        return cases

    return Answers(exports, cases_of)


@pytest.mark.sample_cases(1)
@pytest.mark.parametrize("signature", SIGNATURES)
@pytest.mark.parametrize("name", ["greedy", "spectra"])
def test_merged_requests_are_answered_as_separate_ones(
    name, signature, answers
):
    merged = answers[name, signature, "merged"]
    assert isinstance(merged, list), merged
    for i, found in enumerate(merged):
        expected = answers[name, signature, i]
        assert isinstance(expected, dict), expected
        assert set(found) == set(expected)
        for output, value in expected.items():
            if output == "widths":  # of the merged encoder
                continue
            trimmed = found[output][tuple(map(slice, value.shape))]
            if value.dtype == object or value.dtype == bool:
                np.testing.assert_array_equal(trimmed, value, output)
            else:
                np.testing.assert_allclose(
                    trimmed, value, atol=1e-5, err_msg=output
                )
            # Additional columns of the merged answer are padding.
            if output in ("alignments", "token_scores", "source_tokens"):
                rest = found[output].copy()
                rest[tuple(map(slice, value.shape))] = rest.dtype.type()
                assert not rest.any() if rest.dtype != object else True


@pytest.mark.full
@pytest.mark.parametrize("name", some(LOOPS, ALWAYS))
def test_clients_that_step_together_find_what_each_finds_alone(name, answers):
    merged = answers[name, "loop", "merged"]
    assert isinstance(merged, list), merged
    texts = set()
    for i, found in enumerate(merged):
        (expected,) = answers[name, "loop", i]
        np.testing.assert_array_equal(found["text"], expected["text"])
        np.testing.assert_allclose(found["score"], expected["score"], atol=1e-5)
        for one, other in zip(
            found["alignments"], expected["alignments"], strict=True
        ):
            np.testing.assert_allclose(one, other, atol=1e-5)
        texts |= set(found["text"])
    assert len(texts) > 2


# The others have operations of their mechanisms beside.
@pytest.mark.parametrize(
    "name", some(["positions", "without attention"], ALWAYS)
)
def test_steps_of_several_need_only_operations_that_servers_have(name, exports):
    (meta_graph,) = saved_model(exports[name]).meta_graphs
    called = {x.signature.name for x in meta_graph.graph_def.library.function}
    used = {node.op for node in nodes(exports[name])}
    unknown = used - called - {*CORE_OPERATIONS, *TEXT_OPERATIONS}
    assert not unknown, unknown


@pytest.mark.full
@pytest.mark.parametrize("name", some(LOOPS, ALWAYS))
def test_a_client_s_greedy_search_is_the_translator_s(
    name, translators, answers
):
    like = translators[name]
    search = keras_attn.GreedySearch(max_length=LONGEST)
    greedy = keras_attn.Translator(
        like.models, like.source_text, like.target_text, search
    )
    sources = CLIENTS[0] if like.source_text else FRAMES[0]
    expected = greedy(sources)
    (found,) = answers[name, "loop", 0]
    assert [x.decode() for x in found["text"]] == expected.text
    np.testing.assert_allclose(found["score"], expected.scores, atol=1e-4)


@pytest.mark.parametrize(
    "name, count",
    [("spectra", 10), pytest.param("positions", 7, marks=pytest.mark.full)],
)
def test_every_warm_up_request_is_answered_without_an_error(
    name, count, answers
):
    found = answers.of(name)
    warm_up = {k: x for k, x in found.items() if "warm up" in str(k[0])}
    assert len(warm_up) == count
    for key, answer in warm_up.items():
        assert isinstance(answer, dict), (key, answer)
        assert not np.any(answer.get("error", "")), key


@pytest.mark.full
def test_features_of_any_size_bring_a_warning(translators, tmp_path):
    with pytest.warns(UserWarning, match="pads the shorter ones with copies"):
        translators["spectra"].export(tmp_path)


@pytest.mark.full
def test_lengths_that_no_mask_follows_bring_a_warning(translators, recwarn):
    from keras_attn.export.tf_saved_model.lengths import warn_of_padding

    for name, number in (("spectra", 0), ("unmasked", 1)):
        made = translators[name]
        sources, examples = made.pipeline.sources, made.pipeline.examples
        warn_of_padding(made.models, sources.specs, examples)
        assert len(recwarn) == number
    assert "Does a mask reach the decoder?" in str(recwarn[0].message)


def test_lengths_of_what_has_a_size_are_refused(translators, tmp_path):
    with pytest.raises(ValueError, match="Received: .*whose lengths an export"):
        translators["greedy"].export(tmp_path, lengths=True)
    assert not list(tmp_path.iterdir())


def test_every_signature_of_features_takes_lengths(exports):
    (meta_graph,) = saved_model(exports["spectra"]).meta_graphs
    for name in ("serving_default", "nbest", "align", "ids", "options"):
        assert "lengths" in meta_graph.signature_def[name].inputs


def test_two_open_axes_have_a_column_of_lengths_each():
    from keras_attn.decoding.translator.sources import FeatureSource
    from keras_attn.export.tf_saved_model.lengths import Measured

    image = keras.Input((None, None, 2), name="image")
    style = keras.Input((4,), name="style")
    sources = Measured(FeatureSource([image, style]))
    assert [tuple(x.shape) for x in sources.specs] == [
        (None, None, None, 2),
        (None, 4),
        (None, 2),
    ]
    given = np.ones((2, 3, 4, 2)), np.ones((2, 4)), [[3, 2], [1, 4]]
    given = *given[:2], np.array(given[2], "int32")
    found, style = sources.inputs(tuple(map(keras.ops.array, given)))
    expected = np.zeros((2, 3, 4, 2))
    expected[0, :3, :2] = expected[1, :1, :4] = 1
    np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(style, given[1])


def test_an_input_of_that_name_is_refused():
    from keras_attn.decoding.translator.sources import FeatureSource
    from keras_attn.export.tf_saved_model.lengths import Measured

    inputs = [keras.Input((None,), name="x"), keras.Input((1,), name="lengths")]
    with pytest.raises(ValueError, match="a model with an input of this name"):
        Measured(FeatureSource(inputs))
