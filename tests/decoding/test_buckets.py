"""Batches of unlike lengths are decoded in buckets; each row as if alone.

TensorFlow Serving's loader answers for exports.
"""

import itertools

import numpy as np
import pytest
import tensorflow as tf
from keras import layers
from support import toys as toy_models
from support.exports import as_bytes
from support.exports import own_options
from support.lazily import ask
from support.two_texts import TEXTS
from support.two_texts import made as model_of_two_texts

import keras_attn
from keras_attn.decoding import Hypotheses
from keras_attn.decoding import batching as buckets

pytestmark = pytest.mark.full

RANDOM = np.random.default_rng(3)


def words(count, shortest, longest):
    lengths = RANDOM.integers(shortest, longest + 1, count)
    return ["".join(RANDOM.choice(list("abcde"), size=n)) for n in lengths]


SHORT, LONG = words(40, 0, 3), words(2, 55, 60)
LINES = [*SHORT[:20], LONG[0], *words(15, 14, 20), *SHORT[20:], LONG[1]]


class Halves(layers.Layer):
    """Keeps every second position."""

    supports_masking = True

    def call(self, x):
        return x[:, ::2]

    def compute_mask(self, x, mask=None):
        return mask[:, ::2]


def halved(memory):
    """An encoder with half as many positions as letters."""
    memory, states = toy_models.gru_encoder(memory)
    return Halves()(memory), states


def translator(search, encoder=None):
    decoder = keras_attn.AttentionDecoder(
        layers.GRUCell(8), keras_attn.BahdanauAttention(8)
    )
    model = toy_models.model(decoder, encoder, seed=9)
    return keras_attn.Translator(
        model, toy_models.SOURCE, toy_models.TARGET, search
    )


LIMITS = {"max_length": 60, "max_per_source": (1, 2)}


KINDS = {
    "beam": lambda: translator(
        keras_attn.BeamSearch(3, num_hypotheses=2, **LIMITS)
    ),
    "fewer columns": lambda: translator(
        keras_attn.GreedySearch(**LIMITS), halved
    ),
    "sampling": lambda: translator(keras_attn.Sampling(**LIMITS)),
}


@pytest.fixture(scope="module")
def made_beam():
    return KINDS["beam"]()


@pytest.fixture(scope="module", params=KINDS)
def kind(request):
    return request.param


@pytest.fixture(scope="module")
def made(kind, made_beam):
    return made_beam if kind == "beam" else KINDS[kind]()


@pytest.fixture(scope="module")
def path(made, tmp_path_factory):
    base = tmp_path_factory.mktemp("buckets")
    return made.export(base, signatures=["options"])


def test_the_parts_cost_least():
    random = np.random.default_rng(0)
    for _ in range(100):
        count, most = random.integers(1, 8), int(random.integers(1, 5))
        overhead = int(random.integers(0, 20))
        lengths = np.sort(random.integers(0, 100, count)).astype("int32")

        possible = [
            [*inner, count]
            for size in range(most)
            for inner in itertools.combinations(range(1, count), size)
        ]
        found = buckets.ends_of_buckets(lengths, most, overhead).numpy()
        assert found.tolist() in possible
        costs = {
            tuple(ends): sum(
                steps * (end - first) + overhead * (steps + buckets.MORE_STEPS)
                for first, end, steps in zip(
                    [0, *ends], ends, lengths[np.array(ends) - 1], strict=False
                )
            )
            for ends in possible
        }
        assert costs[tuple(found.tolist())] == min(costs.values())


def test_many_rows_are_parted_in_little_memory():
    lengths = np.repeat(np.arange(1, 41, dtype="int32"), 50_000)
    ends = buckets.ends_of_buckets(lengths).numpy()
    assert len(ends) == 4 and ends[-1] == len(lengths)


def test_padding_within_a_row_is_no_end(made_beam):
    """A client's ids may have it; what follows must not be cut off."""
    pipeline = made_beam.pipeline
    ids = pipeline.sources.text.source_ids(tf.constant(LINES)).numpy()
    long = np.argsort((ids != 0).sum(axis=1))[-2:]
    ids[long, 30] = 0
    alone = pipeline.search_inputs((tf.constant(ids[long]),), {})
    parted = pipeline.for_export(None)
    found = parted.search_inputs((tf.constant(ids),), {})
    np.testing.assert_array_equal(tf.gather(found.tokens, long), alone.tokens)
    np.testing.assert_allclose(
        tf.gather(found.scores, long), alone.scores, rtol=1e-5, atol=1e-4
    )


def test_a_translator_parts_its_batches(made_beam):
    made = made_beam
    rows = [x.encode() for x in LINES]
    batches = [[len(rows[i]) for i in x] for x in made._batches(rows, 64)]
    assert [len(x) for x in batches] == [40, 15, 2]
    assert [max(x) for x in batches] == sorted(map(max, batches))
    assert len(list(made._batches(rows, 8))) > len(rows) / 8
    alike = [b"abc"] * 9 + [b"abcde"] * 9
    assert [len(x) for x in made._batches(alike, 9)] == [9, 9]


