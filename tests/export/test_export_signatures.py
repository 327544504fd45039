"""Further signatures, features, sampling and XLA, as TF Serving runs them.

Two fresh processes load each export: one with XLA switched off, as in TF
Serving, and one with XLA.
"""

import pathlib
import shutil

import keras
import numpy as np
import pytest
from keras import layers
from keras_attn_serving import Client
from keras_attn_serving import RowError
from keras_attn_serving import ServingError
from keras_attn_serving.server import Server
from support import client_loop
from support import toys as toy_models
from support import two_texts
from support.c_loader import INVALID_ARGUMENT
from support.exports import CORE_OPERATIONS
from support.exports import TEXT_OPERATIONS
from support.exports import as_bytes
from support.exports import nodes
from support.exports import option_inputs
from support.exports import saved_model
from support.exports import warm_ups
from support.lazily import Answers
from support.lazily import Lazily
from support.lazily import ask
from support.lazily import some

import keras_attn

LINES = toy_models.LINES
ROWS = len(LINES)
MANY = LINES * 2  # more rows than XLA compiles for
FRAMES = toy_models.sources("spectra")
STEPS = ["encode", "step", "strings"]
PLAIN = ["serving_default", "nbest", "align", "ids"]
# Which signatures each export has beside the plain ones.
FURTHER = {
    "greedy": ["options", "score", *STEPS, "terms"],
    "sampling": ["options"],
    "spectra": ["options", "score", *STEPS, "terms"],
    "ensemble": [],
    "transformer": STEPS,
    "compiled": [],
}
ASKED = FURTHER | {"greedy": "all", "spectra": "all", "transformer": ["step"]}
TARGETS = ["AA B", "", "D", "K K", "ñ", "EH EH", "B", "AA"]
PREFIXES = ["AA", "", "K D", "", "ñ", "B B B", "", "EH"]


# The others are left to `make test-all`.
ALWAYS = ["greedy", "sampling", "spectra"]


@pytest.fixture(scope="session")
def exports(toys, tmp_path_factory):
    return Lazily(
        lambda name: toys[name].export(
            tmp_path_factory.mktemp("exports") / name,
            signatures=ASKED[name],
            jit_compile=name == "compiled",
            lengths=False if name == "spectra" else None,
        ),
        ASKED,
    )


def per_row(value, rows=ROWS, dtype="int32"):
    return np.full(rows, value, dtype)


def options(toy, rows=ROWS, **given):
    """All inputs of `options` beside the sources; below zero if not given."""
    inputs = {
        name: per_row(-1, rows, dtype.as_numpy_dtype)
        for name, dtype in option_inputs(toy.search).items()
    }
    return inputs | {"prefix": as_bytes([""] * rows)} | given


def cases_of(name, toys):
    """Returns `(signature, inputs)` of each case of an export."""
    text = {"text": as_bytes(LINES)}
    frames, toy = {"frames": FRAMES}, toys[name]
    if name == "greedy":
        longest = np.array([3, 1, 5, 2, 10, 4, 6, 7], "int32")
        prefix = as_bytes(PREFIXES)
        asked = {
            "own": {},
            "prefixes": {"prefix": prefix, "max_length": longest},
            "too long": {"max_length": per_row(99)},
            "one for all": {"max_length": per_row(3, 1)},
        }
        return {
            **{
                case: ("options", text | options(toy, **given))
                for case, given in asked.items()
            },
            "default": ("serving_default", text),
            "score": ("score", text | {"target": as_bytes(TARGETS)}),
            "no target": ("score", text | {"target": as_bytes(["A"])}),
            "loop": (toy.search.max_length, text),
        }
    if name == "sampling":
        seeds = {"seed": np.arange(ROWS, dtype="int32")}
        unseeded = {"seed": per_row(-1)}
        return {
            "default": ("serving_default", text),
            "default again": ("serving_default", text),
            "seeds": ("options", text | options(toy, **seeds)),
            "unseeded": ("options", text | options(toy, **unseeded)),
        }
    if name == "spectra":
        penalty = np.array([0, 1.5, -1, 0.5], "float32")
        given = frames | options(toy, 4, length_penalty=penalty)
        return {
            "align": ("align", frames),
            "nbest": ("nbest", frames),
            "ids": ("ids", frames),
            "few": ("align", {"frames": FRAMES[:, :5]}),
            "no rows": ("align", {"frames": FRAMES[:0]}),
            "options": ("options", given),
            "score": ("score", frames | {"target": as_bytes(TARGETS[:4])}),
            "loop": (toy.search.max_length, frames),
        }
    cases = {"nbest": ("nbest", text)}
    if name == "transformer":
        cases["loop"] = 9, text
    if name == "compiled":
        cases["one"] = "nbest", {"text": as_bytes(LINES[:1])}
        cases["many"] = "nbest", {"text": as_bytes(MANY)}
    return cases


