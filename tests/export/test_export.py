"""Exports, run by TF Serving's own loader.

A process that can import neither Keras nor keras_attn answers all requests;
see `c_loader.py`.
"""

import shutil

import numpy as np
import pytest
import tensorflow as tf
from support import toys as toy_models
from support.c_loader import INVALID_ARGUMENT
from support.exports import CORE_OPERATIONS
from support.exports import TEXT_OPERATIONS
from support.exports import as_bytes
from support.exports import ids_of
from support.exports import nodes
from support.exports import saved_model
from support.exports import warm_ups
from support.lazily import Answers
from support.lazily import Lazily
from support.lazily import some
from tensorflow.core.framework import types_pb2

import keras_attn
from keras_attn.export import export

LINES = toy_models.LINES
# Other models are exported in test_mechanism_exports.py.
NAMES = ["pre", "words", "compiled"]
# TF Serving's loader for all; the lenient one of TensorFlow for some.
LOADERS = {name: ["c"] for name in NAMES} | {"pre": ["c", "python"]}
TEXTS = ["serving_default", "nbest", "align"]
LONG = "é" * 50_000  # 100 kB


# The others are left to `make test-all`.
ALWAYS = ["pre"]


@pytest.fixture(scope="session")
def exports(toys, trained, tmp_path_factory):
    def path(name):
        if name == "trained":
            return trained[0]
        base = tmp_path_factory.mktemp("exports")
        if name != "moved":
            # Without XLA, as the compiled one is asked whether it wants that.
            return toys[name].export(base / name, jit_compile=False)
        shutil.copytree(paths["pre"], base / "elsewhere" / "7")
        return base / "elsewhere" / "7"

    paths = Lazily(path, [*NAMES, "moved", "trained"])
    return paths


@pytest.fixture(scope="session")
def trained(tmp_path_factory):
    """An export after training, and the translator's results then."""
    translator = toy_models.greedy()
    before = translator(LINES)  # traced before the weights change
    old = translator.model.get_weights()
    toy_models.speak_up(translator.model, seed=33)
    path = translator.export(tmp_path_factory.mktemp("model"), version=20261121)
    after = translator(LINES)
    translator.model.set_weights(old)
    assert after.text != before.text
    return path, after


HOSTILE = {
    "no rows": [],
    "one row": ["dead"],
    "three rows": ["dead", "a", "bc"],
    "empty strings": ["", ""],
    "invalid UTF-8": [b"\xff\xfe", b"a\xc3", b"b\xed\xa0\x80c"],
    "NUL": [b"a\0b", b"ab\0", b"\0"],
    "100 kB": ["abc", LONG, "b"],
    "special tokens": ["</s>", "<pad> <s>", "<unk>"],
    "white space": [" ", "\t\n", "\u3000\u00a0", "\u2028"],
    "combining": ["e\u0301", "\u00e9"],
}


@pytest.fixture(scope="session")
def answers(toys, exports):
    """Another process's answers by `(name, signature, case, loader)`."""

    def cases_of(name):
        return {
            key: (key[0], inputs, key[2])
            for key, inputs in _cases_of(name, toys, exports).items()
        }

    return Answers(exports, cases_of)


def _cases_of(name, toys, exports):
    """Returns the inputs of each `(signature, case, loader)` of an export."""
    lines = {"text": as_bytes(LINES)}
    if name in ("moved", "trained"):
        return {("serving_default", "lines", "c"): lines}
    cases = {
        (signature, "lines", loader): lines
        for signature in TEXTS
        for loader in LOADERS[name]
    }
    text = toys[name].source_text
    cases["ids", "lines", "c"] = ids_of(text, LINES)
    cases["ids", "no rows", "c"] = ids_of(text, [])
    cases["align", "no rows", "c"] = {"text": as_bytes([])}
    scalar, square = np.array(b"abc", object), as_bytes(["a"])[None]
    for signature in TEXTS if name in ("pre", "words") else ():
        cases[signature, "scalar", "c"] = {"text": scalar}
        cases[signature, "rank 2", "c"] = {"text": square}
    if name == "words":
        long = as_bytes(["abc", "a " * 50_000])
        for signature in TEXTS:
            cases[signature, "too long", "c"] = {"text": long}
    if name != "pre":
        return cases
    for signature, inputs in warm_ups(exports["pre"]):
        cases[signature, "warm up", "c"] = inputs
    for signature in TEXTS:
        for case, hostile in HOSTILE.items():
            cases[signature, case, "c"] = {"text": as_bytes(hostile)}
    for case, ids, lengths in (
        ("in two rows", [[4, 5, 2, 0], [5, 2, 0, 0]], [3, 2]),
        ("wild padding", [[4, 5, 2, 7], [5, 2, 3, 9]], [3, 2]),
        ("wild lengths", [[4, 5, 2, 0], [5, 2, 0, 0]], [3, -1]),
        ("unknown id", [[4, 99, 2, 0], [5, 2, 0, 0]], [3, 2]),
    ):
        cases["ids", case, "c"] = {
            "ids": np.array(ids, "int32"),
            "lengths": np.array(lengths, "int32"),
        }
    return cases


