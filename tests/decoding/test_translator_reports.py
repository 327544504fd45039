"""Reports of cut, unknown and normalized texts, in exports too."""

import unicodedata

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras_attn_serving import Client
from keras_attn_serving.server import Server
from support import toys as toy_models
from support.exports import as_bytes
from support.exports import option_inputs
from support.lazily import ask

import keras_attn
from keras_attn.decoding.translator.several import Several

LINES = toy_models.LINES
NORMALIZATIONS = ["NFC", "NFKC", None]
# Ten ids, as the toys' models know them.
SOURCE = {
    form: keras_attn.Text(
        "abcdeé", split="characters", max_length=4, normalization=form
    )
    for form in NORMALIZATIONS
}
TARGET = keras_attn.Text(
    ["AA", "B", "K", "D", "EH", "ñ"], split="whitespace", max_length=3
)
# For each line: whether it is cut at 4 characters, and its unknown ones then.
CUT = {
    "abc": (False, 0),
    "abcd": (False, 0),
    "abcde": (True, 0),
    "a?b!": (False, 2),
    "a?b!c": (True, 2),
    "abcd???": (True, 0),
    "": (False, 0),
    "e\u0301" * 4: (False, 0),
    "b": (False, 0),
}
WRITTEN = [
    "k\u02b0x",
    "x\u00b2",
    "\u00bd",
    "\ufb01\u2122",
    "e\u0301",
    "\u1112\u1161\u11ab",
    "\uff76\uff9e",
    "\uff41",
]


# Of the code points that some normal form changes, one in seven; each with
# marks behind it, in an order that is not the canonical one.
CHANGED = [
    chr(i) + "\u0301\u0323"
    for i in range(0x110000)
    if unicodedata.decomposition(chr(i)) or 0xAC00 <= i < 0xD7A4
][::7]


def with_texts(toy, source_text=None, target_text=None, **options):
    return keras_attn.Translator(
        toy.models,
        source_text or toy.source_text,
        target_text or toy.target_text,
        options.pop("search", toy.search),
        **options,
    )


@pytest.fixture(scope="module")
def cutting(toys):
    """Translators whose texts are cut, one for each normalization."""
    search = keras_attn.GreedySearch(max_length=5)
    return {
        form: with_texts(toys["greedy"], text, TARGET, search=search)
        for form, text in SOURCE.items()
    }


@pytest.mark.full
def test_a_cut_source_and_its_unknown_tokens_are_reported(cutting):
    result = cutting["NFC"](list(CUT))
    assert result.truncated == [cut for cut, _ in CUT.values()]
    assert result.unknown == [unknown for _, unknown in CUT.values()]
    assert {type(x) for x in result.truncated} == {bool}
    assert {type(x) for x in result.unknown} == {int}
    for row, expected in zip(result, CUT.values(), strict=True):
        assert (row.truncated, row.unknown) == expected
        assert len(row.source_tokens) <= 5


@pytest.mark.full
def test_alternatives_are_reported_like_the_best(toys):
    toy = with_texts(toys["pre"], SOURCE["NFC"])
    for row, expected in zip(toy(list(CUT)), CUT.values(), strict=True):
        assert row.alternatives
        for one in row.alternatives:
            assert (one.truncated, one.unknown) == expected


@pytest.mark.full
def test_empty_sources_are_told_from_others(cutting, toys):
    result = cutting["NFC"](list(CUT))
    assert result.empty == [line == "" for line in CUT]
    assert {type(x) for x in result.empty} == {bool}
    assert cutting["NFC"]([]).empty == []
    lines = ["", " ", "\t\n", "\u3000", "dead", "?"]  # "?" is unknown
    assert toys["words"](lines).empty == [True] * 4 + [False] * 2
    for row in toys["pre"](["", "b"]):
        rows = [row, *row.alternatives]
        assert [x.empty for x in rows] == [not row.source_tokens[1:]] * 3


@pytest.mark.full
def test_scores_tell_empty_sources_and_not_empty_targets(cutting):
    scored = cutting["NFC"].score(["", "", "b", "b"], ["", "AA", "", "AA"])
    assert scored.empty == [True, True, False, False]
    again = cutting["NFC"].score(["", "b"], cutting["NFC"](["", "b"]))
    assert again.empty == [True, False]


