import concurrent.futures
import subprocess
import sys
import textwrap
import threading

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers
from support import toys as toy_models
from support.comparisons import assert_same

import keras_attn
from keras_attn import Translator
from keras_attn.text.special_tokens import START

LINES = toy_models.LINES
NAMES = list(toy_models.MAKERS)
PADDING = " ".join(["bad"] * 8)  # a longer neighbour


@pytest.fixture(scope="module")
def results(toys):
    return {name: toys[name](LINES) for name in NAMES}


@pytest.mark.sample_cases(1)
@pytest.mark.parametrize("name", NAMES)
def test_a_result_has_a_translation_for_each_line(name, toys, results):
    result, search = results[name], toys[name].search
    assert len(result) == len(LINES) == len(list(result))
    assert result.text == [row.text for row in result]
    assert result.scores.dtype == np.float32
    assert result.scores.tolist() == [row.score for row in result]
    assert result.alternatives == [row.alternatives for row in result]
    assert len(result.alignments) == len(LINES)
    for row in result:
        assert len(row.alternatives) == search.num_hypotheses - 1
        for hypothesis in (row, *row.alternatives):
            assert isinstance(hypothesis.text, str)
            assert isinstance(hypothesis.score, float)
            assert isinstance(hypothesis.finished, bool)
    assert result[0] is result[-len(LINES)]
    assert len(result[1:3]) == 2


@pytest.mark.parametrize("name", NAMES)
def test_tokens_and_alignments_are_trimmed_of_padding(name, toys, results):
    search = toys[name].search
    for line, row in zip(LINES, results[name], strict=True):
        if name != "words":
            assert row.source_tokens == [*line, "</s>"]
        for hypothesis in (row, *row.alternatives):
            tokens = hypothesis.tokens
            assert hypothesis.finished == (tokens[-1] == "</s>")
            if not hypothesis.finished:
                assert len(tokens) == search.max_length
            words = tokens[:-1] if hypothesis.finished else tokens
            assert hypothesis.text == " ".join(words)
            shape = (len(tokens), len(row.source_tokens))
            assert hypothesis.alignment.shape == shape
            np.testing.assert_allclose(
                hypothesis.alignment.sum(-1), 1.0, atol=1e-5
            )
            assert hypothesis.alignment.dtype == np.float32


def test_the_toys_are_worth_testing_with(results):
    rows = [row for result in results.values() for row in result]
    assert {row.finished for row in rows} == {True, False}
    assert len({row.text for row in rows}) > len(rows) / 2


@pytest.mark.sample_cases(1)
@pytest.mark.parametrize("name", NAMES)
def test_a_line_translates_alone_as_in_any_batch(name, toys, results):
    for line, expected in zip(LINES, results[name], strict=True):
        (alone,) = toys[name]([line])
        assert_same(alone, expected)
        if name != "compiled":  # each shape would be compiled
            beside, _ = toys[name]([line, PADDING])
            assert_same(beside, expected)


@pytest.mark.full
@pytest.mark.parametrize("batch_size", [1, 3, 64])
def test_the_batch_size_changes_nothing(batch_size, toys, results):
    found = toys["pre"](LINES, batch_size=batch_size)
    for row, expected in zip(found, results["pre"], strict=True):
        assert_same(row, expected)


def test_the_same_line_twice_translates_twice_the_same(toys):
    one, two, three = toys["pre"](["dead", "b", "dead"])
    assert_same(one, three)
    assert one.source_tokens != two.source_tokens


def test_no_lines_have_no_translations(toys):
    assert len(toys["pre"]([])) == 0
    assert toys["pre"]([]).scores.shape == (0,)


@pytest.mark.full
@pytest.mark.sample_cases(1)
@pytest.mark.parametrize("name", ["pre", "greedy", "feeding", "stack", "words"])
def test_scores_are_what_teacher_forcing_gives(name, toys, results):
    translator = toys[name]
    search = translator.search
    text = translator.target_text
    for line, row in zip(LINES, results[name], strict=True):
        source = translator.source_text.ids([line])
        for hypothesis in (row, *row.alternatives):
            ids = [text.tokens.index(x) for x in hypothesis.tokens]
            target = tf.constant([[START, *ids[:-1]]])
            logits = translator.model([source, target])
            logps = tf.nn.log_softmax(logits)[0].numpy()
            logp = logps[np.arange(len(ids)), ids].sum()
            if hasattr(search, "normalize"):
                logp = float(search.normalize(logp, len(ids)))
            np.testing.assert_allclose(hypothesis.score, logp, atol=1e-4)


