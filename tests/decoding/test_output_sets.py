"""`Among` and `Matches`: outputs of a set, at every door."""

import copy
import dataclasses
import itertools
import pathlib
import pickle
import re

import keras
import numpy as np
import pytest
import tensorflow as tf
from support.comparisons import assert_same
from support.comparisons import assert_streams
from support.exports import own_options
from support.lazily import ask
from support.stochastic_beams import StochasticBeamSearch
from support.toys import LINES

import keras_attn
from keras_attn import Among
from keras_attn import BeamSearch
from keras_attn import GreedySearch
from keras_attn import Matches
from keras_attn import Sampling
from keras_attn.decoding import Written
from keras_attn.decoding.output_sets.among import trie
from keras_attn.decoding.output_sets.automaton import Automaton
from keras_attn.text.byte_pair import BYTES

TEXTS = ["AA B", "AA", "K D K", "EH AA B", "ñ", "B B B B", "D EH"]
PATTERN = r"(AA|K)( (B|EH)){1,2}( ñ)?"
SEARCHES = {
    "greedy": GreedySearch,
    "beam": lambda **options: BeamSearch(4, 4, **options),
    "groups": lambda **options: BeamSearch(
        4, 3, groups=2, diversity=0.5, **options
    ),
    "draws": lambda **options: Sampling(num_hypotheses=3, **options),
    "stochastic": lambda **options: StochasticBeamSearch(3, **options),
}
RULES = {"among": Among(TEXTS), "matches": Matches(PATTERN)}


def is_allowed(rule, text):
    if isinstance(rule, Among):
        return text in rule.texts
    return re.fullmatch(rule.pattern, text) is not None


def translator(toys, search, **options):
    made = toys["pre"]
    return keras_attn.Translator(
        made.model, made.source_text, made.target_text, search, **options
    )


def texts_of(found):
    every = ([x, *x.alternatives] for x in found)
    return [y.text for y in itertools.chain(*every) if y.finished]


@pytest.mark.full
@pytest.mark.sample_cases(1)
@pytest.mark.parametrize("name", SEARCHES)
@pytest.mark.parametrize("kind", RULES)
def test_every_output_is_in_the_set(toys, name, kind):
    rule = RULES[kind]
    made = translator(toys, SEARCHES[name](max_length=8, rules=[rule]))
    drawn = {"seed": 3} if made.search.draws else {}
    found = texts_of(made(LINES, **drawn))
    assert len(found) >= len(LINES)
    assert all(is_allowed(rule, x) for x in found), found


@pytest.mark.full
@pytest.mark.parametrize("kind", RULES)
def test_a_wide_beam_finds_the_best_of_the_set(toys, kind):
    rule = RULES[kind]
    search = BeamSearch(40, max_length=8, early_stopping="never", rules=[rule])
    made = translator(toys, search)
    if kind == "among":
        every = TEXTS
    else:
        tails = [
            "".join(x)
            for n in (1, 2)
            for x in itertools.product((" B", " EH"), repeat=n)
        ]
        every = [
            f"{x}{y}{z}" for x in ("AA", "K") for y in tails for z in ("", " ñ")
        ]
    assert all(is_allowed(rule, x) for x in every)
    for line, found in zip(LINES, made(LINES), strict=True):
        scores = made.score([line] * len(every), every).scores
        best = int(np.argmax(scores))
        assert found.text == every[best]
        np.testing.assert_allclose(found.score, scores[best], atol=1e-4)


@pytest.mark.full
def test_scores_are_the_model_s(toys):
    search = BeamSearch(3, max_length=8, rules=[RULES["among"]])
    made = translator(toys, search)
    found = made(LINES)
    again = made.score(LINES, found.text)
    np.testing.assert_allclose(found.scores, again.scores, atol=1e-4)


