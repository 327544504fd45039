"""Terms that outputs must have, at every door."""

import itertools

import numpy as np
import pytest
import tensorflow as tf
from keras_attn_serving import Client
from keras_attn_serving import RestClient
from keras_attn_serving import RowError
from keras_attn_serving.server import Rest
from keras_attn_serving.server import Server
from support.comparisons import assert_same
from support.exports import as_bytes
from support.exports import own_options
from support.lazily import ask
from support.own_rules import AtLeast
from support.toys import LINES
from support.toys import TARGET

import keras_attn
from keras_attn import BeamSearch
from keras_attn import GreedySearch
from keras_attn import Sampling

TERMS = [["B K"], [], ["D", "EH AA"], ["ñ"], None, ["K K"], ["B"], ["AA B"]]
WORDS = [x for x in TARGET.tokens if not x.startswith("<") and x != "</s>"]


@pytest.fixture(scope="module")
def translator(toys):
    """Returns translators of toy models, each made once."""
    made: dict = {}

    def get(search, name="pre", **options):
        key = str((search, name, options))
        if key not in made:
            toy = toys[name]
            made[key] = keras_attn.Translator(
                toy.model, toy.source_text, toy.target_text, search, **options
            )
        return made[key]

    return get


def has(text, phrase):
    return f" {phrase} " in f" {text} "


def every_text(most):
    """Returns all texts of at most so many tokens."""
    return [
        " ".join(x)
        for n in range(most + 1)
        for x in itertools.product(WORDS, repeat=n)
    ]


@pytest.mark.sample_cases(1)
@pytest.mark.parametrize(
    "search",
    [
        BeamSearch(1, max_length=12),
        BeamSearch(4, 4, max_length=12, length_penalty=0.6),
        BeamSearch(5, 3, max_length=12, early_stopping="never"),
        BeamSearch(5, 3, max_length=12, early_stopping=True, cut="by_score"),
        BeamSearch(4, 3, max_length=12, groups=2, diversity=0.5),
        BeamSearch(3, max_length=12, no_repeat_ngram=2),
        BeamSearch(3, max_length=12, coverage_penalty=0.3, min_length=4),
    ],
    ids=str,
)
@pytest.mark.parametrize("name", ["pre", "feeding"])
def test_outputs_have_their_terms_or_say_what_is_missing(
    translator, name, search
):
    made = translator(search, name)
    terms = TERMS
    if search.no_repeat_ngram:  # "AA B" and "EH AA" do not repeat a pair
        terms = [x if x != ["K K"] else ["K D"] for x in terms]
    found = made(LINES, terms=terms)
    for row, wanted in zip(found, terms, strict=True):
        for each in (row, *row.alternatives):
            missing = [x for x in wanted or [] if not has(each.text, x)]
            assert each.missing == missing
            assert not (each.finished and missing)
        assert not row.missing


@pytest.mark.full
@pytest.mark.parametrize("terms", [["B"], ["K D"], ["AA", "B B"], ["D ñ D"]])
def test_a_wide_beam_finds_the_best_output_that_has_the_terms(
    translator, terms
):
    search = BeamSearch(300, max_length=5, early_stopping="never")
    made = translator(search)
    every = [x for x in every_text(4) if all(has(x, y) for y in terms)]
    for line in LINES[:4]:
        (found,) = made([line], terms=[terms])
        scores = made.score([line] * len(every), every).scores
        best = int(np.argmax(scores))
        assert found.text == every[best]
        np.testing.assert_allclose(found.score, scores[best], atol=1e-4)


@pytest.mark.full
@pytest.mark.sample_cases(1)
@pytest.mark.parametrize("cut", ["last", "by_score"])
def test_rows_beside_rows_with_terms_are_as_alone(translator, cut):
    search = BeamSearch(4, 4, max_length=12, length_penalty=0.6, cut=cut)
    made = translator(search)
    plain = made(LINES)
    beside = made(LINES, terms=TERMS)
    for line, wanted, without, found in zip(
        LINES, TERMS, plain, beside, strict=True
    ):
        if wanted:
            (without,) = made([line], terms=[wanted])
        assert_same(found, without)


@pytest.mark.full
def test_rows_with_fewer_beams_are_those_of_a_smaller_search(translator):
    made = translator(BeamSearch(6, 2, max_length=12))
    counts = [2, 4, 4, 2, 6, 2, 4, 4]
    found = made(LINES, terms=TERMS, options={"num_beams": counts})
    for line, wanted, count, row in zip(
        LINES, TERMS, counts, found, strict=True
    ):
        alone = translator(BeamSearch(count, 2, max_length=12))
        assert_same(row, alone([line], terms=[wanted])[0])