@pytest.mark.full
def test_a_stream_of_an_empty_source_says_so(cutting):
    with pytest.warns(UserWarning, match="The source is empty, so the model"):
        next(cutting["NFC"].stream(""))


def test_several_sources_are_empty_if_all_are():
    inputs = [
        keras.Input((None,), dtype="int32", name="one"),
        keras.Input((None, 3), name="frames"),
        keras.Input((None,), dtype="int32", name="two"),
    ]
    texts = {"one": SOURCE["NFC"], "two": TARGET}

    def empty(inputs, *given):
        names = {x.name for x in inputs} & {*texts}
        sources = Several(inputs, {name: texts[name] for name in names})
        given = tuple(map(tf.constant, given))
        report = sources.report(given, sources.inputs(given))
        return report.empty.numpy().tolist()

    one, two = ["", "", "a"], ["", " B", ""]
    assert empty(inputs[::2], one, two) == [True, False, False]
    frames = np.ones((3, 2, 3), "float32")
    assert empty(inputs, one, frames, two) == [False] * 3
    assert empty(inputs, one, frames[:, :0], two) == [True, False, False]


@pytest.mark.full
def test_batch_order_and_neighbours_change_no_report(cutting):
    toy = cutting["NFC"]
    lines = list(CUT)[::-1] * 2
    for size in (1, 3, 64):
        found = toy(lines, batch_size=size)
        assert list(zip(found.truncated, found.unknown, strict=True)) == [
            CUT[line] for line in lines
        ]
    assert toy([]).truncated == [] and toy([]).unknown == []


@pytest.mark.full
def test_five_thousand_words_are_not_scored_as_a_thousand_in_silence(toys):
    toy = toys["greedy"]  # whose texts end at 1000 and at 20 tokens
    lines = ["a" * 5000, "a" * 1000, "a", "a"]
    targets = ["B", "B", "B " * 21, "B " * 20]
    scored = toy.score(lines, targets)
    assert scored.truncated == [True, False, True, False]
    assert scored.scores[0] == pytest.approx(scored.scores[1], abs=1e-4)


@pytest.mark.full
def test_scores_report_source_and_target(cutting):
    cases = {
        ("abc", "AA B K"): (False, 0),
        ("abc", "AA B K D"): (True, 0),
        ("abcde", "AA"): (True, 0),
        ("a?", "AA ? <unk>"): (False, 3),
        ("a?c??", "AA ? Q D"): (True, 4),
        ("", ""): (False, 0),
    }
    toy = cutting["NFC"]
    for size in (1, 64):
        scored = toy.score(*map(list, zip(*cases, strict=True)), size)
        assert scored.truncated == [cut for cut, _ in cases.values()]
        assert scored.unknown == [unknown for _, unknown in cases.values()]


@pytest.mark.full
@pytest.mark.parametrize("name", ["spectra", "images"])
def test_features_are_never_cut_and_have_no_unknown_tokens(name, toys):
    sources = toy_models.sources(name)
    toy = toys[name]
    result = toy(sources)
    assert result.truncated == [False] * 4 and result.unknown == [0] * 4
    assert result.empty == [False] * 4
    scored = toy.score(sources, ["AA", "?", "", "B " * 21])
    assert scored.truncated == [False, False, False, True]
    assert scored.unknown == [0, 1, 0, 0]


@pytest.mark.full
def test_a_prefix_longer_than_its_text_is_refused_and_not_cut(toys):
    toy = with_texts(toys["greedy"], target_text=TARGET)
    message = r"'AA B K D' of 4 tokens.*target_text.max_length=3"
    with pytest.raises(ValueError, match=message):
        toy(["a", "b"], prefixes=["AA B K D", None])
    with pytest.raises(ValueError, match=message):
        toy.stream("a", prefix="AA B K D")
    (row,) = toy(["a"], prefixes=["AA B K"])
    assert row.tokens[:3] == ["AA", "B", "K"]
    strict = keras_attn.Text(
        TARGET.tokens[4:], "whitespace", max_length=3, too_long="error"
    )
    with pytest.raises(ValueError, match=message):
        with_texts(toys["greedy"], target_text=strict)(
            ["a"], prefixes=["AA B K D"]
        )


