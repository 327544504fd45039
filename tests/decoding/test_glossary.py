"""`Glossary`: terms by words of the source."""

import pickle
import re

import numpy as np
import pytest
import tensorflow as tf
from keras_attn_serving import Client
from keras_attn_serving.server import Server
from support.comparisons import assert_same
from support.exports import as_bytes
from support.lazily import ask
from support.toys import LINES
from support.toys import SOURCE
from support.toys import TARGET

import keras_attn
from keras_attn import BeamSearch
from keras_attn import Glossary

ENTRIES = {
    "motherboard": "carte mère",
    "board": "planche",
    "New York": "New York",
    "New York City": "la ville de New York",
    "c++": "C++",
    "日本": "Japon",
    "日本語": "japonais",
    "état-major": "general staff",
}


def terms(glossary, *sources):
    found = glossary.terms_of(list(sources)).to_list()
    return [[x.decode() for x in row] for row in found]


@pytest.mark.parametrize(
    "source, expected",
    [
        ("a motherboard.", ["carte mère"]),
        ("motherboards", []),
        ("(board),board", ["planche"]),
        ("New\u00a0York", ["New York"]),
        ("New\u3000\u202fYork", ["New York"]),
        ("mother\u00adboard\ufeff", ["carte mère"]),
        ("board-room", ["planche"]),
        ("New York City", ["la ville de New York"]),
        ("New  York\tCity", ["la ville de New York"]),
        ("in New York, City", ["New York"]),
        ("New York New York City", ["New York", "la ville de New York"]),
        ("he writes c++!", ["C++"]),
        ("c+ +", ["C++"]),
        ("私は日本語を話す", ["japonais"]),
        ("日本の", ["Japon"]),
        ("Motherboard", []),
        ("e\u0301tat-major", ["general staff"]),
        ("", []),
        ("   ", []),
        ("\x00", []),
    ],
)
def test_whole_words_and_the_longest_are_found(source, expected):
    assert terms(Glossary(ENTRIES), source) == [expected]
    in_graph = tf.function(
        Glossary(ENTRIES).terms_of,
        input_signature=[tf.TensorSpec([None], tf.string)],
    )
    (row,) = in_graph(tf.constant([source])).to_list()
    assert [x.decode() for x in row] == expected
    beside = terms(Glossary(ENTRIES), "board board", source, "x" * 50)
    assert beside[1] == expected


def test_case_is_ignored_on_request():
    glossary = Glossary({"Été": "summer", "IT": "it"}, ignore_case=True)
    assert terms(glossary, "ÉTÉ été It") == [["summer", "it"]]
    assert repr(glossary).endswith("ignore_case=True)")


def test_random_words_as_by_a_plain_loop():
    random = np.random.default_rng(7)
    phrases = {
        " ".join(random.choice([*"abcd"], random.integers(1, 4)))
        for _ in range(25)
    }
    glossary = Glossary({x: f"<{x}>" for x in phrases})
    lines = [
        " ".join(random.choice([*"abcde"], random.integers(0, 30)))
        for _ in range(60)
    ]
    for line, found in zip(lines, terms(glossary, *lines), strict=True):
        words, expected, i = line.split(), [], 0
        while i < len(words):
            fits = [
                n
                for n in (3, 2, 1)
                if " ".join(words[i : i + n]) in phrases and i + n <= len(words)
            ]
            if fits:
                expected.append(f"<{' '.join(words[i : i + fits[0]])}>")
            i += fits[0] if fits else 1
        assert found == [*dict.fromkeys(expected)]


@pytest.mark.parametrize(
    "entries, message",
    [
        ({}, "dictionary"),
        ([("a", "b")], "dictionary"),
        ({"a": ""}, "not empty"),
        ({" ": "b"}, "not empty"),
        ({"a": 3}, "not empty"),
        ({"a": "b\nc"}, "line break"),
        ({"a": "b\ud800"}, "whole characters"),
        ({"a " * 51: "b"}, "1 to 50 words"),
        ({"a  b": "b", "a b": "c"}, "must differ"),
        ({"é": "b", "e\u0301": "c"}, "must differ"),
    ],
)
def test_bad_entries_are_refused(entries, message):
    with pytest.raises(ValueError, match=message):
        Glossary(entries)


