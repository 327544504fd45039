"""Several text sources: two encoders with two texts, a text and features."""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers
from support import toys
from support.two_texts import TEXTS
from support.two_texts import made

import keras_attn
from keras_attn import Translator

QUESTIONS = ["abc", "", "dead", "é?é", "ba"]
HINTS = ["abc dead", "bad", "", "cab abc bad", "x"]
SPEAKERS = np.arange(15, dtype="float32").reshape(5, 3) / 9


SEARCH = keras_attn.BeamSearch(3, num_hypotheses=2, max_length=6)


@pytest.fixture(scope="module", params=["question", "hint"])
def attends(request):
    return request.param


@pytest.fixture(scope="module")
def translator(attends):
    return Translator(made(attends=attends), TEXTS, toys.TARGET, SEARCH)


@pytest.fixture(scope="module")
def by_ids(translator):
    """The same model over ids, as features of fixed meaning."""
    return Translator(translator.model, None, toys.TARGET, SEARCH)


def ids_of(question, hint):
    return [
        text.ids([x])
        for text, x in zip(TEXTS.values(), (question, hint), strict=True)
    ]


@pytest.mark.full
def test_it_writes_what_the_model_writes_for_the_ids(
    translator, by_ids, attends
):
    found = translator({"hint": HINTS, "question": QUESTIONS})
    assert len({*found.text}) > 2
    for one, *pair in zip(found, QUESTIONS, HINTS, strict=True):
        (expected,) = by_ids(tuple(x.numpy() for x in ids_of(*pair)))
        assert one.text == expected.text
        np.testing.assert_allclose(one.score, expected.score, rtol=1e-4)
        np.testing.assert_allclose(one.alignment, expected.alignment, atol=1e-5)
        attended = dict(zip(TEXTS, pair, strict=True))[attends]
        tokens = TEXTS[attends].tokens_of([attended]).to_list()[0]
        assert one.source_tokens == [x.decode() for x in tokens]
    assert found.text == translator((QUESTIONS, HINTS), batch_size=2).text
    assert found.unknown == [0, 0, 0, 1, 1]


@pytest.mark.full
def test_scores_and_streams(translator):
    sources = QUESTIONS, HINTS
    found = translator(sources)
    scored = translator.score(sources, list(found))
    np.testing.assert_allclose(scored.scores, found.scores, rtol=1e-4)
    greedy = Translator(
        translator.model,
        TEXTS,
        toys.TARGET,
        keras_attn.GreedySearch(max_length=6),
    )
    called = greedy(sources)
    for i, one in enumerate(called):
        source = {"question": QUESTIONS[i], "hint": HINTS[i]}
        streamed = list(greedy.stream(source))
        assert "".join(x.text for x in streamed) == one.text
        np.testing.assert_allclose(
            [x.alignment for x in streamed], one.alignment, atol=1e-5
        )


@pytest.mark.full
def test_it_is_saved_and_loaded(translator, toys, tmp_path):
    translator.save(tmp_path)
    again = Translator.load(tmp_path)
    assert list(again.source_text) == ["question", "hint"]
    sources = QUESTIONS, HINTS
    assert again(sources).text == translator(sources).text
    toys["pre"].save(tmp_path)  # in its place, with one source
    assert not list(tmp_path.glob("source-*"))
    assert Translator.load(tmp_path)(["abc"]).text == toys["pre"](["abc"]).text


@pytest.fixture(scope="module")
def signatures(translator, tmp_path_factory):
    path = translator.export(
        tmp_path_factory.mktemp("export"), signatures="all"
    )
    return tf.saved_model.load(str(path)).signatures