@pytest.mark.sample_cases(1)
@pytest.mark.parametrize(
    "name, loader",
    [
        pytest.param(
            name, loader, marks=() if name in ALWAYS else pytest.mark.full
        )
        for name in NAMES
        for loader in LOADERS[name]
    ],
)
def test_an_export_answers_as_the_translator_does(name, loader, toys, answers):
    expected = toys[name](LINES)
    plain = answers[name, "serving_default", "lines", loader]
    assert [x.decode() for x in plain["text"]] == expected.text
    np.testing.assert_allclose(plain["score"], expected.scores, atol=1e-5)

    nbest = answers[name, "nbest", "lines", loader]
    aligned = answers[name, "align", "lines", loader]
    for row, best in enumerate(expected):
        hypotheses = [best, *best.alternatives]
        texts = [x.decode() for x in nbest["texts"][row]]
        assert texts[: len(hypotheses)] == [x.text for x in hypotheses]
        np.testing.assert_allclose(
            nbest["scores"][row, : len(hypotheses)],
            [x.score for x in hypotheses],
            atol=1e-5,
        )
        finished = nbest["finished"][row].tolist()
        assert finished[: len(hypotheses)] == [x.finished for x in hypotheses]
        assert aligned["finished"][row] == best.finished
        length, source_length = (
            aligned[key][row] for key in ("length", "source_length")
        )
        tokens = aligned["tokens"][row]
        assert [x.decode() for x in tokens[:length]] == best.tokens
        assert not any(tokens[length:])
        source_tokens = aligned["source_tokens"][row]
        assert [
            x.decode() for x in source_tokens[:source_length]
        ] == best.source_tokens
        assert not any(source_tokens[source_length:])
        alignments = aligned["alignments"][row]
        np.testing.assert_allclose(
            alignments[:length, :source_length], best.alignment, atol=1e-5
        )
        assert not alignments[length:].any()
        assert not alignments[:, source_length:].any()
    assert [x.decode() for x in aligned["text"]] == expected.text
    np.testing.assert_allclose(aligned["score"], expected.scores, atol=1e-5)


@pytest.mark.sample_cases(1)
@pytest.mark.parametrize("name", some(NAMES, ALWAYS))
def test_ids_are_decoded_as_their_texts_are(name, toys, answers):
    found = answers[name, "ids", "lines", "c"]
    nbest = answers[name, "nbest", "lines", "c"]
    np.testing.assert_allclose(found["scores"], nbest["scores"], atol=1e-5)
    texts = toys[name].target_text.strings(found["ids"]).numpy()
    np.testing.assert_array_equal(texts, nbest["texts"])
    past = np.arange(found["ids"].shape[2]) >= found["lengths"][..., None]
    assert not found["ids"][past].any()


def test_ids_past_their_length_are_padding_whatever_they_are(answers):
    expected = answers["pre", "ids", "in two rows", "c"]
    found = answers["pre", "ids", "wild padding", "c"]
    for name in expected:
        np.testing.assert_array_equal(found[name], expected[name])


def test_lengths_that_cannot_be_harm_no_other_row(answers):
    expected = answers["pre", "ids", "in two rows", "c"]
    found = answers["pre", "ids", "wild lengths", "c"]
    for name in expected:
        np.testing.assert_array_equal(found[name][0], expected[name][0])
    assert b"Received: lengths=-1." in found["error"][1]
    assert not found["lengths"][1].any()