@pytest.mark.full
def test_a_prefix_longer_than_its_row_s_maximum_is_refused(toys):
    toy = toys["greedy"]
    message = "'AA B K' of 3 tokens with max_length=3"
    prefixes, lengths = ["AA B K", "AA B K"], {"max_length": [4, 3]}
    with pytest.raises(ValueError, match=message):
        toy(["a", "b"], prefixes=prefixes, options=lengths)
    with pytest.raises(ValueError, match=message):
        toy.stream("a", prefix="AA B K", options={"max_length": 3})
    found = toy(["a", "b"], prefixes=prefixes, options={"max_length": 4})
    assert all(row.tokens[:3] == ["AA", "B", "K"] for row in found)


def test_a_prefix_is_refused_with_its_whole_length(toys):
    with pytest.raises(ValueError, match="of 30 tokens with max_length=10"):
        toys["greedy"](["a"], prefixes=["B " * 30])


def test_a_stream_of_a_cut_source_says_so(cutting):
    toy = cutting["NFC"]
    with pytest.warns(UserWarning, match="more tokens than .*max_length of 4"):
        tokens = list(toy.stream("abcde"))
    (expected,) = toy(["abcde"])
    assert [x.token for x in tokens] == expected.tokens
    list(toy.stream("abcd"))  # any warning is an error in these tests


@pytest.mark.full
def test_prefixes_are_normalized_as_the_target_text_is(toys):
    decomposed = "n\u0303"
    (row,) = toys["greedy"](["abc"], prefixes=[decomposed])
    assert row.tokens[0] == "ñ"
    plain = keras_attn.Text(TARGET.tokens[4:], "whitespace", normalization=None)
    with pytest.raises(ValueError, match="tokens that the target text knows"):
        with_texts(toys["greedy"], target_text=plain)(
            ["abc"], prefixes=[decomposed]
        )


@pytest.mark.sample_cases(1)
@pytest.mark.parametrize("form", NORMALIZATIONS)
def test_sources_streams_and_pictures_are_as_the_text_has_them(form, cutting):
    toy = cutting[form]
    for line in WRITTEN:
        (row,) = toy([line])
        expected = unicodedata.normalize(form, line) if form else line
        assert row.source_tokens == [*expected, "</s>"]
        streamed = list(toy.stream(line))
        assert [x.token for x in streamed] == row.tokens
        assert streamed[0].alignment.shape == (len(expected) + 1,)
        axes = keras_attn.plot_attention(row).axes[0]
        shown = [x.get_text() for x in axes.get_xticklabels()]
        assert shown == [
            "\u25cc" + x if unicodedata.combining(x) else x for x in expected
        ] + ["⏎"]


@pytest.mark.full
@pytest.mark.parametrize(
    "form",
    [
        "NFC",
        pytest.param("NFKC", marks=pytest.mark.full),
        pytest.param(None, marks=pytest.mark.full),
    ],
)
def test_unknown_words_are_replaced_by_what_was_written(form, toys):
    text = keras_attn.Text(
        ["abc", "dead", "bad", "cab"],
        "whitespace",
        lowercase=True,
        normalization=form,
    )
    toy = with_texts(toys["words"], text, replace_unknown=True)
    plain = with_texts(toys["words"], text)
    lines = ["k\u02b0 x\u00b2", "e\u0301 \u00bd x\u00b2 dead", "\ufb01 bad"]
    replaced = 0
    for line, row, other in zip(lines, toy(lines), plain(lines), strict=True):
        words = unicodedata.normalize(form, line) if form else line
        for one, before in zip(
            (row, *row.alternatives), (other, *other.alternatives), strict=True
        ):
            for i, (token, was) in enumerate(
                zip(one.tokens, before.tokens, strict=True)
            ):
                assert (i in one.replaced) == (was == "<unk>")
                if was == "<unk>":
                    assert token in words.split()
                    replaced += 1
                else:
                    assert token == was
    assert replaced


@pytest.fixture(scope="module")
def exports(cutting, tmp_path_factory):
    base = tmp_path_factory.mktemp("exports")
    return {
        form: toy.export(
            base / str(form), signatures=["options", "score"], max_rows=None
        )
        for form, toy in cutting.items()
    }


PREFIXES = ["AA", "AA B K", "AA B K D", "Q", "", "Q AA B K", "", "", ""]
TARGETS = ["AA", "AA B K", "AA B K D", "Q", "", "Q AA B K", "", "", "Q Q"]


