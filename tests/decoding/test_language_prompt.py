"""A `LanguagePrompt` on a small model of text."""

import numpy as np
import pytest
from support import toys as toy_models
from support.exports import as_bytes
from support.lazily import ask
from support.toys import LINES
from support.toys import SOURCE
from support.toys import TARGET

import keras_attn
from keras_attn.text.special_tokens import END

# The ids of "AA", "B" and "K".
PROMPT = keras_attn.LanguagePrompt([4, 5], after=[6])


@pytest.fixture(scope="module")
def model():
    decoder = keras_attn.AttentionDecoder(
        keras_attn.GRUCell(8), keras_attn.BahdanauAttention(8)
    )
    return toy_models.model(decoder, seed=9)


@pytest.fixture(scope="module")
def prompted(model):
    search = keras_attn.GreedySearch(max_length=3)
    return keras_attn.Translator(
        model, SOURCE, TARGET, search, language_prompt=PROMPT
    )


def test_a_prompt_in_a_prefix_takes_no_room_of_the_output(prompted):
    plain = prompted(LINES, prefixes=["AA K"] * len(LINES))
    assert max(len(x.tokens) for x in plain) == 3
    (one,) = prompted(["abc"], prefixes=["AA K"], options={"max_length": 2})
    assert len(one.tokens) <= 2
    (begun,) = prompted(["abc"], prefixes=["AA K D"])
    assert begun.tokens[0] == "D" and not begun.truncated
    with pytest.raises(ValueError, match="A prefix must leave room"):
        prompted(["abc"], prefixes=["AA K D D D"])


@pytest.mark.full
def test_an_export_counts_a_prefix_after_its_prompt(prompted, tmp_path):
    path = prompted.export(tmp_path, signatures=["options"])
    prefixes = ["AA K", "AA K D", "AA K D D D", ""]
    given = {
        "text": as_bytes(["abc"] * 4),
        "prefix": as_bytes(prefixes),
        "max_length": np.full(4, -1, "int32"),
        "min_length": np.full(4, -1, "int32"),
    }
    (answer,) = ask([(path, "options", given, "c")])
    errors = [x.decode() for x in answer["error"]]
    assert [bool(x) for x in errors] == [False, False, True, False]
    assert "leave room" in errors[2]
    expected = prompted(["abc"] * 2, prefixes=prefixes[:2]).text
    assert [x.decode() for x in answer["text"][:2]] == expected


def test_alignments_are_those_after_the_prompt(model, prompted):
    # Decoding the same target as a prefix, with room for its end.
    source = "abc"
    longer = keras_attn.Translator(
        model,
        SOURCE,
        TARGET,
        keras_attn.GreedySearch(max_length=4),
        language_prompt=PROMPT,
    )
    for target in "D EH", "AA K D EH":
        (expected,) = longer([source], prefixes=[target])
        ((_, ids, weights),) = prompted.alignments_of([source], [target])
        assert ids.tolist() == [*TARGET.token_ids(["D", "EH"]).numpy(), END]
        np.testing.assert_allclose(
            weights[:2], expected.alignment[:2], atol=1e-6
        )


def test_a_shortlist_and_a_prompt_are_refused_together(model):
    shortlist = keras_attn.Shortlist.from_tokens(
        SOURCE, TARGET, {"a": ["AA"], "b": ["B"]}
    )
    with pytest.raises(ValueError, match="cannot be used together"):
        keras_attn.Translator(
            model,
            SOURCE,
            TARGET,
            keras_attn.GreedySearch(max_length=3),
            language_prompt=PROMPT,
            shortlist=shortlist,
        )