@pytest.mark.full
def test_alignments_are_what_teacher_forcing_gives(toys, results):
    translator = toys["pre"]
    (layer,) = [
        x
        for x in translator.model.layers
        if isinstance(x, keras_attn.AttentionDecoder)
    ]
    inputs = {}
    call = layer.call

    def record(*args, **kwargs):
        inputs["args"], inputs["kwargs"] = args, kwargs
        return call(*args, **kwargs)

    layer.call = record
    try:
        for line, row in zip(LINES, results["pre"], strict=True):
            source = translator.source_text.ids([line])
            text = translator.target_text
            for hypothesis in (row, *row.alternatives):
                ids = [text.tokens.index(x) for x in hypothesis.tokens]
                target = tf.constant([[START, *ids[:-1]]])
                translator.model([source, target])
                _, expected = call(
                    *inputs["args"],
                    **inputs["kwargs"] | {"return_attention_scores": True},
                )
                np.testing.assert_allclose(
                    hypothesis.alignment, expected[0], atol=1e-5
                )
    finally:
        layer.call = call


HOSTILE = {
    "a lone surrogate": "a\ud800b",
    "NUL": "a\0b",
    "NUL at the end": "ab\0",
    "bytes": "é".encode(),
    "invalid bytes": b"\xff\xfea",
    "bytes with NUL at the end": b"ab\0\0",
    "special tokens": "<s></s><pad>",
    "white space": "\u3000\t\n",
    "very long": "ab" * 50_000,
}


@pytest.mark.sample_cases(2)
@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_line_gets_an_answer_and_harms_no_other(case, toys, results):
    hostile = HOSTILE[case]
    first, found, last = toys["pre"]([LINES[0], hostile, LINES[2]])
    assert_same(first, results["pre"][0])
    assert_same(last, results["pre"][2])
    (alone,) = toys["pre"]([hostile])
    assert_same(alone, found)
    assert found.source_tokens[-1] == "</s>"
    assert np.isfinite(found.score)


def test_nul_at_the_end_of_a_line_is_not_lost(toys):
    one, two = toys["pre"](["ab", "ab\0"])
    assert len(two.source_tokens) == len(one.source_tokens) + 1


def test_a_string_instead_of_a_list_is_refused(toys):
    for line in ("abc", b"abc"):
        with pytest.raises(ValueError, match="takes a list of strings.*abc"):
            toys["pre"](line)


def test_what_is_no_string_is_refused(toys):
    with pytest.raises(ValueError, match="Received in it: 3 .of type int"):
        toys["pre"](["abc", 3])


def test_any_sequence_of_lines_will_do(toys, results):
    for lines in (tuple(LINES), np.array(LINES)):
        assert toys["greedy"](lines).text == results["greedy"].text


@pytest.mark.full
@pytest.mark.parametrize("name", ["pre", "greedy", "words", "compiled"])
def test_what_is_saved_is_loaded(name, toys, results, tmp_path):
    translator = toys[name]
    translator.save(tmp_path / "saved")
    loaded = Translator.load(str(tmp_path / "saved"))
    assert loaded.search == translator.search
    assert loaded.jit_compile == translator.jit_compile
    assert loaded.source_text.max_length == translator.source_text.max_length
    for row, expected in zip(loaded(LINES), results[name], strict=True):
        assert_same(row, expected)


@pytest.mark.full
def test_a_saved_translator_is_loaded_and_exported_by_another_process(
    toys, results, tmp_path
):
    toys["greedy"].save(tmp_path / "saved")
    program = f"""
        import keras_attn
        translator = keras_attn.Translator.load({str(tmp_path / "saved")!r})
        print(translator({LINES!r}).text)
        print(translator.export({str(tmp_path / "models")!r}))
        """
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(program)],
        check=True,
        capture_output=True,
        text=True,
    )
    text, path = done.stdout.splitlines()[-2:]
    assert text == repr(results["greedy"].text)
    assert path == str(tmp_path / "models" / "1")


def test_a_directory_without_a_translator_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="no saved translator in"):
        Translator.load(tmp_path)


@pytest.mark.full
def test_saving_again_writes_over_what_was_there(toys, tmp_path):
    toys["pre"].save(tmp_path)
    toys["greedy"].save(tmp_path)
    assert Translator.load(tmp_path).search == toys["greedy"].search