@pytest.fixture(scope="session")
def answers(toys, exports, tmp_path_factory):
    """Answers by `(name, case)` as in TF Serving, without XLA."""

    def cases(name):
        found = cases_of(name, toys)
        if name != "compiled":
            for signature, inputs in warm_ups(exports[name]):
                found[f"warm up {signature}"] = signature, inputs
        return found

    return Answers(exports, cases)


@pytest.fixture(scope="session")
def answers_with_xla(toys, exports, tmp_path_factory):
    return Answers(
        exports,
        lambda name: cases_of(name, toys),
        "--xla",
    )


def texts(answer):
    assert isinstance(answer, dict), answer
    return [x.decode() for x in answer["text"]]


@pytest.mark.full
@pytest.mark.parametrize("name", some(FURTHER, ALWAYS))
def test_the_signatures_asked_for_are_there(name, exports):
    (meta_graph,) = saved_model(exports[name]).meta_graphs
    signatures = set(meta_graph.signature_def) - {"__saved_model_init_op"}
    assert signatures == {*PLAIN, *FURTHER[name]}


def inputs_and_outputs(export):
    """Returns the names of both by signature, and the definitions."""
    (meta_graph,) = saved_model(export).meta_graphs
    signatures = meta_graph.signature_def
    names = {k: (set(x.inputs), set(x.outputs)) for k, x in signatures.items()}
    return names, signatures


@pytest.mark.full
def test_inputs_and_outputs_are_as_documented(toys, exports):
    found, _ = inputs_and_outputs(exports["greedy"])
    report = {"truncated", "unknown", "empty", "error"}
    assert found["options"] == (
        {"text", "prefix", *toys["greedy"].search.request_options},
        {"text", "score", "texts", "scores", "finished"} | report,
    )
    assert found["score"] == (
        {"text", "target"},
        {"score", "token_scores", "length"} | report,
    )
    inputs, outputs = found["encode"]
    assert inputs == {"text"}
    taken, given = found["step"]
    said = {"source_tokens", "source_length", "end", "error"}
    assert outputs == said | taken
    states = {x for x in taken if x.startswith("state_")}
    assert given == {"log_probabilities", "alignments", "error"} | states
    assert taken - states - {"tokens", "widths"} == {
        x for x in taken if x.startswith("encoded_")
    }
    assert found["strings"] == ({"ids", "lengths"}, {"text", "error"})


@pytest.mark.full
def test_features_are_the_only_input(exports):
    _, signatures = inputs_and_outputs(exports["spectra"])
    for name in ("serving_default", "nbest", "align", "ids", "encode"):
        assert set(signatures[name].inputs) == {"frames"}
        shape = signatures[name].inputs["frames"].tensor_shape
        assert [x.size for x in shape.dim] == [-1, -1, 3]


@pytest.mark.full
def test_a_search_that_draws_takes_a_seed(exports):
    found, _ = inputs_and_outputs(exports["sampling"])
    inputs, _ = found["options"]
    assert "seed" in inputs