@pytest.mark.full
def test_an_export_answers_the_same(translator, signatures):
    expected = translator((QUESTIONS, HINTS))
    given = {"question": tf.constant(QUESTIONS), "hint": tf.constant(HINTS)}
    answer = signatures["align"](**given)
    assert [x.decode() for x in answer["text"].numpy()] == expected.text
    np.testing.assert_allclose(answer["score"], expected.scores, rtol=1e-4)
    assert answer["unknown"].numpy().tolist() == expected.unknown
    for i, one in enumerate(expected):
        length = int(answer["source_length"][i])
        tokens = answer["source_tokens"][i, :length].numpy()
        assert [x.decode() for x in tokens] == one.source_tokens
    found = signatures["ids"](**given)
    texts = toys.TARGET.strings(found["ids"][:, 0]).numpy()
    assert [x.decode() for x in texts] == expected.text
    scored = signatures["score"](**given, target=tf.constant(expected.text))
    assert (scored["error"] == b"").numpy().all()


@pytest.mark.full
def test_a_text_too_long_fails_alone(translator, signatures):
    long = " ".join(["bad"] * 31)  # `WORDS` takes 30 and refuses more
    hints = [long, *HINTS[1:]]
    given = {"question": tf.constant(QUESTIONS), "hint": tf.constant(hints)}
    specs = signatures["options"].structured_input_signature[1].values()
    more = {
        x.name: tf.fill([5], tf.cast(-1, x.dtype))
        for x in specs
        if x.dtype != tf.string
    }
    answer = signatures["options"](**given, prefix=tf.fill([5], ""), **more)
    assert b"hint" in answer["error"].numpy()[0]
    expected = translator((QUESTIONS, HINTS))
    assert [x.decode() for x in answer["text"].numpy()][1:] == expected.text[1:]


@pytest.mark.full
def test_text_beside_features(tmp_path):
    translator = Translator(made(features=True), TEXTS, toys.TARGET, SEARCH)
    sources = {"question": QUESTIONS, "hint": HINTS, "speaker": SPEAKERS}
    found = translator(sources)
    assert len({*found.text}) > 1
    other = translator({**sources, "speaker": -9 * SPEAKERS})
    assert other.text != found.text
    translator.save(tmp_path / "saved")
    assert Translator.load(tmp_path / "saved")(sources).text == found.text
    path = translator.export(tmp_path / "export")
    served = tf.saved_model.load(str(path)).signatures["serving_default"](
        **{k: tf.constant(v) for k, v in sources.items()}
    )
    assert [x.decode() for x in served["text"].numpy()] == found.text


@pytest.mark.full
def test_unknown_words_come_from_the_attended_text(attends):
    translator = Translator(
        made(attends=attends, seed=6),
        TEXTS,
        toys.TARGET,
        SEARCH,
        replace_unknown=True,
    )
    found = translator((QUESTIONS, HINTS))
    plain = Translator(translator.model, TEXTS, toys.TARGET, SEARCH)
    some = 0
    for one, other in zip(found, plain((QUESTIONS, HINTS)), strict=True):
        for i in one.replaced:
            assert other.tokens[i] == "<unk>"
            assert one.tokens[i] in one.source_tokens[:-1]
            some += 1
    assert some


@pytest.mark.full
@pytest.mark.sample_cases(6)
@pytest.mark.parametrize(
    "sources, message",
    [
        (QUESTIONS, "dictionary by their names"),
        ({"question": QUESTIONS}, "must have the names"),
        ((QUESTIONS, HINTS, HINTS), "dictionary by their names"),
        ((QUESTIONS, HINTS[:2]), "same number of rows"),
        (("abc", "bad"), "list of strings"),
        ({"question": QUESTIONS, "hint": SPEAKERS}, "list of strings"),
    ],
    ids=[
        "a list",
        "one missing",
        "one too many",
        "lengths",
        "strings",
        "arrays",
    ],
)
def test_wrong_sources_are_refused(translator, sources, message):
    with pytest.raises(ValueError, match=message):
        translator(sources)


@pytest.mark.parametrize(
    "texts, message",
    [
        ({}, "some of"),
        ({"quesiton": toys.SOURCE}, "some of"),
        ({"question": "characters", "hint": toys.WORDS}, "must be a `Text`"),
        ({**TEXTS, "speaker": toys.WORDS}, "of any length"),
    ],
    ids=["none", "a typo", "no text", "features"],
)
def test_wrong_texts_are_refused(texts, message):
    with pytest.raises(ValueError, match=message):
        Translator(made(features="speaker" in texts), texts, toys.TARGET)
    with pytest.raises(ValueError, match="dictionary of `Text`s"):
        Translator(made(), toys.SOURCE, toys.TARGET)