@pytest.mark.full
@pytest.mark.parametrize("kind", RULES)
def test_saved_streamed_exported_and_compiled(toys, tmp_path, kind):
    rule = RULES[kind]
    made = translator(toys, BeamSearch(4, 2, max_length=8, rules=[rule]))
    expected = made(LINES)
    made.save(tmp_path / "saved")
    again = keras_attn.Translator.load(tmp_path / "saved")
    assert again.search == made.search
    for one, other in zip(again(LINES), expected, strict=True):
        assert_same(one, other)
    folder = str(made.export(tmp_path / "export", signatures=["options"]))
    lines = np.array([x.encode() for x in LINES], object)
    asked = own_options(made, LINES)
    asked["prefix"][:], asked["max_length"][:] = b"", 8
    default, options = ask(
        [
            (folder, "serving_default", {"text": lines}, "c"),
            (folder, "options", asked, "c"),
        ]
    )
    for answer in default, options:
        assert [x.decode() for x in answer["text"]] == expected.text
    compiled = translator(toys, made.search, jit_compile=True)
    assert compiled(LINES).text == expected.text
    greedy = translator(toys, GreedySearch(max_length=8, rules=[rule]))
    for line, whole in zip(LINES[2:4], greedy(LINES[2:4]), strict=True):
        assert_streams(greedy.stream(line), whole)
    with pytest.raises(ValueError, match=type(rule).__name__):
        made.export(tmp_path / "steps", signatures=["step"])


@pytest.mark.full
@pytest.mark.parametrize("kind", RULES)
def test_an_onnx_model_refuses_the_rule_by_name(toys, tmp_path, kind):
    made = translator(toys, GreedySearch(max_length=8, rules=[RULES[kind]]))
    with pytest.raises(ValueError, match=f"ONNX.*{type(RULES[kind]).__name__}"):
        made.export(tmp_path, format="onnx")


@pytest.mark.full
def test_an_ensemble_keeps_to_the_set(toys):
    made = keras_attn.Translator(
        [toys["pre"].model, toys["feeding"].model],
        toys["pre"].source_text,
        toys["pre"].target_text,
        BeamSearch(3, max_length=8, rules=[RULES["among"]]),
    )
    assert {*made(LINES).text} <= {*TEXTS}


@pytest.mark.full
def test_a_prefix_of_a_request_begins_one_of_the_texts(toys):
    made = translator(toys, BeamSearch(3, max_length=8, rules=[Among(TEXTS)]))
    found = made(LINES[:3], prefixes=["AA", "EH", "D D"])
    assert found[0].text in ("AA B", "AA")
    assert found[1].text == "EH AA B"
    assert not found[2].finished and found[2].text == "D D"


@pytest.mark.sample_cases(1)
@pytest.mark.parametrize("size", [1, 30, 3_000])
def test_a_trie_allows_what_its_texts_allow(size):
    random = np.random.default_rng(size)
    end, vocabulary = 1, 12
    rows = {
        (*random.integers(2, vocabulary, random.integers(1, 7)), end)
        for _ in range(size)
    }
    rows = sorted(rows)
    random.shuffle(rows)
    ids = np.concatenate([np.array(x) for x in rows])
    made = trie(ids, np.array([len(x) for x in rows]), end)
    chosen = rows[:20] + [(*random.integers(2, 12, 3), end) for _ in range(20)]
    for row in chosen:
        state = made.start(1, 1)
        for time, token in enumerate(row):
            logits = made.allowed(tf.zeros([1, 1, vocabulary]), state)
            allowed = {*np.flatnonzero(logits[0, 0] > -1).tolist()}
            begun = [x for x in rows if x[:time] == row[:time]]
            assert allowed == {x[time] for x in begun if len(x) > time}
            compiled = made.allowed(
                tf.zeros([1, 1, vocabulary]), state, fixed_shapes=True
            )
            np.testing.assert_array_equal(logits, compiled)
            state = made.after(tf.constant([[token]], tf.int32), state)


def test_edges_come_in_any_order():
    made = Automaton(
        np.array([1, 0, 0]), np.array([4, 9, 2]), np.array([2, 1, 1]), 2
    )
    tokens = tf.constant([[2, 9, 4, 5]], tf.int32)
    found = made.after(tokens, tf.constant([[0, 0, 1, 1]]))
    assert found.numpy().tolist() == [[1, 1, 2, 2]]