def test_names_of_signatures_that_are_none_are_refused(toys, tmp_path):
    for names in (["beams"], "score"):
        with pytest.raises(ValueError, match='must be "all" or a list of some'):
            toys["greedy"].export(tmp_path, signatures=names)


@pytest.mark.full
def test_options_below_zero_are_the_search_s_own(answers):
    assert texts(answers["greedy", "own"]) == texts(
        answers["greedy", "default"]
    )


@pytest.mark.full
def test_options_and_prefixes_go_row_by_row(toys, answers):
    longest = [3, 1, 5, 2, 10, 4, 6, 7]
    answer = answers["greedy", "prefixes"]
    expected = toys["greedy"](
        LINES, prefixes=PREFIXES, options={"max_length": longest}
    )
    assert texts(answer) == expected.text
    np.testing.assert_allclose(answer["score"], expected.scores, atol=1e-5)
    assert answer["texts"][:, 0].tolist() == answer["text"].tolist()


@pytest.mark.full
def test_options_that_cannot_be_are_refused(answers):
    answer = answers["greedy", "too long"]
    assert not any(texts(answer))
    for error in answer["error"]:
        assert error.startswith(
            b"`max_length` must be between 1 and 10. Received: max_length=99"
        )
    code, message = answers["greedy", "one for all"]
    assert code == INVALID_ARGUMENT
    assert "options needs one of max_length for each row" in message


@pytest.mark.full
def test_scores_are_the_translator_s(toys, answers):
    for name, sources, targets in (
        ("greedy", LINES, TARGETS),
        ("spectra", FRAMES, TARGETS[:4]),
    ):
        expected = toys[name].score(sources, targets)
        answer = answers[name, "score"]
        np.testing.assert_allclose(answer["score"], expected.scores, atol=1e-4)
        lengths = [len(x) for x in expected.tokens]
        assert answer["length"].tolist() == lengths
        for row, each in enumerate(expected.token_scores):
            found = answer["token_scores"][row]
            np.testing.assert_allclose(found[: len(each)], each, atol=1e-4)
            assert not found[len(each) :].any()
    code, message = answers["greedy", "no target"]
    assert code == INVALID_ARGUMENT and "one of target for each row" in message


@pytest.mark.full
def test_a_client_s_own_greedy_search_finds_what_is_served(toys, answers):
    expected = answers["greedy", "default"]
    answer = answers["greedy", "loop"]
    assert texts(answer) == texts(expected)
    np.testing.assert_allclose(answer["score"], expected["score"], atol=1e-4)


@pytest.mark.full
@pytest.mark.parametrize("name", some(["spectra", "transformer"], ALWAYS))
def test_a_client_steps_through_features_and_transformers(name, toys, answers):
    toy = toys[name]
    search = keras_attn.GreedySearch(max_length=toy.search.max_length)
    greedy = keras_attn.Translator(
        toy.models, toy.source_text, toy.target_text, search
    )
    expected = greedy(toy_models.sources(name))
    answer = answers[name, "loop"]
    assert texts(answer) == expected.text
    np.testing.assert_allclose(answer["score"], expected.scores, atol=1e-4)


@pytest.mark.full
def test_features_are_answered_as_the_translator_does(toys, answers):
    expected = toys["spectra"](FRAMES)
    aligned, nbest = answers["spectra", "align"], answers["spectra", "nbest"]
    assert texts(aligned) == expected.text
    for i, row in enumerate(expected):
        n = aligned["source_length"][i]
        assert [x.decode() for x in aligned["source_tokens"][i][:n]] == (
            row.source_tokens
        )
        np.testing.assert_allclose(
            aligned["alignments"][i, : len(row.tokens), :n],
            row.alignment,
            atol=1e-5,
        )
        assert not aligned["alignments"][i, :, n:].any()
        assert [x.decode() for x in nbest["texts"][i]] == [
            x.text for x in (row, *row.alternatives)
        ]
    found = answers["spectra", "ids"]
    np.testing.assert_allclose(found["scores"], nbest["scores"], atol=1e-5)
    short = answers["spectra", "few"]
    assert texts(short)[1:] == expected.text[1:]
    assert all(len(x) == 0 for x in answers["spectra", "no rows"].values())