def test_an_id_that_no_vocabulary_has_harms_no_other_row(answers):
    expected = answers["pre", "ids", "in two rows", "c"]
    found = answers["pre", "ids", "unknown id", "c"]
    for name in expected:
        np.testing.assert_array_equal(found[name][1], expected[name][1])
    assert b"between 0 and 9. Received: 99." in found["error"][0]
    assert np.all(found["scores"][0] == float("-inf"))


@pytest.mark.full
@pytest.mark.parametrize("signature", TEXTS)
def test_a_text_too_long_has_no_answer_where_that_was_asked_for(
    signature, toys, answers
):
    answer = answers["words", signature, "too long", "c"]
    assert isinstance(answer, dict), answer
    (expected,) = toys["words"](["abc"])
    score = answer["scores" if signature == "nbest" else "score"]
    assert np.ravel(score[0])[0] == pytest.approx(expected.score, abs=1e-5)
    assert np.all(score[1] == float("-inf"))
    text = answer["texts" if signature == "nbest" else "text"]
    assert not np.any(text[1])


@pytest.mark.sample_cases(3)
@pytest.mark.parametrize("signature", TEXTS)
@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_texts_get_the_translator_s_answer(
    signature, case, toys, answers
):
    answer = answers["pre", signature, case, "c"]
    assert isinstance(answer, dict), answer
    expected = toys["pre"](HOSTILE[case])
    assert all(len(x) == len(expected) for x in answer.values())
    if signature != "nbest":
        assert [x.decode() for x in answer["text"]] == expected.text
        np.testing.assert_allclose(answer["score"], expected.scores, atol=1e-5)


@pytest.mark.full
@pytest.mark.parametrize("signature", TEXTS)
@pytest.mark.parametrize("case", ["scalar", "rank 2"])
@pytest.mark.parametrize("name", ["pre", "words"])
def test_a_text_of_another_rank_is_refused_and_crashes_nothing(
    name, signature, case, answers
):
    # A scalar that reaches the tokenizer of words ends the whole process.
    code, message = answers[name, signature, case, "c"]
    assert code == INVALID_ARGUMENT
    assert "is not compatible with expected shape [?]" in message


@pytest.mark.parametrize("name", some(NAMES, ALWAYS))
@pytest.mark.parametrize("signature", ["align", "ids"])
def test_a_batch_without_rows_is_answered_by_none(name, signature, answers):
    answer = answers[name, signature, "no rows", "c"]
    assert isinstance(answer, dict), answer
    assert all(len(x) == 0 for x in answer.values())


# The table of the module's docstring; N hypotheses, T tokens at most.
SIGNATURES = {
    "serving_default": (
        {"text": ("string", "B")},
        {
            "text": ("string", "B"),
            "score": ("float32", "B"),
            "empty": ("bool", "B"),
        },
    ),
    "nbest": (
        {"text": ("string", "B")},
        {
            "texts": ("string", "BN"),
            "scores": ("float32", "BN"),
            "finished": ("bool", "BN"),
            "empty": ("bool", "B"),
        },
    ),
    "align": (
        {"text": ("string", "B")},
        {
            "text": ("string", "B"),
            "score": ("float32", "B"),
            "source_tokens": ("string", "BS"),
            "source_length": ("int32", "B"),
            "tokens": ("string", "BT"),
            "length": ("int32", "B"),
            "alignments": ("float32", "BTS"),
            "finished": ("bool", "B"),
            "truncated": ("bool", "B"),
            "unknown": ("int32", "B"),
            "empty": ("bool", "B"),
        },
    ),
    "ids": (
        {"ids": ("int32", "BS"), "lengths": ("int32", "B")},
        {
            "ids": ("int32", "BNT"),
            "lengths": ("int32", "BN"),
            "scores": ("float32", "BN"),
            "empty": ("bool", "B"),
            "error": ("string", "B"),
        },
    ),
}