REFUSED = {
    "no texts": (lambda: Among([]), "a list of strings"),
    "one string": (lambda: Among("abc"), "a list of strings"),
    "no strings": (lambda: Among([3]), "a list of strings"),
    "lists": (lambda: Among([["AA"]]), "a list of strings"),
    "no pattern": (lambda: Matches(3), "must be a string"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_refused_arguments(case):
    make, message = REFUSED[case]
    with pytest.raises(ValueError, match=message):
        make()


WITH_A_TEXT = {
    "unknown": (Among(["AA", "ZZ", "Q"]), "'ZZ', which has unknown tokens; so"),
    "long": (Among(["AA", " ".join(["B"] * 9)]), "more tokens than max_length"),
    "another space": (Among(["AA  B"]), "writes 'AA B'"),
    "no expression": (Matches("(AA"), "must be a regular expression"),
    "anchors": (Matches("^AA$"), "so leave out"),
    "nothing matches": (Matches("[0-9]+"), "no tokens of the target text"),
    "no tokens spell it": (Matches("AAB"), "no tokens of the target text"),
    "unknown tokens": (Matches("<unk>"), "no tokens of the target text"),
    "a long pattern": (Matches("B( B){20}"), "shortest output has 22 tokens"),
}


@pytest.mark.parametrize("case", WITH_A_TEXT)
def test_refused_with_a_text(toys, case):
    rule, message = WITH_A_TEXT[case]
    with pytest.raises(ValueError, match=message):
        translator(toys, GreedySearch(max_length=8, rules=[rule]))


def test_a_search_alone_does_not_know_the_tokens():
    rule = Among(["AA"])
    with pytest.raises(ValueError, match="a search alone"):
        rule.start(1, 1)
    assert repr(Among(["a", "b", "c", "d", "e"])) == (
        "Among(['a', 'b', 'c', ... 2 more])"
    )
    assert rule == Among(["AA", "AA"]) != Among(["AB"])


@pytest.mark.full
@pytest.mark.parametrize("split", ["characters", "subwords"])
def test_any_way_to_split_matches(split):
    lines = ["2024-01-05", "on 3 May", "yes, no", "aé 7"] * 5
    if split == "subwords":
        merges = ["Ġ M", "2 0", "20 2", "ĠM a", "o n"]
        pieces = [*BYTES, *(x.replace(" ", "") for x in merges)]
        ids = {x: i for i, x in enumerate(pieces)}
        target = keras_attn.Text(split=keras_attn.BytePair(ids, merges))
    else:
        target = keras_attn.Text.from_lines(lines, split="characters")
    source = keras_attn.Text.from_lines(lines, split="characters")
    keras.utils.set_random_seed(3)
    given = keras.Input((None,), dtype="int32")
    before = keras.Input((None,), dtype="int32")
    memory = keras.layers.Embedding(source.size, 8, mask_zero=True)(given)
    hidden = keras.layers.GRU(8, return_sequences=True)(
        keras.layers.Embedding(target.size, 8, mask_zero=True)(before)
    )
    hidden = keras.layers.Attention()([hidden, memory])
    model = keras.Model(
        [given, before], keras.layers.Dense(target.size)(hidden)
    )
    pattern = r"\d{4}-\d\d-\d\d|on \d May|é+a"
    made = keras_attn.Translator(
        model,
        source,
        target,
        Sampling(max_length=16, num_hypotheses=8, rules=[Matches(pattern)]),
    )
    found = texts_of(made(lines[:4], seed=1))
    assert len(found) > 20
    assert all(re.fullmatch(pattern, x) for x in found), found


def accepts(rule, text, line, length=30):
    """Whether a rule takes the ids that a text is split into."""
    made = rule.bound(text, length)
    state = made.start(1, 1)
    ids = text.ids([line]).numpy()[0]
    for token in ids[ids != text.special.pad]:
        logits = made.apply(
            tf.zeros([1, 1, text.size]), Written(tf.constant(0), None), state
        )
        if logits[0, 0, token] < -1:
            return False
        state = made.update(tf.constant([[token]], tf.int32), state)
    return True


@pytest.mark.sample_cases(1)
@pytest.mark.parametrize("kind", ["bytes", "pairs"])
def test_characters_of_several_bytes(kind):
    if kind == "bytes":
        text = keras_attn.Text(split=keras_attn.Bytes())
    else:
        ids = {x: i for i, x in enumerate(BYTES)}
        text = keras_attn.Text(split=keras_attn.BytePair(ids, []))
    assert accepts(Matches("é+a?"), text, "éa")
    assert accepts(Matches("(é|a)b?|7"), text, "éb")
    assert accepts(Matches(".*"), text, "漢字")
    assert accepts(Matches(".{1,2}"), text, "é漢")
    assert not accepts(Matches("."), text, "é漢")
    assert not accepts(Matches("[^é]+"), text, "aé")


PATTERNS = [
    *("a(bc)?", "(a|ab)(c|bcd)?", "a*b?", "(ab|a)*", "[^b]*", ".{1,2}c"),
    *("é(a|é)?", "(a?b?){2}", "|a", "a+|b+c", "(?i)AB", "a|ab|abc"),
]


@pytest.mark.full
@pytest.mark.sample_cases(4)
@pytest.mark.parametrize("split", ["characters", "bytes"])
@pytest.mark.parametrize("pattern", PATTERNS)
def test_the_texts_that_python_matches(pattern, split):
    if split == "characters":
        text = keras_attn.Text("abcé", split="characters")
    else:
        text = keras_attn.Text(split=keras_attn.Bytes())
    rule = Matches(pattern).bound(text, 30)
    for length in range(4):
        for letters in itertools.product("abcé", repeat=length):
            line = "".join(letters)
            expected = re.fullmatch(pattern, line) is not None
            assert accepts(rule, text, line) == expected, line


@pytest.mark.parametrize("name", ["t5", "pegasus"])
def test_a_lone_space_of_sentence_piece_may_begin(name):
    folder = pathlib.Path(__file__).parents[1] / "fixtures/hugging_face" / name
    file = next(folder.glob("*.model"))
    splitter = keras_attn.SentencePiece(
        file.read_bytes(), special=keras_attn.SpecialTokens(0, (0,), 1, 2)
    )
    text = keras_attn.Text(split=splitter, normalization=None)
    for line in ("h", "a b", "the"):
        if text.strings(text.ids([line])).numpy()[0].decode() == line:
            assert accepts(Matches("[a-z]+( [a-z]+)?"), text, line)
            assert not accepts(Matches("[0-9]*"), text, line)


@pytest.mark.full
def test_a_branch_that_tokens_cannot_spell_is_left_out(toys):
    rule = Matches("AA7|AAB|K")
    made = translator(toys, GreedySearch(max_length=8, rules=[rule]))
    assert {*made(LINES).text} == {"K"}


@pytest.mark.full
def test_unknown_tokens_are_never_written(toys):
    search = GreedySearch(max_length=8, rules=[Matches(r".*")])
    made = translator(toys, search)
    assert not any("<unk>" in x.tokens for x in made(LINES))


@pytest.mark.full
def test_a_shorter_search_is_refused_too(toys):
    made = translator(toys, GreedySearch(max_length=8, rules=[Among(TEXTS)]))
    shorter = dataclasses.replace(made.search, max_length=2)
    with pytest.raises(ValueError, match="max_length=2"):
        translator(toys, shorter)


@pytest.mark.full
def test_rules_are_copied_and_pickled_without_their_tables(toys):
    texts = ["AA", "K"]
    rule = Among(texts)
    texts.append("B")
    made = translator(toys, GreedySearch(max_length=8, rules=[rule]))
    for copied in (
        pickle.loads(pickle.dumps(made.search)),
        copy.deepcopy(made.search),
    ):
        assert copied == made.search
        assert translator(toys, copied)(LINES).text == made(LINES).text


@pytest.mark.full
def test_pieces_of_a_pretrained_vocabulary_match():
    folder = pathlib.Path(__file__).parents[1] / "fixtures/hugging_face/marian"
    made = keras_attn.Translator.from_hugging_face(folder)
    pattern = r"([A-Z][a-z]+|le|la)( [a-z]+)*\.?"
    search = Sampling(max_length=12, num_hypotheses=8, rules=[Matches(pattern)])
    made = keras_attn.Translator(
        made.model, made.source_text, made.target_text, search
    )
    found = texts_of(made(["How are you?", "The cat."], seed=1))
    assert found and all(re.fullmatch(pattern, x) for x in found), found