@pytest.mark.full
def test_threads_may_call_at_once_the_first_time_too(toys, results):
    fresh = Translator(
        toys["pre"].model,
        toy_models.SOURCE,
        toy_models.TARGET,
        toys["pre"].search,
    )
    threads = 6
    barrier = threading.Barrier(threads)

    def work(number):
        barrier.wait()
        lines = LINES[number:] + LINES[:number]
        return [fresh(lines) for _ in range(3)]

    with concurrent.futures.ThreadPoolExecutor(threads) as pool:
        answers = list(pool.map(work, range(threads)))
    for number, found in enumerate(answers):
        expected = [*results["pre"]][number:] + [*results["pre"]][:number]
        for result in found:
            for row, other in zip(result, expected, strict=True):
                assert_same(row, other)


@pytest.mark.full
def test_training_on_changes_what_the_same_translator_says():
    translator = toy_models.greedy()
    before = translator(LINES)
    old = translator.model.get_weights()
    data = keras_attn.pairs(
        LINES * 4,
        ["AA B"] * 4 * len(LINES),
        toy_models.SOURCE,
        toy_models.TARGET,
    )
    model = translator.model
    model.compile(
        keras.optimizers.Adam(0.05),
        loss=keras_attn.SequenceCrossentropy(),
        jit_compile=False,
    )
    model.fit(data, epochs=25, verbose=0)
    after = translator(LINES)
    model.set_weights(old)
    assert set(after.text) == {"AA B"}
    assert set(before.text) != {"AA B"}
    assert translator(LINES).text == before.text


@pytest.mark.full
def test_xla_finds_what_the_graph_finds(toys, results):
    plain = Translator(
        toys["compiled"].model,
        toy_models.SOURCE,
        toy_models.TARGET,
        toys["compiled"].search,
    )
    assert toys["compiled"].jit_compile and not plain.jit_compile
    for row, expected in zip(plain(LINES), results["compiled"], strict=True):
        assert_same(row, expected)


def test_beam_search_is_the_default(toys):
    translator = Translator(
        toys["pre"].model, toy_models.SOURCE, toy_models.TARGET
    )
    assert translator.search == keras_attn.BeamSearch()


def unmasked_model():
    source = keras.Input((None,), dtype="int32")
    target = keras.Input((None,), dtype="int32")
    hidden = keras_attn.AttentionDecoder(
        layers.GRUCell(6), keras_attn.BahdanauAttention(6)
    )(
        layers.Embedding(toy_models.TARGET.size, 6)(target),
        layers.Embedding(toy_models.SOURCE.size, 6)(source),
    )
    logits = layers.Dense(toy_models.TARGET.size)(hidden)
    model = keras.Model([source, target], logits)
    toy_models.speak_up(model, seed=1)
    return model


@pytest.mark.full
@pytest.mark.parametrize("large", [False, True])
def test_a_model_that_padding_confuses_is_warned_of(large, monkeypatch):
    if large:  # rows take turns
        module = "keras_attn.decoding.translator.model_trial"
        monkeypatch.setattr(f"{module}._LARGE", 0)
    said = (
        r"Padding changes .*mask_zero=True.*`keras_attn.check\(model\)` names"
    )
    with pytest.warns(UserWarning, match=said):
        Translator(unmasked_model(), toy_models.SOURCE, toy_models.TARGET)


def test_logits_that_do_not_fit_the_target_text_are_refused(toys):
    with pytest.raises(ValueError, match=r"10 logits, target_text.size=8"):
        Translator(
            toys["pre"].model,
            toy_models.SOURCE,
            keras_attn.Text("abcd", split="characters"),
        )


def test_a_source_that_is_no_ids_is_refused():
    source = keras.Input((None, 4))
    target = keras.Input((None,), dtype="int32")
    hidden = keras_attn.AttentionDecoder(
        layers.GRUCell(6), keras_attn.BahdanauAttention(6)
    )(layers.Embedding(toy_models.TARGET.size, 6)(target), source)
    model = keras.Model(
        [source, target], layers.Dense(toy_models.TARGET.size)(hidden)
    )
    with pytest.raises(ValueError, match="needs a model of two inputs"):
        Translator(model, toy_models.SOURCE, toy_models.TARGET)


@pytest.mark.full
def test_a_model_that_cannot_be_cut_is_refused_before_anything_is_decoded():
    class Summing(layers.Layer):
        def call(self, inputs):
            return keras.ops.cumsum(inputs, axis=1)

    source = keras.Input((None,), dtype="int32")
    target = keras.Input((None,), dtype="int32")
    hidden = keras_attn.AttentionDecoder(
        layers.GRUCell(6), keras_attn.BahdanauAttention(6)
    )(
        layers.Embedding(toy_models.TARGET.size, 6)(target),
        layers.Embedding(toy_models.SOURCE.size, 6, mask_zero=True)(source),
    )
    hidden = Summing(name="culprit")(hidden)
    logits = layers.Dense(toy_models.TARGET.size)(hidden)
    with pytest.raises(ValueError, match="'culprit' .* gives another result"):
        Translator(
            keras.Model([source, target], logits),
            toy_models.SOURCE,
            toy_models.TARGET,
            recompute=False,
        )