@pytest.mark.parametrize("name", some(NAMES, ALWAYS))
def test_the_four_signatures_are_as_documented(name, toys, exports):
    (meta_graph,) = saved_model(exports[name]).meta_graphs
    signatures = dict(meta_graph.signature_def)
    signatures.pop("__saved_model_init_op")
    assert set(signatures) == set(SIGNATURES)
    for key, (inputs, outputs) in SIGNATURES.items():
        assert signatures[key].method_name == "tensorflow/serving/predict"
        assert set(signatures[key].inputs) == set(inputs)
        assert set(signatures[key].outputs) == set(outputs)
        for name, (dtype, shape) in [*inputs.items()]:
            info = signatures[key].inputs[name]
            assert tf.as_dtype(info.dtype).name == dtype
            assert [x.size for x in info.tensor_shape.dim] == [-1] * len(shape)
        for name, (dtype, shape) in [*outputs.items()]:
            info = signatures[key].outputs[name]
            assert tf.as_dtype(info.dtype).name == dtype
            assert not info.tensor_shape.unknown_rank
            assert len(info.tensor_shape.dim) == len(shape)


@pytest.mark.parametrize("name", some(NAMES, ALWAYS))
def test_all_outputs_are_batch_first(name, toys, answers):
    search = toys[name].search
    sizes = {
        "B": len(LINES),
        "N": search.num_hypotheses,
        "T": search.max_length,
    }
    source_tokens = [x.source_tokens for x in toys[name](LINES)]
    sizes["S"] = max(map(len, source_tokens))
    for key, (_, outputs) in SIGNATURES.items():
        answer = answers[name, key, "lines", "c"]
        for output, (dtype, shape) in outputs.items():
            assert answer[output].shape == tuple(sizes[x] for x in shape)
            if dtype != "string":
                assert answer[output].dtype == dtype


@pytest.mark.full
def test_versions_count_up_and_are_never_written_over(
    toys, tmp_path, monkeypatch
):
    def write(translator, directory, *options):
        (directory / "saved_model.pb").write_bytes(b"complete")

    monkeypatch.setattr(keras_attn.export.exporting, "_write", write)
    translator = toys["greedy"]
    base = tmp_path / "models" / "toy"
    assert export(translator, base) == base / "1"
    before = (base / "1" / "saved_model.pb").read_bytes()
    with pytest.raises(FileExistsError, match="There is a version 1 in .*toy"):
        translator.export(base, version=1)
    assert (base / "1" / "saved_model.pb").read_bytes() == before
    for other in ("9", ".11-unfinished", "notes"):
        (base / other).mkdir()
    assert translator.export(str(base)) == base / "10"


@pytest.mark.sample_cases(1)
@pytest.mark.parametrize("version", [-1, 1.0, "2", True])
def test_a_version_that_servers_would_overlook_is_refused(
    version, toys, tmp_path
):
    with pytest.raises(ValueError, match="`version` must be an integer"):
        toys["greedy"].export(tmp_path, version=version)
    assert not list(tmp_path.iterdir())


@pytest.mark.full
def test_an_export_that_fails_leaves_nothing_behind(
    toys, tmp_path, monkeypatch
):
    names = []

    def full_disk(directory, *others, **options):
        assert (directory / "saved_model.pb").exists()
        names.extend(x.name for x in tmp_path.iterdir())
        raise OSError("No space left on device")

    monkeypatch.setattr(keras_attn.export.exporting, "write_warm_up", full_disk)
    with pytest.raises(OSError, match="No space left"):
        toys["greedy"].export(tmp_path)
    assert not list(tmp_path.iterdir())
    # An unfinished version has a name that no server takes for a version.
    (unfinished,) = names
    assert not unfinished.isdecimal()


def test_the_directory_can_be_read_by_the_server_s_user(exports):
    assert exports["pre"].stat().st_mode & 0o555 == 0o555


@pytest.mark.parametrize("name", some(NAMES, ALWAYS))
def test_weights_are_stored_once(name, toys, exports):
    weights = toys[name].model.weights
    size = sum(x.numpy().nbytes for x in weights)
    (data,) = (exports[name] / "variables").glob("variables.data-*")
    # The file also holds a small record of the objects' structure.
    assert size <= data.stat().st_size < size + 8_000
    handles = [
        node.attr["shared_name"].s
        for node in nodes(exports[name])
        if node.op == "VarHandleOp"
        and node.attr["dtype"].type != types_pb2.DT_STRING  # a path of assets
    ]
    assert len(handles) == len(set(handles)) == len(weights)


