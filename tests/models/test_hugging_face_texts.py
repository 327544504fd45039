"""Files of Hugging Face: searches, languages and tokenizers."""

import json

import numpy as np
import pytest
from support.hugging_face import MODELS
from support.hugging_face import change
from support.hugging_face import copied

import keras_attn
from keras_attn import Translator
from keras_attn.decoding import ForbiddenSequences
from keras_attn.decoding import ForcedToken
from keras_attn.models.hugging_face.generation import Generation
from keras_attn.models.hugging_face.tokenizer.json_file import read_tokenizer


@pytest.fixture
def folder(tmp_path):
    """A copy of a Marian, to change."""
    return copied("marian", tmp_path)


def test_fields_without_counterpart_are_named():
    fields = {"num_beams": 4, "max_length": 20, "guidance_scale": 2.0}
    with pytest.warns(UserWarning, match=r"guidance_scale=2.0. `search=`"):
        search = Generation(fields).search((1,), 2, None)
    assert (search.num_beams, search.max_length) == (4, 19)


@pytest.mark.parametrize(
    "fields, expected",
    [
        ({}, keras_attn.GreedySearch(max_length=60)),
        # greedy, for those who sample only above 0
        ({"temperature": 0}, keras_attn.GreedySearch(max_length=60)),
        ({"max_new_tokens": 20}, keras_attn.GreedySearch(max_length=20)),
        (
            {"max_length": 20, "min_length": 5},
            keras_attn.GreedySearch(max_length=19, min_length=5),
        ),
        (
            {"do_sample": True, "top_k": 5, "temperature": 0.7},
            keras_attn.Sampling(0.7, top_k=5, max_length=60),
        ),
        (
            {"do_sample": True},
            keras_attn.Sampling(top_k=50, max_length=60),
        ),
        (
            {"max_length": 20, "min_length": 9, "min_new_tokens": 2},
            keras_attn.GreedySearch(max_length=19, min_length=3),
        ),
        (
            {"max_length": 5, "min_length": 9, "bad_words_ids": [[2], [7]]},
            keras_attn.GreedySearch(
                max_length=4,
                min_length=4,
                rules=[ForbiddenSequences([[7], [2]], (), (1,))],
            ),
        ),
        (
            {"max_length": 5, "forced_eos_token_id": 7},
            keras_attn.GreedySearch(max_length=4, rules=[ForcedToken(3, 7)]),
        ),
        (
            {"num_beams": 3, "num_return_sequences": 2},
            keras_attn.BeamSearch(
                3,
                num_hypotheses=2,
                length_penalty=1.0,
                penalty="power",
                cut="by_score",
                max_length=60,
            ),
        ),
    ],
)
def test_a_search_is_made_of_the_fields(fields, expected):
    assert Generation(fields).search((1,), 2, 60) == expected


@pytest.mark.parametrize(
    "fields", [{"repetition_penalty": 1.3}, {"no_repeat_ngram_size": 1}]
)
def test_what_counts_start_tokens_there_is_named(fields):
    with pytest.warns(UserWarning, match="counts start tokens too"):
        Generation(fields).search((2,), 2, None)


@pytest.mark.full
def test_tokens_alone_are_forbidden_without_what_is_written(folder):
    # As opus-mt's files: nothing else asks for the tokens so far.
    name = "generation_config.json"
    forbidden = {"bad_words_ids": [[5]], "num_beams": 2, "max_length": 8}
    change(folder, name, ["no_repeat_ngram_size"], **forbidden)
    translator = Translator.from_hugging_face(folder)
    assert ForbiddenSequences([[5]], (), (111,)) in translator.search.rules
    assert not any(x.needs_tokens for x in translator.search.rules)
    assert len(translator(["the cat"]).text) == 1


def test_a_start_token_needs_no_rule():
    fields = {"bad_words_ids": [[1], [1, 5]]}  # as opus-mt's files
    found = Generation(fields).search((1,), 2, None)
    assert found.rules == (ForbiddenSequences([[1, 5]], (), (1,)),)


def test_several_ends_are_refused():
    with pytest.raises(ValueError, match="one id that ends a text"):
        Generation({"eos_token_id": [1, 2]}).end(0)
    assert Generation({"eos_token_id": [1]}).end(0) == 1