@pytest.mark.full
def test_pairs_of_several_sources_train_a_model(tmp_path):
    sources = {"question": QUESTIONS, "hint": HINTS}
    targets = ["AA B", "K", "", "D AA", "B"]
    data = keras_attn.pairs(
        sources, targets, TEXTS, toys.TARGET, batch_size=2, seed=1
    )
    seen = set()
    for (question, hint, target_in), target_out in data:
        asked = toys.SOURCE.strings(question).numpy().tolist()
        told = toys.WORDS.strings(hint).numpy().tolist()
        said = toys.TARGET.strings(target_out).numpy().tolist()
        seen |= {*zip(asked, told, said, strict=True)}
        assert (target_in[:, 0] == 1).numpy().all()
    lines = zip(
        *(
            text.strings(text.ids(x)).numpy().tolist()
            for text, x in (
                (toys.SOURCE, QUESTIONS),
                (toys.WORDS, HINTS),
                (toys.TARGET, targets),
            )
        ),
        strict=True,
    )
    assert seen == {*lines}
    model = made()
    model.compile("adam", keras_attn.SequenceCrossentropy(), jit_compile=False)
    before = model.evaluate(data, verbose=0)
    model.fit(data, epochs=2, verbose=0)
    assert model.evaluate(data, verbose=0) < before


@pytest.mark.parametrize(
    "sources, texts, message",
    [
        ({"a": QUESTIONS}, toys.SOURCE, "same names"),
        ({"a": QUESTIONS}, {"b": toys.SOURCE}, "same names"),
        (QUESTIONS, {"a": toys.SOURCE}, "same names"),
        ({"a": QUESTIONS}, {"a": "abc"}, r"source_text\['a'\]` must be a `T"),
        (
            {"a": QUESTIONS, "b": HINTS[:2]},
            {"a": toys.SOURCE, "b": toys.WORDS},
            "as many",
        ),
    ],
    ids=["one text", "other names", "one list", "no text", "lengths"],
)
def test_pairs_of_wrong_sources_are_refused(sources, texts, message):
    with pytest.raises(ValueError, match=message):
        keras_attn.pairs(sources, ["B"] * 5, texts, toys.TARGET)


def test_an_ensemble_in_another_order_is_refused():
    model = made()
    question, hint, target = model.inputs
    other = keras.Model([hint, question, target], model.outputs)
    with pytest.raises(ValueError, match="in one order"):
        Translator([model, other], TEXTS, toys.TARGET)


@pytest.mark.full
@pytest.mark.parametrize("width", [7, 6])  # 7 is that of the texts tried
def test_features_that_are_attended_to_are_numbered(width):
    question = keras.Input((None,), dtype="int32", name="question")
    week = keras.Input((width, 4), name="week")
    target = keras.Input((None,), dtype="int32", name="target")
    state = layers.GRU(8)(
        layers.Embedding(toys.SOURCE.size, 6, mask_zero=True)(question)
    )
    hidden = keras_attn.AttentionDecoder(
        layers.GRUCell(8), keras_attn.BahdanauAttention(5)
    )(
        layers.Embedding(toys.TARGET.size, 6, mask_zero=True)(target),
        layers.Dense(5)(week),
        initial_state=state,
    )
    model = keras.Model(
        [question, week, target], layers.Dense(toys.TARGET.size)(hidden)
    )
    translator = Translator(model, {"question": toys.SOURCE}, toys.TARGET)
    given = {"question": ["abc"], "week": np.zeros([1, width, 4], "float32")}
    (found,) = translator(given)
    assert found.source_tokens == [str(i) for i in range(width)]
    assert found.alignment.shape[1] == width
    with pytest.raises(ValueError, match="attend to each token of it"):
        Translator(
            model,
            {"question": toys.SOURCE},
            toys.TARGET,
            replace_unknown=True,
        )