@pytest.mark.full
@pytest.mark.sample_cases(1)
@pytest.mark.parametrize(
    "terms",
    [
        ["B K", "K D"],  # overlap
        ["B", "A B", "AA B K"],
        ["K", "K K", "K K K"],  # one within another
        ["AA B", "AA B"],
        ["B B K", "B K"],  # after B B, a B is no step back
        ["AA"] * 50,
    ],
)
def test_terms_may_overlap_and_contain_each_other(translator, terms):
    terms = [x for x in terms if x != "A B"]
    made = translator(BeamSearch(5, max_length=9))
    for found in made(LINES, terms=[terms] * len(LINES)):
        assert all(has(found.text, x) for x in terms), found
        assert not found.missing


@pytest.mark.full
def test_terms_that_fit_by_overlapping_are_found(translator):
    made = translator(BeamSearch(4, 2, max_length=5))
    terms = ["K K K", "K K", " K  K ", "K"]
    found = made(["abc"], terms=[terms])
    assert has(found.text[0], "K K K") and not found[0].missing
    for given in (np.array(["B", "K"]), [tf.constant(["B"])[0], b"K"]):
        (found,) = made(["abc"], terms=[given])
        assert has(found.text, "B") and has(found.text, "K")


@pytest.mark.full
def test_of_more_terms_than_fit_the_others_are_missing(translator):
    made = translator(BeamSearch(4, 2, max_length=5))
    terms = [f"{x} {y}" for x in WORDS for y in WORDS]
    found, plain = made(["abc", "b"], terms=[terms, []])
    assert found.missing == [x for x in terms if not has(found.text, x)]
    assert len(found.missing) < len(terms) and not found.finished
    assert_same(plain, made(["b"])[0])
    asked = tf.constant(["\n".join(terms)])
    ids = made.pipeline.with_ids({"terms": asked})["terms"]
    assert ids.shape[1:] == (5, 1, 2)  # as 10 tokens may come in 5


@pytest.mark.parametrize("name", ["pre", "transformer"])
@pytest.mark.full
def test_the_end_comes_in_time(translator, name):
    """Hypotheses that cannot have all terms in time take no beams."""
    made = translator(
        BeamSearch(300, 8, max_length=5, early_stopping="never"), name
    )
    terms = ["EH", "D D", "ñ"]
    every = [x for x in every_text(4) if all(has(x, y) for y in terms)]
    scores = made.score(["b"] * len(every), every).scores
    (found,) = made(["b"], terms=[terms])
    texts = [found.text, *(x.text for x in found.alternatives if x.finished)]
    best = [every[i] for i in np.argsort(-scores)]
    assert texts == best[: len(texts)] and len(texts) == len(best)


@pytest.mark.full
def test_terms_of_a_prefix_count(translator):
    made = translator(BeamSearch(4, max_length=8))
    found = made(["abc"], terms=[["D K"]], prefixes=["D K"])
    assert found[0].text.startswith("D K")
    assert found[0].text == made(["abc"], prefixes=["D K"])[0].text


@pytest.mark.full
def test_what_does_not_fit_is_missing(translator):
    made = translator(BeamSearch(4, 3, max_length=5))
    (found,) = made(["abc"], terms=[["D K B"]], prefixes=["AA AA AA"])
    assert not found.finished
    assert found.missing == ["D K B"]


@pytest.mark.parametrize(
    "terms, message",
    [
        ("AA", "list of strings"),
        (["AA"], "list of strings"),
        ([["AA"], ["B"]], "list of strings"),
        ([["zz"]], "tokens that the target text knows"),
        ([["AA zz"]], "tokens that the target text knows"),
        ([[""]], "string with a character"),
        ([[" \n "]], "string with a character"),
        ([["AA\nB"]], "without a line break"),
        ([[3]], "string with a character"),
        ([["\ud800"]], "tokens that the target text knows"),
        ([["AA B K D EH"]], "must fit into the output"),
    ],
)
def test_terms_that_no_output_can_have_are_refused(translator, terms, message):
    made = translator(BeamSearch(2, max_length=5))
    with pytest.raises(ValueError, match=message):
        made(["abc"], terms=terms)


@pytest.mark.full
@pytest.mark.sample_cases(1)
@pytest.mark.parametrize("search", [GreedySearch(5), Sampling(max_length=5)])
def test_other_searches_refuse_terms(translator, search):
    made = translator(search)
    with pytest.raises(ValueError, match="BeamSearch"):
        made(["abc"], terms=[["AA"]])


@pytest.mark.full
def test_terms_go_with_shortlists_ensembles_and_saved_translators(
    toys, translator, tmp_path
):
    search = BeamSearch(4, 2, max_length=8)
    made = translator(search)
    toy = toys["pre"]
    short = keras_attn.Shortlist.from_tokens(
        toy.source_text, TARGET, {x: ["AA", "B"] for x in "abc"}
    )
    listed = translator(search, shortlist=short)
    several = keras_attn.Translator(
        [toy.model, toys["feeding"].model], toy.source_text, TARGET, search
    )
    made.save(tmp_path)
    again = keras_attn.Translator.load(tmp_path)
    expected = made(LINES, terms=TERMS, avoid=[["D"], *[None] * 7])
    for one in (listed, several):
        found = one(LINES, terms=TERMS)
        assert not any(found.missing)
        for row, wanted in zip(found, TERMS, strict=True):
            assert all(has(row.text, x) for x in wanted or [])
    found = again(LINES, terms=TERMS, avoid=[["D"], *[None] * 7])
    for row, other in zip(found, expected, strict=True):
        assert_same(row, other)
    assert not has(expected[0].text, "D")


