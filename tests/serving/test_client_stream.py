"""A client streams what an export finds greedily, and its examples run.

The server has a real export.
"""

import asyncio
import inspect
import re
import textwrap

import keras
import keras_attn_serving
import numpy as np
import pytest
from keras_attn_serving import AsyncClient
from keras_attn_serving import Client
from keras_attn_serving import RestClient
from keras_attn_serving import Result
from keras_attn_serving import RowError
from keras_attn_serving.client import greedy
from keras_attn_serving.command import cli
from keras_attn_serving.server import Rest
from keras_attn_serving.server import Server
from keras_attn_serving.wire.results import Signature
from keras_attn_serving.wire.transport import run_now
from support import toys as toy_models
from support import whispers
from support.sounds import sounds

import keras_attn

LINES = toy_models.LINES


@pytest.fixture(scope="module")
def served(toys, tmp_path_factory):
    """Servers with the signatures that are needed, by the toy's name."""
    folder = tmp_path_factory.mktemp("exports")
    servers = {}

    def serve(name):
        if name not in servers:
            if name == "whisper":
                whispers.read("english").export(
                    folder / name, signatures=["words"], lengths=True
                )
            else:
                toys[name].export(
                    folder / name,
                    signatures=["options", "step"],
                    lengths=False if name == "spectra" else None,
                )
            servers[name] = Server(folder / name, name, port=0, rest=Rest())
        return servers[name]

    yield serve
    for server in servers.values():
        server.stop()


def streamed(client, source, **options):
    tokens = list(client.stream(source, **options))
    return "".join(x.text for x in tokens), tokens


@pytest.mark.full
def test_a_stream_is_the_exports_own_greedy_result(toys, served):
    toy = toys["greedy"]
    with Client(served("greedy").address, "greedy") as client:
        expected = client.align(LINES)
        ids = client.predict(lines_as_ids(toy), "ids")
        for row, line in enumerate(LINES):
            text, tokens = streamed(client, line)
            assert text == expected[row].text
            length = ids["lengths"][row, 0]
            found = [x.id for x in tokens]
            assert found == ids["ids"][row, 0, :length].tolist()
            assert sum(x.log_probability for x in tokens) == pytest.approx(
                expected[row].score, abs=1e-4
            )
            np.testing.assert_allclose(
                np.stack([x.alignment for x in tokens]),
                expected[row].alignment,
                atol=1e-5,
            )
    assert {x.text for x in expected} != {""}


def lines_as_ids(toy):
    rows = [toy.source_text.ids([line]).numpy()[0] for line in LINES]
    ids = np.zeros((len(rows), max(map(len, rows))), "int32")
    for row, found in zip(ids, rows, strict=True):
        row[: len(found)] = found
    return {"ids": ids, "lengths": np.array([len(x) for x in rows], "int32")}


@pytest.mark.full
def test_features_stream_by_name(toys, served):
    toy, frames = toys["spectra"], toy_models.sources("spectra")
    search = keras_attn.GreedySearch(max_length=toy.search.max_length)
    expected = keras_attn.Translator(
        toy.models, toy.source_text, toy.target_text, search
    )(frames)
    with Client(served("spectra").address, "spectra") as client:
        for row, text in enumerate(expected.text):
            one = {"frames": frames[row : row + 1]}
            assert streamed(client, one)[0] == text


@pytest.mark.full
def test_an_async_client_streams_the_same(served):
    async def stream():
        async with AsyncClient(served("greedy").address, "greedy") as client:
            return [token.text async for token in client.stream("abc")]

    with Client(served("greedy").address, "greedy") as client:
        tokens = [x.text for x in client.stream("abc")]
    assert asyncio.run(stream()) == tokens


@pytest.mark.full
def test_a_stream_by_rest_is_the_same(served):
    server = served("greedy")
    with (
        Client(server.address, "greedy") as by_grpc,
        RestClient(server.rest_address, "greedy") as by_rest,
    ):
        for found, expected in zip(
            by_rest.stream("dead"), by_grpc.stream("dead"), strict=True
        ):
            np.testing.assert_array_equal(found.alignment, expected.alignment)
            assert found._replace(alignment=0) == expected._replace(alignment=0)