@pytest.mark.full
def test_features_are_never_cut_and_have_no_unknown_tokens(answers):
    for case in ("align", "options", "score"):
        answer = answers["spectra", case]
        assert answer["truncated"].tolist() == [False] * 4
        assert answer["unknown"].tolist() == [0] * 4


@pytest.mark.full
def test_options_of_features_go_row_by_row(toys, answers):
    answer = answers["spectra", "options"]
    for i, penalty in enumerate([0, 1.5, 0, 0.5]):
        (expected,) = toys["spectra"](
            FRAMES[i : i + 1], options={"length_penalty": penalty}
        )
        assert texts(answer)[i] == expected.text
        assert answer["score"][i] == pytest.approx(expected.score, abs=1e-5)


@pytest.mark.full
@pytest.mark.parametrize("name", some(["ensemble", "transformer"], ALWAYS))
def test_other_models_are_answered_as_by_the_translator(name, toys, answers):
    expected = toys[name](LINES)
    answer = answers[name, "nbest"]
    for i, row in enumerate(expected):
        assert [x.decode() for x in answer["texts"][i]] == [
            x.text for x in (row, *row.alternatives)
        ]
    np.testing.assert_allclose(
        answer["scores"][:, 0], expected.scores, atol=1e-5
    )


@pytest.mark.full
def test_samples_repeat_in_no_request_and_no_process(answers, answers_with_xla):
    drawn = [
        tuple(texts(found["sampling", case]))
        for case in ("default", "default again", "unseeded")
        for found in (answers, answers_with_xla)
    ]
    assert len(set(drawn)) == 6


@pytest.mark.full
def test_samples_with_seeds_repeat_everywhere(answers, answers_with_xla):
    one, other = (x["sampling", "seeds"] for x in (answers, answers_with_xla))
    assert texts(one) == texts(other)
    np.testing.assert_array_equal(one["texts"], other["texts"])


@pytest.mark.full
def test_a_translator_draws_by_seeds_of_rows_as_its_export(toys, answers):
    found = toys["sampling"](LINES, seed=range(ROWS))
    assert texts(answers["sampling", "seeds"]) == found.text


@pytest.mark.full
def test_an_export_for_xla_needs_xla(toys, answers, answers_with_xla):
    for name in ("one", "nbest"):
        code, message = answers["compiled", name]
        assert "XLA compilation disabled" in message
    expected = toys["compiled"](MANY)
    for name, count in (("one", 1), ("nbest", ROWS), ("many", len(MANY))):
        found = [answers_with_xla["compiled", name]]
        if name == "many":
            found.append(answers["compiled", name])
        for answer in found:
            assert len(answer["texts"]) == count
            for texts, row in zip(answer["texts"], expected, strict=False):
                assert [x.decode() for x in texts] == [
                    x.text for x in (row, *row.alternatives)
                ]


@pytest.mark.full
@pytest.mark.parametrize(
    "name", some([x for x in FURTHER if x != "compiled"], ALWAYS)
)
def test_every_warm_up_request_is_answered(name, answers):
    for signature in [*PLAIN, *FURTHER[name]]:
        answer = answers[name, f"warm up {signature}"]
        assert isinstance(answer, dict), answer


@pytest.mark.sample_cases(1)
@pytest.mark.parametrize("name", some(FURTHER, ALWAYS))
def test_an_export_uses_only_operations_that_servers_have(name, exports):
    (meta_graph,) = saved_model(exports[name]).meta_graphs
    called = {x.signature.name for x in meta_graph.graph_def.library.function}
    used = {node.op for node in nodes(exports[name])}
    unknown = used - called - {*CORE_OPERATIONS, *TEXT_OPERATIONS}
    assert not unknown, unknown