def test_a_glossary_can_be_pickled_and_is_shown_short():
    glossary = Glossary(ENTRIES)
    assert glossary.table is glossary.table
    again = pickle.loads(pickle.dumps(glossary))
    assert again == glossary and terms(again, "board") == [["planche"]]
    assert repr(again).endswith("'New York': 'New York', ... 5 more})")


@pytest.fixture(scope="module")
def translator(toys):
    glossary = Glossary({"bad": "ñ ñ", "bad cab": "K B", "dead": "D EH"})
    toy = toys["pre"]
    return keras_attn.Translator(
        toy.model,
        SOURCE,
        TARGET,
        BeamSearch(4, 2, max_length=9),
        glossary=glossary,
    )


@pytest.mark.full
def test_terms_follow_from_sources(translator, toys):
    found = translator([*LINES, "bad"])
    plain = keras_attn.Translator(
        translator.model, SOURCE, TARGET, translator.search
    )
    given = [["D EH"] if x == "dead" else [] for x in LINES]
    given[LINES.index("bad cab")] = ["K B"]
    for row, other in zip(
        found, plain([*LINES, "bad"], terms=[*given, ["ñ ñ"]]), strict=True
    ):
        assert_same(row, other)
    both = translator(["bad"], terms=[["AA"]])
    assert re.search("ñ ñ", both.text[0]) and "AA" in both.text[0]
    assert not both[0].missing


@pytest.mark.full
def test_saved_exported_and_served(translator, tmp_path):
    expected = translator(LINES)
    translator.save(tmp_path / "saved")
    again = keras_attn.Translator.load(tmp_path / "saved")
    assert again.glossary == translator.glossary
    assert again(LINES).text == expected.text
    path = str(translator.export(tmp_path / "toy", signatures=["terms"]))
    lines = {"text": as_bytes(LINES)}
    ids = SOURCE.source_ids(LINES).numpy()
    lengths = (ids != 0).sum(axis=1).astype("int32")
    default, align, by_ids = ask(
        [
            (path, "serving_default", lines, "c"),
            (path, "align", lines, "c"),
            (path, "ids", {"ids": ids, "lengths": lengths}, "c"),
        ]
    )
    for answer in (default, align):
        assert [x.decode() for x in answer["text"]] == expected.text
        assert {*answer["missing"].tolist()} == {b""}
    texts = [x.decode() for x in TARGET.strings(by_ids["ids"][:, 0]).numpy()]
    known = [i for i, x in enumerate(LINES) if not {*x} & {*"? "}]
    assert [texts[i] for i in known] == [expected.text[i] for i in known]
    with (
        Server(tmp_path / "toy", "toy", port=0) as server,
        Client(server.address, model="toy") as client,
    ):
        found = client.translate(["bad"], terms=[["AA"]])
        assert "ñ ñ" in found["text"][0] and "AA" in found["text"][0]


@pytest.mark.full
def test_what_cannot_use_a_glossary_refuses_it(translator, tmp_path):
    glossary = translator.glossary

    def make(search=None, **options):
        search = search or BeamSearch(2, max_length=6)
        return keras_attn.Translator(
            translator.model,
            SOURCE,
            TARGET,
            search,
            **{"glossary": glossary} | options,
        )

    with pytest.raises(ValueError, match="BeamSearch"):
        make(keras_attn.GreedySearch(6))
    with pytest.raises(ValueError, match="without XLA"):
        make(jit_compile=True)
    with pytest.raises(ValueError, match="target text knows"):
        make(glossary=Glossary({"a": "zz"}))
    with pytest.raises(ValueError, match="must be a `Glossary`"):
        make(glossary={"a": "AA"})
    for options in (
        {"signatures": ["step"]},
        {"jit_compile": True},
        {"format": "onnx"},
    ):
        with pytest.raises(ValueError, match="glossary"):
            translator.export(tmp_path, **options)