def test_another_backend_is_refused_with_the_way_out(monkeypatch, toys):
    monkeypatch.setattr(keras.backend, "backend", lambda: "jax")
    with pytest.raises(
        RuntimeError, match="backend 'jax'.*KERAS_BACKEND=tensorflow"
    ):
        Translator(toys["pre"].model, toy_models.SOURCE, toy_models.TARGET)


@pytest.mark.full
@pytest.mark.parametrize(
    "softmax",
    [
        keras.ops.softmax,
        layers.Activation("softmax"),
        lambda x: keras.ops.exp(x - keras.ops.logsumexp(x, -1, keepdims=True)),
    ],
    ids=["operation", "activation", "by hand"],
)
def test_a_model_that_ends_in_a_softmax_is_decoded_as_its_logits(softmax):
    made = toy_models.model(
        keras_attn.AttentionDecoder(
            layers.GRUCell(8), keras_attn.BahdanauAttention(4)
        )
    )
    model = keras.Model(made.inputs, softmax(made.outputs[0]))
    found, expected = (
        Translator(
            x,
            toy_models.SOURCE,
            toy_models.TARGET,
            keras_attn.BeamSearch(3, max_length=6),
        )
        for x in (model, made)
    )
    lines = ["a b", "c", "b b a"]
    one, two = found(lines), expected(lines)
    assert one.text == two.text
    np.testing.assert_allclose(
        [x.score for x in one], [x.score for x in two], atol=1e-4
    )
    np.testing.assert_allclose(
        found.score(lines, ["A", "B", "A B"]).scores,
        expected.score(lines, ["A", "B", "A B"]).scores,
        atol=1e-4,
    )


def test_a_model_that_diverged_is_refused_as_such():
    made = toy_models.model(
        keras_attn.AttentionDecoder(
            layers.GRUCell(8), keras_attn.BahdanauAttention(4)
        )
    )
    made.set_weights([np.full(x.shape, np.nan) for x in made.get_weights()])
    with pytest.raises(ValueError, match="Training may have diverged"):
        Translator(made, toy_models.SOURCE, toy_models.TARGET)


@pytest.mark.parametrize("search", ["beam", keras_attn.GreedySearch])
def test_what_is_no_search_is_refused(search, toys):
    toy = toys["pre"]
    with pytest.raises(ValueError, match="`search` must be"):
        Translator(toy.model, toy.source_text, toy.target_text, search)


def test_a_slice_of_translations_is_translations(results):
    some = results["pre"][1:3]
    assert some.text == results["pre"].text[1:3]


def test_a_batch_holds_at_least_one_line(toys):
    with pytest.raises(ValueError, match="`batch_size` must be an integer, at"):
        toys["pre"](["a"], batch_size=0)


@pytest.mark.full
def test_a_translator_is_made_anew_with_another_search(toys, results):
    toy = toys["greedy"]
    made = toy.replace(search=keras_attn.BeamSearch(1, max_length=9))
    assert made.model is toy.model and made.source_text is toy.source_text
    assert made.search == keras_attn.BeamSearch(1, max_length=9)
    back = made.replace(search=toy.search)
    for row, other in zip(back(LINES), results["greedy"], strict=True):
        assert_same(row, other)


@pytest.mark.full
def test_what_is_replaced_is_replaced_alone(toys):
    toy = toys["ensemble"].replace(forbidden=["AA"])
    made = toy.replace(replace_unknown=False, search=toy.search)
    assert made.forbidden == ("AA",)
    assert made.models == toy.models and len(made.models) == 2
    assert repr(made) == repr(toy)
    with pytest.raises(TypeError, match=r"'padding'.*new `Translator`"):
        toy.replace(padding=" ")
    with pytest.raises(TypeError, match=r"these arguments.*search.*'beams'"):
        toy.replace(beams=3)


@pytest.mark.full
def test_a_subclass_is_replaced_if_it_is_made_alike(toys):
    class Plain(Translator):
        pass

    class Named(Translator):
        def __init__(self, name, model, *texts):
            super().__init__(model, *texts)
            self.name = name

    toy = toys["greedy"]
    given = toy.model, toy.source_text, toy.target_text
    search = keras_attn.GreedySearch(max_length=4)
    assert type(Plain(*given).replace(search=search)) is Plain
    assert type(Named("x", *given).replace(search=search)) is Translator