def test_a_language_that_has_no_use_is_refused():
    with pytest.raises(ValueError, match="source='en' and a model of marian"):
        Translator.from_hugging_face(MODELS / "marian", source="en")
    with pytest.raises(ValueError, match="must be a language of the model"):
        Translator.from_hugging_face(MODELS / "marian", target="xyz")


@pytest.mark.full
def test_a_language_begins_the_source():
    told = Translator.from_hugging_face(MODELS / "marian", target="fra")
    free = Translator.from_hugging_face(MODELS / "marian")
    ids = told.source_text.source_ids(["the cat"]).numpy()
    written = free.source_text.source_ids([">>fra<< the cat"]).numpy()
    np.testing.assert_array_equal(ids, written)
    assert told(["the cat"]).text == free([">>fra<< the cat"]).text
    # Where the language is told, its code is plain text.
    code = told.source_text.source_ids([">>fra<<"]).numpy()[0, 1:]
    assert ids[0, 0] not in code


@pytest.mark.full
def test_ids_need_no_tokenizer(folder):
    for name in ("source.spm", "target.spm", "vocab.json"):
        (folder / name).unlink()
    translator = Translator.from_hugging_face(folder, ids=True)
    whole = Translator.from_hugging_face(MODELS / "marian")
    ids = whole.source_text.ids(["the cat"], end=False).numpy()[0]
    line = " ".join(map(str, ids))
    np.testing.assert_allclose(
        translator([line])[0].score, whole(["the cat"])[0].score, rtol=1e-5
    )


BART = MODELS / "bart"
TOKENIZERS = {
    "words": ({"model": {"type": "WordPiece"}}, "`model` with 'WordPiece'"),
    "lower case": ({"normalizer": {"type": "Lowercase"}}, "`normalizer`"),
    "digits": ({"pre_tokenizer": {"type": "Digits"}}, "`pre_tokenizer`"),
    "a blank before": (
        {"pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": True}},
        "add_prefix_space=true",
    ),
    "no part": ({"model": {}}, "without the parts"),
    "a gap": (
        {"added_tokens": [{"id": 900, "content": "<a>", "special": True}]},
        "the ids from 0 on",
    ),
    "a word": (
        {"added_tokens": [{"id": 300, "content": "covid", "special": False}]},
        r"Received: \['covid'\], which are not special",
    ),
    "nothing around": ({"post_processor": None}, "`post_processor` with None"),
    "no words": (
        {"pre_tokenizer": {"type": "ByteLevel", "use_regex": False}},
        "use_regex=false",
    ),
}


@pytest.mark.parametrize("name", TOKENIZERS)
def test_tokenizers_without_counterpart_are_refused(name, tmp_path):
    changed, message = TOKENIZERS[name]
    whole = json.loads((BART / "said/tokenizer.json").read_text())
    with pytest.raises(ValueError, match=message):
        read_tokenizer(whole | changed)


def test_bytes_for_strange_characters_are_refused():
    pegasus = MODELS / "pegasus/said/tokenizer.json"
    whole = json.loads(pegasus.read_text())
    whole["model"]["byte_fallback"] = True
    with pytest.raises(ValueError, match="byte_fallback=True"):
        read_tokenizer(whole)


def test_added_tokens_must_have_the_same_ids(tmp_path):
    folder = copied("pegasus", tmp_path)
    (folder / "added_tokens.json").write_text('{"<new>": 7}')
    with pytest.raises(ValueError, match="added to a vocabulary must be those"):
        Translator.from_hugging_face(folder)


@pytest.mark.full
def test_mbart_50_may_be_named_in_the_configuration(tmp_path):
    folder = copied("mbart_50", tmp_path)
    (folder / "tokenizer_config.json").unlink()
    change(folder, tokenizer_class="MBart50Tokenizer")
    languages = {"source": "en_XX", "target": "fr_XX"}
    found = Translator.from_hugging_face(folder, **languages)
    whole = Translator.from_hugging_face(MODELS / "mbart_50", **languages)
    assert found.target_text.special == whole.target_text.special
    ids = found.source_text.source_ids(["The cat"]).numpy()
    np.testing.assert_array_equal(
        ids, whole.source_text.source_ids(["The cat"])
    )


def test_a_blank_before_texts_of_bart_is_refused(tmp_path):
    folder = copied("bart", tmp_path)
    settings = {"add_prefix_space": True}
    path = folder / "tokenizer_config.json"
    path.write_text(json.dumps(settings))
    with pytest.raises(ValueError, match="`add_prefix_space`"):
        Translator.from_hugging_face(folder)