@pytest.mark.full
@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
def test_a_model_of_half_precision_streams_by_both_protocols(policy, tmp_path):
    before = keras.config.dtype_policy()
    keras.config.set_dtype_policy(policy)
    try:
        toy = toy_models.greedy()
        toy.export(tmp_path / "half", signatures=["step"])
    finally:
        keras.config.set_dtype_policy(before)
    with (
        Server(tmp_path / "half", "half", port=0, rest=Rest()) as server,
        Client(server.address, "half") as by_grpc,
        RestClient(server.rest_address, "half") as by_rest,
    ):
        for line in "abc", "dead":
            (expected,) = by_grpc.predict([line])["text"]
            assert streamed(by_grpc, line)[0] == expected
            assert streamed(by_rest, line)[0] == expected


@pytest.mark.full
def test_a_stream_ends_where_it_is_told(served):
    with Client(served("greedy").address, "greedy") as client:
        _, tokens = streamed(client, "edcbaabcde")
        assert len(tokens) > 2
        assert len(streamed(client, "edcbaabcde", max_length=2)[1]) == 2
        stream = client.stream("edcbaabcde")
        assert next(stream) is not None
        stream.close()


def test_a_stream_without_its_signatures_names_them(client):
    with pytest.raises(ValueError, match=r'signatures=\["step"\]') as caught:
        next(client.stream("cat"))
    assert "'serving_default'" in str(caught.value)


@pytest.mark.parametrize("text", [["a", "b"], {"text": []}, 3])
def test_a_stream_takes_one_text(client, text):
    with pytest.raises(ValueError, match="takes one text|list of texts"):
        next(client.stream(text))


class Steps:
    """Answers as an export would that writes the given ids.

    Args:
        ids: What its steps write.
        texts: The text of each number of ids.
        errors: Of each `step`.
        said: What `encode` returns besides, such as the end token.
    """

    def __init__(self, ids, texts, errors=(), **said):
        self.ids, self.texts, self.errors = iter(ids), texts, list(errors)
        self.said = {"tokens": np.ones((1, 1)), "source_length": [2], **said}

    async def __call__(self, inputs, signature):
        if signature == "encode":
            return Result(self.said)
        if signature == "strings":
            return Result({"text": [self.texts[inputs["lengths"][0]]]})
        scores = np.full((1, 1, 9), -np.inf)
        scores[0, 0, next(self.ids)] = -0.5
        error = self.errors.pop(0) if self.errors else ""
        return Result(
            {
                "log_probabilities": scores,
                "alignments": np.ones((1, 1, 5)),
                "error": [[error]],
            }
        )

    def stream(self, max_length=None):
        async def stream():
            signatures = {"step": Signature({"tokens": None}, {})}
            found = greedy.stream(self, signatures, {}, max_length)
            return [token async for token in found]

        return run_now(stream())


def test_a_character_in_several_tokens_comes_with_its_last():
    tokens = Steps([5, 6, 2], ["", "a\ufffd", "aé", "aé"]).stream()
    assert [x.text for x in tokens] == ["a", "é", ""]
    assert [x.id for x in tokens] == [5, 6, 2]
    assert tokens[0].log_probability == -0.5
    assert tokens[0].alignment.shape == (2,)  # without padding
    # One that stays incomplete comes at the end.
    tokens = Steps([5, 6], ["", "a\ufffd", "a\ufffd"]).stream(max_length=2)
    assert [x.text for x in tokens] == ["a", "\ufffd"]


def test_a_stream_ends_at_the_end_token_that_the_export_names():
    texts = ["", "a", "ab", "ab"]
    tokens = Steps([2, 5, 0], texts, end=np.array([0], "int32")).stream()
    assert [x.id for x in tokens] == [2, 5, 0]
    assert "".join(x.text for x in tokens) == "ab"
    # An older export names none; its clients take 2.
    assert [x.id for x in Steps([5, 0, 2], texts).stream()] == [5, 0, 2]


