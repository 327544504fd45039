"""Phrases that no output has: `Without`, and `avoid` of a request."""

import pickle

import numpy as np
import pytest
from support.comparisons import assert_same
from support.comparisons import assert_streams
from support.stochastic_beams import StochasticBeamSearch
from support.toys import LINES
from support.toys import TARGET

import keras_attn
from keras_attn import BeamSearch
from keras_attn import GreedySearch
from keras_attn import Sampling
from keras_attn import Without

PHRASES = ["B", "AA AA", "D D D"]
SEARCHES = {
    "greedy": GreedySearch(max_length=9),
    "beam": BeamSearch(4, 4, max_length=9),
    "groups": BeamSearch(4, 3, max_length=9, groups=2, diversity=0.5),
    "draws": Sampling(max_length=9, num_hypotheses=3),
    "stochastic": StochasticBeamSearch(3, max_length=9),
}


def has(text, phrase):
    return f" {phrase} " in f" {text} "


def translator(toys, search, **options):
    made = toys["pre"]
    return keras_attn.Translator(
        made.model, made.source_text, TARGET, search, **options
    )


def with_rules(search, *rules):
    config = search.get_config() | {"rules": list(rules)}
    return type(search)(**config)


@pytest.mark.sample_cases(1)
@pytest.mark.parametrize("name", SEARCHES)
def test_no_output_has_the_phrases_of_the_rule_or_of_its_request(toys, name):
    search = SEARCHES[name]
    drawn = {"seed": 5} if search.draws else {}
    fixed = translator(toys, with_rules(search, Without(PHRASES)))(
        LINES, **drawn
    )
    made = translator(toys, search)
    plain = made(LINES, **drawn)
    assert any(has(x, y) for x in plain.text for y in PHRASES)
    found = made(LINES, **drawn, avoid=[PHRASES] * len(LINES))
    for row, other in zip(found, fixed, strict=True):
        assert_same(row, other)
        for each in (row, *row.alternatives):
            assert not any(has(each.text, x) for x in PHRASES), each
    beside = [None] * len(LINES)
    beside[1] = PHRASES
    mixed = made(LINES, **drawn, avoid=beside)
    for i, row in enumerate(mixed):
        assert_same(row, found[i] if i == 1 else plain[i])


@pytest.mark.full
def test_the_best_output_without_a_phrase_is_found(toys):
    made = translator(toys, BeamSearch(200, max_length=4))
    plain = made(LINES[:3])
    for line, best in zip(LINES[:3], plain, strict=True):
        avoided = best.text.split()[0] if best.text else "K"
        (found,) = made([line], avoid=[[avoided]])
        others = [best, *best.alternatives]
        assert not has(found.text, avoided)
        wide = translator(toys, BeamSearch(200, 200, max_length=4))
        others = [wide([line])[0], *wide([line])[0].alternatives]
        allowed = [x for x in others if x.finished and not has(x.text, avoided)]
        assert found.text == allowed[0].text
        np.testing.assert_allclose(found.score, allowed[0].score, atol=1e-4)


@pytest.mark.full
def test_streams_shortlists_and_saved_searches(toys, tmp_path):
    search = GreedySearch(max_length=9, rules=[Without(PHRASES)])
    made = translator(toys, search)
    for line, whole in zip(LINES[2:4], made(LINES[2:4]), strict=True):
        assert_streams(made.stream(line), whole)
    plain = translator(toys, GreedySearch(max_length=9))
    (whole,) = plain(["dead"], avoid=[PHRASES])
    assert_streams(plain.stream("dead", avoid=PHRASES), whole)
    short = keras_attn.Shortlist.from_tokens(
        made.source_text, TARGET, {x: ["AA", "B", "K"] for x in "abcde"}
    )
    listed = translator(toys, GreedySearch(max_length=9), shortlist=short)
    for row in listed(LINES, avoid=[[*PHRASES, "ñ ñ"]] * len(LINES)):
        assert not any(has(row.text, x) for x in PHRASES)
    made.save(tmp_path)
    again = keras_attn.Translator.load(tmp_path)
    assert again.search == made.search
    assert again(LINES).text == made(LINES).text
    assert pickle.loads(pickle.dumps(made.search)) == made.search


@pytest.mark.full
def test_an_onnx_model_keeps_to_the_rule(toys, tmp_path):
    runtime = pytest.importorskip("onnxruntime")
    search = BeamSearch(4, 2, max_length=9, rules=[Without(PHRASES)])
    made = translator(toys, search)
    path = made.export(tmp_path, format="onnx")
    (file,) = path.glob("*.onnx")
    ids = made.source_text.source_ids(LINES).numpy()
    lengths = (ids != 0).sum(axis=1).astype("int32")
    session = runtime.InferenceSession(str(file))
    found, *_ = session.run(["target_ids"], {"ids": ids, "lengths": lengths})
    texts = [x.decode() for x in TARGET.strings(found[:, 0]).numpy()]
    assert texts == made(LINES).text


@pytest.mark.parametrize(
    "phrases", ["hot dog", [], [""], [" "], [3], None, [["a"]]]
)
def test_what_is_no_list_of_phrases_is_refused(phrases):
    with pytest.raises(ValueError, match="list of strings"):
        Without(phrases)


@pytest.mark.full
def test_unknown_phrases_are_refused(toys):
    with pytest.raises(ValueError, match="target text knows"):
        translator(toys, GreedySearch(5, rules=[Without(["B zz"])]))
    made = translator(toys, GreedySearch(5))
    with pytest.raises(ValueError, match="target text knows"):
        made(["abc"], avoid=[["zz"]])
    with pytest.raises(ValueError, match="200 phrases"):
        made(["abc"], avoid=[[f"B {'K ' * i}" for i in range(201)]])
    assert made(["abc"], avoid=[["B " * 50]]).text == made(["abc"]).text
    with pytest.raises(ValueError, match="needs the tokens of a text"):
        Without(["B"]).start(1, 1)