@pytest.mark.full
def test_servers_and_clients_take_terms(translator, tmp_path):
    made = translator(BeamSearch(4, 3, max_length=9))
    avoid = [None, ["D", "B B"], *[[]] * 6]
    expected = made(LINES, terms=TERMS, avoid=avoid)
    folder = tmp_path / "toy"
    path = str(made.export(folder, signatures=["terms", "options"]))
    asked = own_options(made, LINES)
    asked["prefix"][:] = b""
    asked["max_length"][:] = -1
    asked |= {
        "terms": as_bytes("\n".join(x or []) for x in TERMS),
        "avoid": as_bytes("\n".join(x or []) for x in avoid),
    }
    (answer,) = ask([(path, "terms", asked, "c")])
    assert [x.decode() for x in answer["text"]] == expected.text
    assert {*answer["missing"].tolist(), *answer["error"].tolist()} == {b""}
    finished = [row.finished for row in expected]
    with Server(folder, "toy", port=0, rest=Rest()) as server:
        for client in (
            Client(server.address, model="toy"),
            RestClient(f"http://{server.rest_address}", model="toy"),
        ):
            with client:
                found = client.translate(LINES, terms=TERMS, avoid=avoid)
                assert list(found["text"]) == expected.text
                assert set(found["missing"]) == {""}
                assert found["finished"][:, 0].tolist() == finished
                aligned = client.align(LINES, terms=TERMS, avoid=avoid)
                for row, one in zip(aligned, expected, strict=True):
                    assert row.text == one.text and not row.missing
                    assert row.finished is one.finished
                    np.testing.assert_allclose(
                        row.alignment, one.alignment, atol=1e-5
                    )
                _require_errors(client)


def _require_errors(client):
    terms = [["zz"], ["AA " * 9], ["AA"], None]
    with pytest.raises(RowError) as caught:
        client.translate(LINES[:4], terms=terms)
    assert [*caught.value.errors] == [0, 1]
    assert "target text knows" in caught.value.errors[0]
    assert "max_length=9" in caught.value.errors[1]
    assert has(caught.value.result["text"][2], "AA")
    with pytest.raises(RowError, match="target text knows"):
        client.translate(LINES[:1], avoid=[["zz"]])
    found = client.translate(LINES[:1], terms=[["AA"] * 20 + ["AA\n"]])
    assert has(found["text"][0], "AA")
    many = [" ".join(x) for x in itertools.product(WORDS, repeat=3)][:201]
    with pytest.raises(RowError, match="200 phrases"):
        client.translate(LINES[:1], avoid=[many])
    for terms in ("AA", ["AA"], [["AA"], ["B"]], [["A\nB"]], [[""]]):
        with pytest.raises(ValueError, match="list of strings"):
            client.translate(LINES[:1], terms=terms)
    # Too long for one row's own limit
    with pytest.raises(RowError, match="max_length=3"):
        client.translate(
            LINES[:1], terms=[["AA B K"]], options={"max_length": 3}
        )


@pytest.mark.full
def test_an_export_of_another_search_answers_rows_without_terms(
    translator, tmp_path
):
    made = translator(GreedySearch(max_length=6))
    made.export(tmp_path, signatures=["terms"])
    plain = made(LINES)
    with (
        Server(tmp_path, "toy", port=0) as server,
        Client(server.address, model="toy") as client,
    ):
        with pytest.raises(RowError, match="BeamSearch") as caught:
            client.translate(LINES[:3], terms=[None, ["AA"], []])
        assert [*caught.value.errors] == [1]
        assert caught.value.result["text"][0] == plain.text[0]
        found = client.translate(["abc"], avoid=[["D"]])
        assert not has(found["text"][0], "D")


@pytest.mark.full
def test_a_rule_of_a_user_s_own_may_steer(toys, translator):
    end, token = TARGET.special.end, TARGET.tokens.index("ñ")
    rule = AtLeast(token, 3, end)
    found = translator(BeamSearch(4, 3, max_length=9, rules=[rule]))(LINES)
    for row in found:
        assert row.text.split().count("ñ") >= 3
    both = translator(BeamSearch(4, 3, max_length=9, rules=[rule]))(
        LINES, terms=[["B B"]] * len(LINES)
    )
    for row in both:
        assert row.text.split().count("ñ") >= 3 and has(row.text, "B B")
    with pytest.raises(ValueError, match="`steer`.*BeamSearch"):
        translator(GreedySearch(9, rules=[rule]))
