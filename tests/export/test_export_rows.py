"""Rows that cannot be decoded, and batches without rows, as served.

A bad row has an answer of its own: an empty text, a score of minus infinity
and an error that says why. It does not change its neighbours' answers.
"""

import keras
import numpy as np
import pytest
from keras import layers
from support import toys as toy_models
from support.exports import as_bytes
from support.exports import option_inputs
from support.exports import saved_model
from support.lazily import Answers
from support.lazily import Lazily
from support.lazily import ask
from support.lazily import some

import keras_attn

pytestmark = pytest.mark.full

NAN, INF = float("nan"), float("inf")
LONGEST = 5
ROWS = 14


def _strict():
    """Texts that refuse longer rows, and a Transformer of limited length."""
    source_text, target_text = (
        keras_attn.Text(
            ["a", "b", "c"], "whitespace", max_length=longest, too_long="error"
        )
        for longest in (6, 4)
    )
    source = keras.Input((None,), dtype="int32", name="source")
    target = keras.Input((None,), dtype="int32", name="target")
    memory = layers.Embedding(source_text.size, 8, mask_zero=True)(source)
    x = layers.Embedding(target_text.size, 8)(target)
    x = keras_attn.PositionEmbedding(LONGEST)(x)
    own = layers.MultiHeadAttention(2, 4)(x, x, use_causal_mask=True)
    x = layers.LayerNormalization()(layers.Add()([x, own]))
    x = layers.Add()([x, layers.MultiHeadAttention(2, 4)(x, memory)])
    logits = layers.Dense(target_text.size)(x)
    model = keras.Model([source, target], logits)
    toy_models.speak_up(model, seed=5)
    search = keras_attn.GreedySearch(max_length=LONGEST)
    return keras_attn.Translator(model, source_text, target_text, search)


NAMES = ["pre", "sampling", "spectra", "strict"]
# The others are left to `make test-all`.
ALWAYS = ["pre", "strict"]


@pytest.fixture(scope="module")
def translators(toys):
    return Lazily(
        lambda name: _strict() if name == "strict" else toys[name], NAMES
    )


@pytest.fixture(scope="module")
def exports(translators, tmp_path_factory):
    return Lazily(
        lambda name: translators[name].export(
            tmp_path_factory.mktemp("exports"),
            signatures=["options"] if name == "sampling" else "all",
            lengths=True if name == "spectra" else None,
        ),
        NAMES,
    )


def options(translator, rows, **given):
    inputs = {
        name: np.full(rows, -1, dtype.as_numpy_dtype)
        for name, dtype in option_inputs(translator.search).items()
    }
    if isinstance(translator.search, keras_attn.Sampling):
        inputs["seed"] = np.arange(rows, dtype="int32")
    return inputs | {"prefix": as_bytes([""] * rows)} | given


# By row: input, value and words of the error. The other rows are good.
OPTIONS = {
    "pre": {
        1: ("width", 0, "`width` must be between 1 and 4. Received: width=0."),
        2: ("width", 5, "Received: width=5. -1 stands for"),
        3: ("width", -2, "Received: width=-2."),
        4: ("length_penalty", NAN, "and finite. Received: length_penalty=nan"),
        5: ("length_penalty", -INF, "Received: length_penalty=-inf"),
        6: ("length_penalty", INF, "Received: length_penalty=inf"),
        7: ("coverage_penalty", -0.5, "Received: coverage_penalty=-0.5."),
        8: ("max_length", 13, "`max_length` must be between 1 and 12."),
        9: ("min_length", 0, "`min_length` must be between 1 and 12."),
        10: ("prefix", b"AA ?", "tokens that the target text knows. Rec"),
        11: ("prefix", b" ".join([b"B"] * 12), "Received: one of 12 tokens"),
    },
    "sampling": {
        1: ("temperature", 0.0, "`temperature` must be above 0 and finite."),
        2: ("temperature", NAN, "Received: temperature=nan."),
        3: ("top_p", 1.5, "`top_p` must be above 0 and at most 1."),
        4: ("top_p", 0.0, "Received: top_p=0."),
        5: ("top_k", -7, "`top_k` must be at least 0 and finite."),
        6: ("max_length", 0, "Received: max_length=0."),
    },
}
IDS = {
    1: ([4, 99, 2, 0], 3, "between 0 and 9. Received: 99. 3 stands for"),
    2: ([4, -1, 2, 0], 3, "Received: -1."),
    3: ([4, 5, 2, 0], -1, "`lengths` must be between 0 and 4, the columns of"),
    4: ([4, 5, 2, 0], 5, "Received: lengths=5."),
    5: ([-7, 5, 2, 0], 3, "Received: -7."),
}
LINE = "abc"