def test_a_token_that_changes_the_text_before_it_is_refused():
    with pytest.raises(ValueError, match="'ab'.*changed to 'cd'"):
        Steps([5, 6], ["", "ab", "cd"]).stream()


def test_a_step_that_cannot_be_answered_ends_the_stream():
    with pytest.raises(RowError, match="Row 0: out of range"):
        Steps([5, 6], ["", "a", "b"], ["", "out of range"]).stream()


@pytest.mark.full
def test_long_calls_are_split_to_the_servers_limit_and_joined(served):
    many = [LINES[n % len(LINES)] for n in range(300)]
    with (
        Client(served("greedy").address, "greedy") as client,
        Client(served("greedy").address, "greedy", max_rows=90) as small,
    ):
        few = client.align(LINES)
        for found in (client.align(many), small.align(many)):
            assert len(found) == 300
            for row, each in enumerate(found):
                expected = few[row % len(LINES)]
                assert each.text == expected.text
                assert each.tokens == expected.tokens
                assert each.source_tokens == expected.source_tokens
                np.testing.assert_allclose(
                    each.alignment, expected.alignment, atol=1e-5
                )


@pytest.mark.full
def test_the_command_prints_a_stream(served, capsys):
    server = served("greedy")
    flags = ["query", "--stream", "--address", server.address]
    assert cli.main([*flags, "--model", "greedy", "abc", "dead"]) == 0
    with Client(server.address, "greedy") as client:
        expected = client.predict(["abc", "dead"])["text"]
    assert capsys.readouterr().out.splitlines() == expected


@pytest.mark.full
@pytest.mark.filterwarnings("ignore:The signature `step` leaves")
def test_the_command_streams_what_follows_an_empty_or_refused_line(
    served, capsys
):
    server = served("words")  # takes 12 words, and no longer text
    flags = ["query", "--stream", "--address", server.address]
    lines = ["abc", " ", "bad " * 40, "cab"]
    assert cli.main([*flags, "--model", "words", *lines]) == cli.REFUSED
    with Client(server.address, "words") as client:
        first, last = (streamed(client, x)[0] for x in ("abc", "cab"))
    out, err = capsys.readouterr()
    assert out == f"{first}\n\n\n{last}\n"
    assert err.startswith("error: line 3: ") and err.count("\n") == 1


def examples():
    """Returns the Python blocks in the docstrings of the clients."""
    found = {}
    for kind in (Client, RestClient, AsyncClient):
        for name, thing in inspect.getmembers(kind):
            if not name.startswith("_") and inspect.isfunction(thing):
                blocks = blocks_of(thing)
                assert len(blocks) == 1, f"{kind.__name__}.{name}"
                found[f"{kind.__name__}.{name}"] = blocks[0]
        found[kind.__name__] = blocks_of(kind)[0]
    return found


def blocks_of(thing):
    doc = inspect.getdoc(thing)
    found = re.findall(r"```python\n(.*?)```", doc, re.DOTALL)
    return [textwrap.dedent(x) for x in found]


EXAMPLES = examples()


@pytest.mark.full
@pytest.mark.parametrize("name", EXAMPLES)
def test_the_examples_in_docstrings_run(name, served, capsys):
    model = "whisper" if name.endswith(".words") else "greedy"
    address = served(model).address
    by_rest = f"http://{served(model).rest_address}"
    code = EXAMPLES[name].replace('"pronounce"', repr(model))
    code = code.replace('"localhost:8500"', repr(address))
    code = code.replace('"http://localhost:8501"', repr(by_rest))
    sound = sounds()[0]
    names = {"asyncio": asyncio, "sound": sound, **vars(keras_attn_serving)}
    if name.startswith("Async"):
        code = (
            "async def main():\n"
            f"    client = AsyncClient({address!r}, {model!r})\n"
            f"{textwrap.indent(code, '    ')}\n"
            "    await client.close()\n"
            "asyncio.run(main())"
        )
        exec(code, names)
        return
    kind = RestClient if name.startswith("Rest") else Client
    with kind(by_rest if kind is RestClient else address, model) as client:
        exec(code, names | {"client": client})