def equal(found, expected):
    for name, value in expected.items():
        if value.dtype.kind == "f":
            np.testing.assert_allclose(
                found[name], value, rtol=1e-5, atol=1e-4, err_msg=name
            )
        else:
            np.testing.assert_array_equal(found[name], value, err_msg=name)


@pytest.mark.sample_cases(1)
def test_an_export_answers_each_row_as_if_alone(kind, made, path):
    names = ["options"]
    if kind != "sampling":
        names += ["align", "nbest"]
    requests = {}
    for name in names:
        inputs = {"text": as_bytes(LINES)}
        if name == "options":
            inputs = own_options(made, LINES)
        requests[name, None] = inputs
        for i in range(len(LINES)):
            row = {key: x[i : i + 1] for key, x in inputs.items()}
            requests[name, i] = row
    found = ask([(path, name, x, "c") for (name, _), x in requests.items()])
    found = dict(zip(requests, found, strict=True))
    for (name, i), alone in found.items():
        if i is None:
            continue
        together = {x: y[i : i + 1] for x, y in found[name, None].items()}
        for key, value in alone.items():
            if value.shape != together[key].shape:  # padded to the widest
                assert key in ("source_tokens", "alignments")
                together[key] = together[key][..., : value.shape[-1]]
        equal(together, alone)


@pytest.mark.sample_cases(1)
def test_one_bucket_answers_as_four(kind, made, path, tmp_path):
    together = made.export(tmp_path, signatures=["options"], buckets=1)
    for lines in [[], ["ab"], [""] * 3, LINES]:
        name, inputs = "align", {"text": as_bytes(lines)}
        if kind == "sampling":  # else its seeds are fresh in each call
            name, inputs = "options", own_options(made, lines)
        expected, found = ask(
            [(x, name, inputs, "c") for x in (together, path)]
        )
        equal(found, expected)


def test_two_texts_are_parted_by_their_sum(tmp_path):
    search = keras_attn.GreedySearch(max_length=50, max_per_source=(1, 2))
    made = keras_attn.Translator(
        model_of_two_texts(), TEXTS, toy_models.TARGET, search
    )
    hints = [" ".join(["bad", "cab"] * (n % 5)) for n in range(len(LINES))]
    sources = {"question": LINES, "hint": hints}
    alone = [
        made({x: [y[i]] for x, y in sources.items()})[0]
        for i in range(len(LINES))
    ]
    assert [x.text for x in alone] == made(sources).text
    inputs = {x: as_bytes(y) for x, y in sources.items()}
    (answer,) = ask([(made.export(tmp_path), "align", inputs, "c")])
    assert [x.decode() for x in answer["text"]] == [x.text for x in alone]
    for row, x in zip(answer["alignments"], alone, strict=True):
        time, columns = x.alignment.shape
        np.testing.assert_allclose(row[:time, :columns], x.alignment, atol=1e-4)
        assert not row[:, columns:].any()


def test_a_graph_decodes_each_bucket_at_its_own_width():
    specs = [
        (tf.TensorSpec([None, None], tf.int32),),
        {"seed": tf.TensorSpec([None], tf.int32)},
    ]

    @tf.function(input_signature=specs, autograph=False)
    def search(inputs, request):
        rows, width = tf.unstack(tf.shape(inputs[0]))
        each = tf.fill([rows, 1], rows)
        found = Hypotheses(
            tokens=request["seed"][:, None, None],
            lengths=each,
            scores=tf.zeros([rows, 1]),
            finished=each > 0,
            alignments=tf.fill([rows, 1, 1, width], 1.0),
        )
        return found

    text = toy_models.SOURCE
    ids = text.source_ids(tf.constant(LINES))
    request = {"seed": tf.range(len(LINES))}
    for most, longest, sizes in [(4, 60, [2, 15, 40]), (4, 1, [57])]:
        decode = tf.function(
            buckets.Buckets(((0, text),), longest, most),
            autograph=False,
        )
        found = decode(search, (ids,), request)
        assert found.tokens.numpy().ravel().tolist() == [*range(len(LINES))]
        of = found.lengths.numpy().ravel()
        assert sorted({*of.tolist()}) == sizes
        widths = tf.reduce_sum(found.alignments, axis=[1, 2, 3]).numpy()
        for size in sizes:
            (width,) = {*widths[of == size].tolist()}
            lines = [x for x, n in zip(LINES, of, strict=True) if n == size]
            assert width == 1 + max(map(len, lines))


def test_buckets_need_text(tmp_path):
    made = toy_models.spectra()
    with pytest.raises(ValueError, match="`buckets` needs sources of text"):
        made.export(tmp_path, lengths=False, buckets=2)
    with pytest.raises(ValueError, match="`buckets` must be a positive"):
        made.export(tmp_path, lengths=False, buckets=0)
    assert made.export(tmp_path, lengths=False, buckets=1).exists()