@pytest.mark.parametrize("name", some(NAMES, ALWAYS))
def test_nothing_asks_for_xla_even_from_a_compiled_translator(name, exports):
    (meta_graph,) = saved_model(exports[name]).meta_graphs
    functions = meta_graph.graph_def.library.function
    things = [*nodes(exports[name]), *functions]
    for thing in things:
        for attribute in ("_XlaMustCompile", "jit_compile", "must_compile"):
            assert not thing.attr[attribute].b


@pytest.mark.parametrize("name", some(NAMES, ALWAYS))
def test_an_export_uses_only_operations_that_servers_have(name, exports):
    used = {node.op for node in nodes(exports[name])}
    assert not [op for op in used if "cudnn" in op.lower()]
    (meta_graph,) = saved_model(exports[name]).meta_graphs
    called = {x.signature.name for x in meta_graph.graph_def.library.function}
    unknown = used - called - {*CORE_OPERATIONS, *TEXT_OPERATIONS}
    assert not unknown, (
        f"This export newly uses {sorted(unknown)}. TF Serving must link them "
        "or it cannot load the model. If they are TensorFlow's own and old "
        "enough for the oldest server supported, or tensorflow-text's as of "
        "2.20, add them to the lists in this file."
    )


@pytest.mark.parametrize("signature", TEXTS)
def test_a_text_meets_nothing_before_its_shape_is_checked(signature, exports):
    (meta_graph,) = saved_model(exports["pre"]).meta_graphs
    functions = {
        x.signature.name: x for x in meta_graph.graph_def.library.function
    }
    (name,) = [
        x for x in functions if x.startswith(f"__inference_{signature}_")
    ]
    function = functions[name]
    (argument, *_) = function.signature.input_arg
    users = {
        node.op for node in function.node_def if argument.name in node.input
    }
    assert users == {"EnsureShape"}


def test_vocabularies_are_assets_and_nothing_points_elsewhere(toys, exports):
    assets = exports["pre"] / "assets"
    for name, text in (
        ("source", toy_models.SOURCE),
        ("target", toy_models.TARGET),
    ):
        lines = (assets / f"{name}.txt").read_text("utf-8").splitlines()
        assert [x.split("\t")[0] for x in lines] == text.tokens
    (meta_graph,) = saved_model(exports["pre"]).meta_graphs
    files = {x.filename for x in meta_graph.asset_file_def}
    assert files == {"source.txt", "target.txt"}


def test_an_export_answers_where_it_was_moved_to(answers):
    expected = answers["pre", "serving_default", "lines", "c"]
    found = answers["moved", "serving_default", "lines", "c"]
    np.testing.assert_array_equal(found["text"], expected["text"])


def test_every_warm_up_request_is_answered(answers):
    for signature in SIGNATURES:
        answer = answers["pre", signature, "warm up", "c"]
        assert isinstance(answer, dict), answer


@pytest.mark.full
def test_cudnn_is_off_while_tracing_and_on_again(toys, tmp_path, monkeypatch):
    translator = toys["greedy"]
    cells = [
        x for x in translator.model._flatten_layers() if hasattr(x, "use_cudnn")
    ]
    seen = []

    def trace(graph, inputs, request, compiled):
        seen.extend(x.use_cudnn for x in cells)
        raise InterruptedError

    monkeypatch.setattr(type(translator.pipeline), "decode_inputs", trace)
    with pytest.raises(InterruptedError):
        translator.export(tmp_path)
    assert cells and seen == [False] * len(cells)
    assert [x.use_cudnn for x in cells] == ["auto"] * len(cells)


def test_a_trained_translator_exports_what_it_has_learnt(trained, answers):
    path, expected = trained
    assert path.name == "20261121"
    answer = answers["trained", "serving_default", "lines", "c"]
    assert [x.decode() for x in answer["text"]] == expected.text
    np.testing.assert_allclose(answer["score"], expected.scores, atol=1e-5)


def test_the_signature_ids_wants_one_length_for_each_row(toys):
    from keras_attn.export.tf_saved_model.signatures import Signatures

    ids = Signatures(toys["pre"].pipeline).function("ids")
    ids = tf.function(ids, autograph=False)
    with pytest.raises(
        tf.errors.InvalidArgumentError, match="needs one of len"
    ):
        ids(tf.constant([[4, 2], [5, 2]]), tf.constant([2]))
    nothing = ids(tf.zeros([2, 0], tf.int32), tf.constant([0, 0]))
    assert nothing["ids"].shape[0] == 2