def _asked(name, translator, bad):
    """A request of `options`, with the rows that are bad or without."""
    given = options(translator, ROWS)
    if bad:
        for row, (option, value, _) in OPTIONS[name].items():
            given[option][row] = value
    return {"text": as_bytes([LINE, "dead"] * (ROWS // 2))} | given


def _ids(bad):
    ids, lengths = np.array([[4, 5, 6, 2]] * 7, "int32"), np.full(7, 4, "int32")
    for row, (wrong, length, _) in IDS.items() if bad else ():
        ids[row], lengths[row] = wrong, length
    return {"ids": ids, "lengths": lengths}


FRAMES = toy_models.sources("spectra")


def _frames(**rows):
    frames, lengths = FRAMES.copy(), np.full(4, FRAMES.shape[1], "int32")
    if "nan" in rows:
        frames[rows["nan"]] = NAN
    for row, length in rows.get("lengths", {}).items():
        lengths[row] = length
    return {"frames": frames, "lengths": lengths}


TOO_LONG = ["a b", "a b c a b c a", "c"]
SHORT = ["a b", "c", "c"]
PLAIN = ("serving_default", "nbest", "align")


def empty(inputs):
    """Returns the same request without rows."""
    return {name: x[:0] for name, x in inputs.items()}


def _cases_of(name, translator):
    """Returns the inputs of each `(signature, case)` of an export."""
    cases = {}
    if name in OPTIONS:
        for bad in (True, False):
            cases["options", bad] = _asked(name, translator, bad)
    if name == "pre":
        for bad in (True, False):
            cases["ids", bad] = _ids(bad)
    if name == "strict":
        for case, lines in (("too long", TOO_LONG), ("short", SHORT)):
            text = {"text": as_bytes(lines)}
            for signature in (*PLAIN, "encode"):
                cases[signature, case] = text
            cases["options", case] = text | options(translator, 3)
            longer = "a b c a b" if case == "too long" else "b"
            cases["score", case] = {
                "text": as_bytes(SHORT),
                "target": as_bytes(["a b", longer, "c"]),
            }
        cases["options", "prefix"] = {"text": as_bytes(SHORT)} | options(
            translator, 3, prefix=as_bytes(["", "a b c a b", "a"])
        )
    if name == "spectra":
        for case, given in {
            "good": {},
            "nan": {"nan": 1},
            "lengths": {"lengths": {1: -1, 2: 8}},
        }.items():
            frames = _frames(**given)
            for signature in (*PLAIN, "ids", "encode"):
                cases[signature, case] = frames
            cases["options", case] = frames | options(translator, 4)
            cases["score", case] = frames | {
                "target": as_bytes(["AA", "B", "", "D"])
            }
    good = [key for key in cases if key[1] in ("short", "good", False)]
    for signature, case in good:
        cases[signature, "no rows"] = empty(cases[signature, case])
    if name != "strict":
        return cases
    strings = np.array([[4, 5, 6], [4, 99, 2], [4, -1, 2], [4, 2, 99]], "int32")
    for case, ids, lengths in (
        ("strings", strings, [3, 3, 3, 3]),
        ("lengths", strings, [2, 4, -1, 0]),
        ("no rows", strings[:0], []),
        ("no columns", strings[:, :0], [0, 0, 0, 0]),
        ("nothing", strings[:0, :0], []),
    ):
        cases["strings", case] = {
            "ids": ids,
            "lengths": np.array(lengths, "int32"),
        }
    return cases


@pytest.fixture(scope="module")
def answers(translators, exports, tmp_path_factory):
    def cases_of(name):
        return {
            key: (key[0], inputs)
            for key, inputs in _cases_of(name, translators[name]).items()
        }

    return Answers(exports, cases_of)


@pytest.fixture(scope="module")
def steps(exports, answers):
    """Answers of `step` to each of `_steps()`."""
    inputs = _steps(answers["strict", "encode", "short"])
    path = str(exports["strict"])
    return ask([(path, "step", x, "c") for x in inputs])


def _steps(encoded):
    """Inputs of `step`: good, with bad tokens, past the end, and no rows."""
    said = "source_tokens", "source_length", "end", "error"
    first = {k: x for k, x in encoded.items() if k not in said}
    bad = first | {"tokens": np.array([[1], [99], [-1]], "int32")}
    counters = {
        name: np.array([[0], [LONGEST], [0]], "int32")
        for name, x in first.items()
        if name.startswith("state_") and x.dtype == "int32"
    }
    assert len(counters) == 2  # of the position and of the past
    return first, bad, first | counters, empty(first)


def assert_same_rows(found, expected, rows):
    """Neighbours have the same answer to the last bit."""
    for name in expected:
        np.testing.assert_array_equal(
            found[name][rows], expected[name][rows], name
        )


def errors(answer):
    assert isinstance(answer, dict), answer
    return [x.decode() for x in answer["error"]]


@pytest.mark.full
@pytest.mark.parametrize("name", some(OPTIONS, ALWAYS))
def test_a_bad_option_is_answered_and_harms_no_neighbour(name, answers):
    bad = answers[name, "options", True]
    said = errors(bad)
    for row, error in enumerate(said):
        if row not in OPTIONS[name]:
            assert error == ""
            continue
        assert OPTIONS[name][row][2] in error
        assert bad["text"][row] == b"" and not any(bad["texts"][row])
        assert bad["score"][row] == -INF
        assert np.all(bad["scores"][row] == -INF)
    good = [i for i in range(ROWS) if i not in OPTIONS[name]]
    expected = answers[name, "options", False]
    assert not any(errors(expected)) and all(np.isfinite(expected["score"]))
    assert_same_rows(bad, expected, good)


def test_bad_ids_and_lengths_are_answered_and_harm_no_neighbour(answers):
    bad, expected = (answers["pre", "ids", x] for x in (True, False))
    said = errors(bad)
    for row, (*_, error) in IDS.items():
        assert error in said[row]
        assert not bad["ids"][row].any() and not bad["lengths"][row].any()
        assert np.all(bad["scores"][row] == -INF)
    assert said[0] == said[6] == "" and not any(errors(expected))
    assert_same_rows(bad, expected, [0, 6])


def test_a_strict_translator_exports(exports):
    (meta_graph,) = saved_model(exports["strict"]).meta_graphs
    assert {*PLAIN, "options", "score", "encode"} <= {*meta_graph.signature_def}


@pytest.mark.sample_cases(1)
@pytest.mark.parametrize("signature", [*PLAIN, "options", "encode"])
def test_a_text_too_long_fails_alone(signature, answers):
    long = answers["strict", signature, "too long"]
    short = answers["strict", signature, "short"]
    assert isinstance(long, dict), long
    if signature in ("options", "encode"):
        assert errors(long) == [
            "",
            "A `text` may have at most 6 tokens. Received: one of 7. Split it.",
            "",
        ]
    if signature == "encode":
        assert long["source_length"].tolist() == [3, 0, 2]
    elif signature == "nbest":
        assert not any(long["texts"][1]) and all(long["scores"][1] == -INF)
    else:
        assert long["text"][1] == b"" and long["score"][1] == -INF
    if signature == "align":
        assert long["length"][1] == long["source_length"][1] == 0
        assert not any(long["tokens"][1]) and not any(long["source_tokens"][1])
        assert not long["alignments"][1].any()
    assert_same_rows(long, short, [0, 2])


def test_a_target_too_long_fails_alone(answers):
    long, short = (answers["strict", "score", x] for x in ("too long", "short"))
    assert errors(long)[1] == (
        "A `target` may have at most 4 tokens. Received: one of 5. Split it."
    )
    assert long["score"][1] == -INF and long["length"][1] == 0
    assert not long["token_scores"][1].any()
    assert_same_rows(long, short, [0, 2])


def test_a_prefix_that_its_text_refuses_fails_alone(answers):
    found = answers["strict", "options", "prefix"]
    first, second, third = errors(found)
    assert first == third == ""
    assert "A `prefix` may have at most 4 tokens. Received: one of 5." in second
    assert found["text"][2].startswith(b"a")
    assert found["text"][0] == answers["strict", "options", "short"]["text"][0]


@pytest.mark.full
@pytest.mark.parametrize("signature", [*PLAIN, "ids", "options", "score"])
@pytest.mark.parametrize(
    "case, bad", [("nan", {1: "finite"}), ("lengths", {1: "=-1.", 2: "=8."})]
)
def test_bad_features_fail_alone(signature, case, bad, answers):
    found = answers["spectra", signature, case]
    expected = answers["spectra", signature, "good"]
    assert isinstance(found, dict), found
    scores = found["scores" if signature in ("nbest", "ids") else "score"]
    for row in bad:
        assert np.all(scores[row] == -INF)
    if signature in ("ids", "options", "score"):
        said = errors(found)
        for row in range(4):
            assert (said[row] == "") == (row not in bad)
            assert bad.get(row, "") in said[row]
    good = [row for row in range(4) if row not in bad]
    assert np.isfinite(expected["score" if "score" in expected else "scores"])[
        good
    ].all()
    assert_same_rows(found, expected, good)


@pytest.mark.full
def test_lengths_that_cannot_be_are_said_when_encoding(answers):
    said = errors(answers["spectra", "encode", "lengths"])
    assert [bool(x) for x in said] == [False, True, True, False]
    assert "between 0 and 7, the columns of `frames`" in said[1]


def test_a_bad_hypothesis_fails_alone_in_a_step(steps):
    good, bad, past, _ = steps
    assert not any(good["error"].ravel())
    said = [x.decode() for x in bad["error"][:, 0]]
    assert said[0] == "" and "Received: 99" in said[1]
    assert "between 0 and 6. Received: -1" in said[2]
    assert np.all(bad["log_probabilities"][1:] == -INF)
    said = [x.decode() for x in past["error"][:, 0]]
    assert said[0] == said[2] == "" and "allows 5 steps" in said[1]
    assert np.all(past["log_probabilities"][1] == -INF)
    for found, rows in ((bad, [0]), (past, [0, 2])):
        np.testing.assert_array_equal(
            found["log_probabilities"][rows], good["log_probabilities"][rows]
        )


def test_strings_of_bad_ids_are_empty_and_say_why(answers):
    found = answers["strict", "strings", "strings"]
    # Ids after an end token are ignored.
    assert found["text"].tolist() == [b"a b c", b"", b"", b"a"]
    first, second, third, last = errors(found)
    assert first == last == ""
    assert "between 0 and 6. Received: 99" in second
    assert "Received: -1" in third
    found = answers["strict", "strings", "lengths"]
    assert found["text"].tolist() == [b"a b", b"", b"", b""]
    first, second, third, last = errors(found)
    assert first == last == ""
    assert "between 0 and 3, the columns of `ids`. Rec" in second
    assert "Received: lengths=-1" in third


@pytest.mark.parametrize("case", ["no rows", "no columns", "nothing"])
def test_strings_of_nothing_are_empty(case, answers):
    answer = answers["strict", "strings", case]
    assert isinstance(answer, dict), answer
    rows = 4 if case == "no columns" else 0
    assert answer["text"].tolist() == [b""] * rows
    assert errors(answer) == [""] * rows


@pytest.mark.parametrize(
    "name, signature",
    [
        *(("strict", x) for x in (*PLAIN, "options", "score", "encode")),
        *(
            pytest.param("spectra", x, marks=pytest.mark.full)
            for x in (*PLAIN, "ids", "options", "score", "encode")
        ),
        ("pre", "ids"),
        pytest.param("sampling", "options", marks=pytest.mark.full),
    ],
)
def test_no_rows_are_answered_by_none_of_fitting_shapes(
    name, signature, answers
):
    answer = answers[name, signature, "no rows"]
    assert isinstance(answer, dict), answer
    case = {"strict": "short", "spectra": "good"}.get(name, False)
    other = answers[name, signature, case]
    for output, value in answer.items():
        assert len(value) == 0
        assert value.dtype == other[output].dtype
        assert value.ndim == other[output].ndim
    if signature == "align":
        _, tokens, source = answer["alignments"].shape
        assert answer["tokens"].shape == (0, tokens)
        assert answer["source_tokens"].shape == (0, source)


def test_a_step_of_no_rows_is_answered_by_none(steps):
    *_, answer = steps
    assert isinstance(answer, dict), answer
    assert all(len(x) == 0 for x in answer.values())