@pytest.mark.full
@pytest.mark.parametrize("name", ["greedy", "sampling"])
def test_the_plain_signatures_share_one_search(name, exports):
    (meta_graph,) = saved_model(exports[name]).meta_graphs
    searches = [
        x.signature.name
        for x in meta_graph.graph_def.library.function
        if "_search_" in x.signature.name
    ]
    # And that with options, and with phrases to avoid
    assert len(searches) == 2 + ("terms" in FURTHER[name])


@pytest.mark.parametrize("name", some(["greedy", "ensemble"], ALWAYS))
def test_weights_are_stored_once_also_with_all_signatures(name, toys, exports):
    weights = [w for x in toys[name].models for w in x.weights]
    size = sum(w.numpy().nbytes for w in weights)
    (data,) = (exports[name] / "variables").glob("variables.data-*")
    assert size <= data.stat().st_size < size + 16_000


@pytest.fixture(scope="module")
def clients(exports):
    """Clients of two development servers, with features and with samples."""
    servers = {
        name: Server(exports[name].parent, name, port=0)
        for name in ("spectra", "sampling")
    }
    found = {
        name: Client(server.address, model=name)
        for name, server in servers.items()
    }
    yield found
    for client in found.values():
        client.close()
    for server in servers.values():
        server.stop()


@pytest.mark.full
def test_the_development_server_takes_features(toys, clients):
    client, expected = clients["spectra"], toys["spectra"](FRAMES)
    assert client.predict({"frames": FRAMES})["text"] == expected.text
    found = client.align({"frames": FRAMES})
    assert [x.text for x in found] == expected.text
    for each, row in zip(found, expected, strict=True):
        assert each.source_tokens == row.source_tokens
        np.testing.assert_allclose(each.alignment, row.alignment, atol=1e-5)
    with pytest.raises(ValueError, match="Pass numbers by the name of an inp"):
        client.predict(FRAMES)


@pytest.mark.full
def test_a_client_of_the_development_server_searches_itself(clients, answers):
    client = clients["spectra"]

    def run(signature, inputs):
        return dict(client.predict(inputs, signature))

    found = client_loop.greedy(run, {"frames": FRAMES}, 8)
    assert found["text"] == texts(answers["spectra", "loop"])


@pytest.mark.full
def test_a_client_sends_the_options_that_it_means(toys, clients, answers):
    client, toy = clients["spectra"], toys["spectra"]
    found = client.translate(
        {"frames": FRAMES},
        prefixes=["AA", None, "K", ""],
        options={"length_penalty": [0, 1, 2, 3], "max_length": 5},
    )
    expected = toy(
        FRAMES,
        prefixes=["AA", None, "K", ""],
        options={"length_penalty": [0, 1, 2, 3], "max_length": 5},
    )
    assert found["text"] == expected.text
    np.testing.assert_allclose(found["score"], expected.scores, atol=1e-5)
    assert client.translate({"frames": FRAMES})["text"] == toy(FRAMES).text
    client = clients["sampling"]
    seeded = client.translate(LINES, seed=0)
    assert seeded["text"] == texts(answers["sampling", "seeds"])
    assert client.translate(LINES)["text"] != client.translate(LINES)["text"]