@pytest.fixture(scope="module")
def answers(cutting, exports, tmp_path_factory):
    """By TF Serving's loader: `(normalization, signature)`."""
    toy = cutting["NFC"]
    text = {"text": as_bytes(CUT)}
    options = {
        name: np.full(len(CUT), -1, dtype.as_numpy_dtype)
        for name, dtype in option_inputs(toy.search).items()
    }
    written = {"text": as_bytes(WRITTEN + CHANGED)}
    cases = {(form, "align"): written for form in exports}
    cases["NFC", "align cut"] = text
    cases["NFC", "align none"] = {"text": as_bytes([])}
    cases["NFC", "options"] = text | options | {"prefix": as_bytes(PREFIXES)}
    few = np.array([1, 3, 2, 1, 1, 1, 1, 1, 1], "int32")
    cases["NFC", "options few"] = cases["NFC", "options"] | {
        "prefix": as_bytes(["AA", "AA B K", "AA B K", *[""] * 6]),
        "max_length": few,
    }
    cases["NFC", "score"] = text | {"target": as_bytes(TARGETS)}
    requests = [
        (str(exports[form]), case.split()[0], inputs, "c")
        for (form, case), inputs in cases.items()
    ]
    return dict(zip(cases, ask(requests), strict=True))


@pytest.mark.full
@pytest.mark.parametrize("form", NORMALIZATIONS)
def test_an_export_normalizes_as_its_text_does(form, answers):
    answer = answers[form, "align"]
    assert len(CHANGED) > 2000
    for line, tokens, length, truncated in zip(
        WRITTEN + CHANGED,
        answer["source_tokens"],
        answer["source_length"],
        answer["truncated"],
        strict=True,
    ):
        expected = unicodedata.normalize(form, line) if form else line
        found = [x.decode() for x in tokens[:length]]
        assert found == [*expected[:4], "</s>"]
        assert truncated == (len(expected) > 4)


def check_report(answer, truncated, unknown):
    assert answer["truncated"].dtype == bool
    assert answer["unknown"].dtype == np.int32
    assert answer["truncated"].tolist() == list(truncated)
    assert answer["unknown"].tolist() == list(unknown)
    lines = [*CUT][: len(answer["empty"])]
    assert answer["empty"].tolist() == [line == "" for line in lines]


@pytest.mark.full
def test_an_export_reports_cut_and_unknown_sources(answers):
    check_report(answers["NFC", "align cut"], *zip(*CUT.values(), strict=True))
    check_report(answers["NFC", "align none"], [], [])


@pytest.mark.full
def test_an_export_reports_prefixes_with_their_sources(answers):
    cut, unknown = map(list, zip(*CUT.values(), strict=True))
    cut[2] = True  # a prefix of four tokens; one of unknown ones is an error
    check_report(answers["NFC", "options"], cut, unknown)


@pytest.mark.full
def test_an_export_reports_prefixes_that_a_row_s_maximum_cut(answers):
    cut, unknown = map(list, zip(*CUT.values(), strict=True))
    cut[2] = True  # three tokens, of which two may come
    check_report(answers["NFC", "options few"], cut, unknown)


@pytest.mark.full
def test_an_export_reports_what_the_translator_does_of_scores(cutting, answers):
    expected = cutting["NFC"].score(list(CUT), TARGETS)
    check_report(answers["NFC", "score"], expected.truncated, expected.unknown)
    assert expected.truncated[2] and expected.truncated[5]
    assert expected.unknown[-1] == 2


@pytest.mark.full
def test_a_client_has_the_reports(exports):
    lines = list(CUT)
    path = exports["NFC"].parent
    with Server(path, "toy", port=0) as server:
        with Client(server.address, model="toy") as client:
            aligned = client.align(lines)
            translated = client.translate(lines)
    for found in (aligned, aligned[:0]):
        for each, expected in zip(found, CUT.values(), strict=False):
            assert (each.truncated, each.unknown) == expected
    assert [x.empty for x in aligned] == [line == "" for line in CUT]
    check_report(translated, *zip(*CUT.values(), strict=True))


def test_a_text_is_cut_in_a_graph_as_it_is_told(cutting):
    text = SOURCE["NFC"]
    graph = tf.function(
        lambda lines: (text.ids(lines), text.is_truncated(lines)),
        input_signature=[tf.TensorSpec([None], tf.string)],
    )
    ids, told = graph(tf.constant(list(CUT)))
    assert told.numpy().tolist() == [cut for cut, _ in CUT.values()]
    assert ids.shape == (len(CUT), 5)
