"""Exports that XLA compiles for a few sizes, in TensorFlow Serving's loader."""

import collections

import numpy as np
import pytest
from support import toys as toy_models
from support.compilations import CountingLoader
from support.exports import as_bytes
from support.exports import option_inputs
from support.exports import warm_ups

import keras_attn
from keras_attn import XLASizes

SIZES = XLASizes(rows=(1, 3), source=(4, 9))
LINES = toy_models.LINES
TOO_MANY = 5  # rows, for any size


@pytest.fixture(scope="module")
def loader(tmp_path_factory):
    made = CountingLoader(tmp_path_factory.mktemp("log") / "log.txt")
    yield made
    made.close()


@pytest.fixture(scope="module")
def warmed(toys, loader, tmp_path_factory):
    """An export after its warm-up, and the names of what was compiled."""
    path = toys["greedy"].export(
        tmp_path_factory.mktemp("export"), jit_compile=SIZES, signatures="all"
    )
    requests = list(warm_ups(path))
    answers, compiled = loader.ask(path, requests)
    for (signature, _), answer in zip(requests, answers, strict=True):
        assert isinstance(answer, dict), (signature, answer)
    return path, compiled


@pytest.mark.full
def test_the_warm_up_compiles_each_size_once(warmed):
    _, compiled = warmed
    counted = collections.Counter(compiled)  # one search, for all signatures
    assert [*counted.values()] == [len(list(SIZES))]


def options(toy, rows, **given):
    inputs = {
        name: np.full(rows, -1, dtype.as_numpy_dtype)
        for name, dtype in option_inputs(toy.search).items()
    }
    return inputs | {"prefix": as_bytes([""] * rows)} | given


def requests(toy):
    """Requests of many sizes to every signature."""
    for count in (0, 1, 2, 3, TOO_MANY, len(LINES)):
        lines = LINES[:count]
        text = {"text": as_bytes(lines)}
        for name in ("serving_default", "nbest", "align", "encode"):
            yield lines, (name, text)
        longest = np.arange(count, dtype="int32") % 5 + 2
        prefix = as_bytes((["AA", ""] * count)[:count])
        asked = options(toy, count, prefix=prefix, max_length=longest)
        yield lines, ("options", text | asked)
        targets = {"target": as_bytes(["AA B"] * count)}
        yield lines, ("score", text | targets)
        ids = toy.source_text.source_ids(as_bytes(lines)).numpy()
        lengths = (ids != 0).sum(1).astype("int32")
        yield lines, ("ids", {"ids": ids, "lengths": lengths})


@pytest.mark.full
def test_no_request_compiles_and_all_are_answered_as_without_xla(
    toys, loader, warmed, tmp_path
):
    path, _ = warmed
    plain = toys["greedy"].export(tmp_path, signatures="all")
    asked = [x for _, x in requests(toys["greedy"])]
    found, compiled = loader.ask(path, asked)
    assert compiled == []
    expected, _ = loader.ask(plain, asked)
    for request, one, other in zip(asked, found, expected, strict=True):
        assert isinstance(one, dict), (request, one)
        assert set(one) == set(other)
        for name in one:
            if one[name].dtype.kind == "f":
                np.testing.assert_allclose(one[name], other[name], atol=1e-4)
            else:
                np.testing.assert_array_equal(one[name], other[name])


@pytest.mark.full
@pytest.mark.parametrize("exact", [False, True])
@pytest.mark.parametrize("lengths", [False, True])
def test_features_have_sizes_too(lengths, exact, toys, loader, tmp_path):
    frames = toy_models.sources("spectra")
    paths = [
        toys["spectra"].export(
            tmp_path / str(x), jit_compile=x, lengths=lengths
        )
        for x in (False, XLASizes(2, (3, 7), exact))
    ]
    asked = []
    for rows, size in ((1, 1), (2, 3), (2, 7), (4, 7)):
        inputs = {"frames": frames[:rows, :size]}
        if lengths:
            inputs["lengths"] = np.full(rows, size - 1, "int32")
        asked.append(("nbest", inputs))
    _, compiled = loader.ask(paths[1], list(warm_ups(paths[1])))
    assert len(compiled) == 2
    found, compiled = loader.ask(paths[1], asked)
    assert compiled == []
    expected, _ = loader.ask(paths[0], asked)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_array_equal(one["texts"], other["texts"])
        np.testing.assert_allclose(one["scores"], other["scores"], atol=1e-4)


@pytest.mark.full
@pytest.mark.parametrize("name", ["sampling", "ensemble", "words"])
def test_other_searches_compile_in_their_warm_up_alone(
    name, toys, loader, tmp_path
):
    path = toys[name].export(tmp_path, jit_compile=XLASizes(2, 12))
    _, compiled = loader.ask(path, list(warm_ups(path)))
    assert len(compiled) == 1
    asked = [
        ("serving_default", {"text": as_bytes(LINES[i : i + 2])})
        for i in range(len(LINES) - 1)
        if name != "words" or all(len(x) for x in LINES[i : i + 2])
    ]
    found, compiled = loader.ask(path, asked)
    assert compiled == []
    assert all(isinstance(x, dict) for x in found)


@pytest.mark.full
def test_a_translator_s_own_sizes_are_those_of_true(toys, tmp_path):
    toy = toys["greedy"]
    made = keras_attn.Translator(
        toy.model,
        toy.source_text,
        toy.target_text,
        toy.search,
        jit_compile=XLASizes(2, 5),
    )
    path = made.export(tmp_path, jit_compile=True)
    inputs = [x for name, x in warm_ups(path) if name == "ids"]
    assert [x["ids"].shape for x in inputs] == [(2, 2), (2, 5)]