@pytest.mark.full
def test_a_client_is_told_of_options_that_cannot_be(clients):
    client = clients["spectra"]
    with pytest.raises(ValueError, match="'length_penalty'.*'beams'"):
        client.translate({"frames": FRAMES}, options={"beams": 3})
    with pytest.raises(ValueError, match="draws nothing at random"):
        client.translate({"frames": FRAMES}, seed=3)
    with pytest.raises(ValueError, match="one for each of the 4 row"):
        client.translate({"frames": FRAMES}, options={"max_length": [1, 2]})
    with pytest.raises(ValueError, match="`width` is sent as int32"):
        client.translate({"frames": FRAMES}, options={"width": 1.5})
    with pytest.raises(ValueError, match="`seed` must be at least 0"):
        clients["sampling"].translate(LINES, seed=-3)
    with pytest.raises(ValueError, match="`seed` is sent as int32"):
        clients["sampling"].translate(LINES, seed=2**31 - 1)
    with pytest.raises(ServingError, match="`max_length` must be"):
        client.translate({"frames": FRAMES}, options={"max_length": 99})


@pytest.mark.full
def test_a_client_asks_exports_of_before_as_ever(tmp_path):
    stored = pathlib.Path(__file__).parents[1] / "fixtures" / "0.1.1"
    shutil.unpack_archive(stored / "saved_model.zip", tmp_path / "models")
    with Server(tmp_path / "models", "old", port=0) as server:
        with Client(server.address, model="old") as client:
            plain = client.predict(["a", "b"])
            found = client.translate(["a", "b"])
            assert found["text"] == plain["text"]
            assert "error" not in found
            with pytest.raises(ServingError, match="in every row") as caught:
                client.translate(["a"], options={"max_length": 999})
            assert not isinstance(caught.value, RowError)


@pytest.mark.full
def test_a_client_is_told_of_bad_rows_and_has_the_others(toys, clients):
    client = clients["spectra"]
    with pytest.raises(RowError) as caught:
        client.translate(
            {"frames": FRAMES}, options={"max_length": [5, 0, 5, 99]}
        )
    assert list(caught.value.errors) == [1, 3]
    assert "Row 3: `max_length` must be between 1 and 8" in str(caught.value)
    expected = toys["spectra"](FRAMES, options={"max_length": 5}).text
    found = caught.value.result["text"]
    assert found == [expected[0], "", expected[2], ""]


def first_step(path, **given):
    """Returns the answer of the first `step` of the sources given."""
    given = {name: as_bytes(x) for name, x in given.items()}
    (encoded,) = ask([(path, "encode", given, "c")])
    names = "source_tokens", "source_length", "end", "error"
    carried = {k: x for k, x in encoded.items() if k not in names}
    (answer,) = ask([(path, "step", carried, "c")])
    return answer


@pytest.mark.full
@pytest.mark.parametrize("attends, width", [("question", 4), ("hint", 3)])
def test_steps_attend_to_whichever_text_the_model_does(
    attends, width, tmp_path
):
    made = keras_attn.Translator(
        two_texts.made(attends=attends),
        two_texts.TEXTS,
        toy_models.TARGET,
        keras_attn.GreedySearch(max_length=6),
    )
    path = made.export(tmp_path, signatures=["step"])
    answer = first_step(path, question=["abc"], hint=["one two"])
    assert answer["alignments"].shape == (1, 1, width)
    np.testing.assert_allclose(answer["alignments"].sum(), 1, rtol=1e-5)


@pytest.mark.full
def test_steps_of_a_model_without_attention_have_no_alignments(tmp_path):
    source = keras.Input((None,), dtype="int32", name="text")
    target = keras.Input((None,), dtype="int32")
    state = layers.GRU(6)(
        layers.Embedding(toy_models.SOURCE.size, 6, mask_zero=True)(source)
    )
    hidden = layers.GRU(6, return_sequences=True)(
        layers.Embedding(toy_models.TARGET.size, 6)(target), initial_state=state
    )
    model = keras.Model(
        [source, target], layers.Dense(toy_models.TARGET.size)(hidden)
    )
    made = keras_attn.Translator(
        model,
        toy_models.SOURCE,
        toy_models.TARGET,
        keras_attn.GreedySearch(max_length=6),
    )
    path = made.export(tmp_path, signatures=["step"])
    answer = first_step(path, text=["abc", "a"])
    assert answer["alignments"].shape == (2, 1, 0)
