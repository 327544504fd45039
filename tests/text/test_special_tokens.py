"""Ids of a pretrained vocabulary: the same results as with the usual ids.

A model over the usual ids, and the same one with its rows moved to the places
that another vocabulary gives its tokens, must write the same.
"""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers
from keras import ops
from keras_attn_serving import Client
from keras_attn_serving.server import Server
from support import toys

import keras_attn
from keras_attn import SpecialTokens
from keras_attn import Text
from keras_attn.text import subwords

LINES = [
    "to be or not to be, that is the question",
    "whether 'tis nobler in the mind to suffer",
    "the slings and arrows of outrageous fortune",
]
SOURCES = ["to be", "", "the sea of arrows", "€ not", "question"]
IDS = {"unk_id": 1, "pad_id": 2, "bos_id": 3, "eos_id": 0}
OWN = SpecialTokens(pad=2, start=(3,), end=0, unknown=1)


@pytest.fixture(scope="module")
def content():
    return subwords.train([x.encode() for x in LINES], 60, "bpe", False, IDS)


@pytest.fixture(scope="module")
def usual(content):
    return Text(split=keras_attn.SentencePiece(content))


@pytest.fixture(scope="module")
def own(content):
    return Text(split=keras_attn.SentencePiece(content, special=OWN))


def model(size, pad, end=0, seed=3):
    """Returns a model that masks padding by itself, with seeded weights."""
    source = keras.Input((None,), dtype="int32", name="source")
    target = keras.Input((None,), dtype="int32", name="target")
    mask = ops.not_equal(source, pad)
    memory = layers.GRU(6, return_sequences=True)(
        layers.Embedding(size, 5, name="source_rows")(source), mask=mask
    )
    hidden = keras_attn.AttentionDecoder(
        layers.GRUCell(6), keras_attn.BahdanauAttention(4)
    )(
        layers.Embedding(size, 5, name="target_rows")(target),
        memory,
        memory_mask=mask,
    )
    made = keras.Model([source, target], layers.Dense(size, name="out")(hidden))
    toys.speak_up(made, seed)
    kernel, bias = made.get_layer("out").get_weights()
    bias[end] += 3.0  # so that some texts end
    made.get_layer("out").set_weights([kernel, bias])
    return made


def moved(made, places, pad):
    """Returns the model with the row of each id at another place."""
    other = model(len(places), pad)
    other.set_weights(made.get_weights())
    for name in ("source_rows", "target_rows"):
        rows = made.get_layer(name).get_weights()[0]
        changed = np.empty_like(rows)
        changed[places] = rows
        other.get_layer(name).set_weights([changed])
    kernel, bias = (np.array(x) for x in made.get_layer("out").get_weights())
    changed, changed_bias = np.empty_like(kernel), np.empty_like(bias)
    changed[:, places], changed_bias[places] = kernel, bias
    other.get_layer("out").set_weights([changed, changed_bias])
    return other


@pytest.fixture(scope="module")
def models(usual, own):
    made = model(usual.size, 0, end=2)
    names = ["<pad>", "<s>", "</s>", "<unk>", *usual.tokens[4:]]
    places = [own.tokens.index(x) for x in names]
    assert sorted(places) == list(range(usual.size))
    assert places[4:] != sorted(places[4:]) or places[:4] == [2, 3, 0, 1]
    return made, moved(made, places, 2)


def pair(models, usual, own, **options):
    return [
        keras_attn.Translator(made, text, text, **options)
        for made, text in zip(models, (usual, own), strict=True)
    ]


@pytest.fixture(scope="module")
def translators(models, usual, own):
    search = keras_attn.BeamSearch(4, num_hypotheses=2, max_length=9)
    return pair(models, usual, own, search=search, forbidden=["s"])


def same(one, other):
    assert one.text == other.text and one.tokens == other.tokens
    assert one.source_tokens == other.source_tokens
    assert one.unknown == other.unknown
    np.testing.assert_allclose(one.score, other.score, rtol=1e-5)
    np.testing.assert_allclose(one.alignment, other.alignment, atol=1e-6)


def test_ids_are_those_of_the_model(own, usual):
    assert own.tokens[:4] == ["</s>", "<unk>", "<pad>", "<s>"]
    ids = own.ids(SOURCES, start=True).numpy()
    assert ids[0, 0] == 3 and ids[1].tolist()[:3] == [3, 0, 2]
    assert (ids[1, 2:] == 2).all()
    for text in (own, usual):
        found = text.strings(text.ids(SOURCES))
        assert (
            found.numpy().tolist()
            == usual.strings(usual.ids(SOURCES)).numpy().tolist()
        )
    assert (
        own.tokens_of(SOURCES).to_list() == usual.tokens_of(SOURCES).to_list()
    )
    outside = own.strings([[own.size, 2, -1]]).numpy()[0]
    assert outside == usual.strings([[usual.size, 0, -1]]).numpy()[0]


@pytest.mark.full
def test_a_call_writes_the_same(translators):
    usual, own = (x(SOURCES) for x in translators)
    for one, other in zip(usual, own, strict=True):
        same(one, other)
        for a, b in zip(one.alternatives, other.alternatives, strict=True):
            same(a, b)
    assert any(x.finished for x in usual) and len({*usual.text}) > 2


@pytest.mark.full
def test_prefixes_and_scores_are_the_same(translators, models):
    prefixes = ["to", "", None, "the", "be"]
    usual, own = (x(SOURCES, prefixes=prefixes) for x in translators)
    for one, other in zip(usual, own, strict=True):
        same(one, other)
    assert own[0].text.startswith("to")
    for targets in (LINES[:2] + ["", "€ x", "be"], None):
        usual, own = (
            x.score(SOURCES, targets or list(x(SOURCES))) for x in translators
        )
        np.testing.assert_allclose(usual.scores, own.scores, rtol=1e-5)
        assert usual.tokens == own.tokens and usual.unknown == own.unknown


@pytest.mark.full
@pytest.mark.parametrize("replace", [False, True])
def test_streams_are_the_same(models, usual, own, replace):
    search = keras_attn.GreedySearch(max_length=6)
    found = [
        [(x.text, x.token) for x in translator.stream("to be", prefix="the")]
        for translator in pair(
            models, usual, own, search=search, replace_unknown=replace
        )
    ]
    assert found[0] == found[1] and len(found[0]) > 1


@pytest.mark.full
def test_pairs_and_training_are_the_same(models, usual, own):
    batches = [
        list(keras_attn.pairs(LINES, LINES, x, x, shuffle=False, buckets=1))
        for x in (usual, own)
    ]
    losses = []
    for made, text, ((inputs, target),) in zip(
        models, (usual, own), batches, strict=True
    ):
        pad = text.special.pad
        assert (inputs[1][:, 0] == text.special.start[0]).numpy().all()
        assert (target == text.special.end).numpy().sum() == len(LINES)
        loss = keras_attn.SequenceCrossentropy(padding_id=pad)
        losses.append(float(loss(target, made(inputs))))
        # Other logits at padding change nothing.
        noise = 9.0 * tf.cast(target == pad, tf.float32)
        logits = made(inputs) + noise[..., None] * np.arange(text.size)
        np.testing.assert_allclose(loss(target, logits), losses[-1], rtol=1e-5)
        assert keras_attn.check(made, [(inputs, target)], padding_id=pad) == []
    np.testing.assert_allclose(*losses, rtol=1e-5)


@pytest.mark.full
def test_draws_are_padded_with_the_padding(own, content):
    text = own.sampled(alpha=0.5)
    ((inputs, target),) = keras_attn.pairs(LINES, LINES, text, text, buckets=1)
    lengths = (target != 2).numpy().sum(1)
    for row, length in zip(target.numpy(), lengths, strict=True):
        assert row[length - 1] == 0 and (row[length:] == 2).all()
    assert (inputs[0] == 2).numpy().any()


@pytest.mark.full
def test_all_is_saved(translators, own, tmp_path):
    own.save(tmp_path / "text")
    again = Text.load(tmp_path / "text")
    assert again.special == OWN and again.tokens == own.tokens
    translators[1].save(tmp_path / "translator")
    loaded = keras_attn.Translator.load(tmp_path / "translator")
    assert loaded(SOURCES).text == translators[1](SOURCES).text


@pytest.fixture(scope="module")
def exports(translators, tmp_path_factory):
    return [
        tf.saved_model.load(
            str(x.export(tmp_path_factory.mktemp("export"), signatures="all"))
        ).signatures
        for x in translators
    ]


@pytest.mark.full
def test_exports_answer_the_same(exports, translators):
    text = tf.constant(SOURCES)
    for name in ("serving_default", "nbest", "align"):
        one, other = (x[name](text=text) for x in exports)
        for key, value in one.items():
            if value.dtype == tf.string:
                assert (value == other[key]).numpy().all(), (name, key)
            else:
                np.testing.assert_allclose(value, other[key], atol=1e-5)
    found = exports[1]["ids"](
        ids=translators[1].source_text.source_ids(text),
        lengths=tf.constant([9] * 5) * 0
        + translators[1].source_text.source_ids(text).shape[1],
    )
    # Lengths beyond the end token count padding, which the mask hides.
    texts = translators[1].target_text.strings(found["ids"][:, 0])
    assert [x.decode() for x in texts.numpy()] == translators[1](SOURCES).text
    target = tf.constant(LINES + ["", "be"])
    one, other = (x["score"](text=text, target=target) for x in exports)
    np.testing.assert_allclose(one["score"], other["score"], rtol=1e-5)
    prefix = tf.constant(["to", "", "€", "the", "be"])
    asked = [
        {
            spec.name: tf.fill([5], tf.cast(-1, spec.dtype))
            for spec in x["options"].structured_input_signature[1].values()
            if spec.dtype != tf.string
        }
        for x in exports
    ]
    one, other = (
        x["options"](text=text, prefix=prefix, **more)
        for x, more in zip(exports, asked, strict=True)
    )
    assert (one["text"] == other["text"]).numpy().all()
    assert (one["error"] == other["error"]).numpy().all()
    assert other["error"][2] != b""


def two_starts(content):
    """BART's way: the end token first, and tokens before the source."""
    special = SpecialTokens(
        pad=2, start=(0, 3), end=0, unknown=1, source_start=(3,)
    )
    return Text(split=keras_attn.SentencePiece(content, special=special))


def greedy(made, text, line, longest):
    """Decodes by running the whole model on ever longer targets."""
    source = text.source_ids([line])
    ids, logp = [0, 3], 0.0
    for _ in range(longest):
        logits = made([source, tf.constant([ids])])[0, -1]
        scores = np.array(tf.nn.log_softmax(logits))
        allowed = scores.copy()
        allowed[[2, 3]] = -np.inf
        ids.append(int(np.argmax(allowed)))
        logp += scores[ids[-1]]
        if ids[-1] == 0:
            break
    return ids[2:], logp


@pytest.mark.full
@pytest.mark.filterwarnings("ignore:The source is empty")
def test_several_start_tokens_are_read_before_the_search(content, tmp_path):
    text = two_starts(content)
    assert text.source_ids(["to"]).numpy()[0, 0] == 3
    made = model(text.size, 2, seed=8)
    search = keras_attn.GreedySearch(max_length=7)
    translator = keras_attn.Translator(made, text, text, search)
    found = translator(SOURCES)
    assert len({*found.text}) > 2
    for line, one in zip(SOURCES, found, strict=True):
        ids, logp = greedy(made, text, line, 7)
        assert one.tokens == [text.tokens[i] for i in ids]
        np.testing.assert_allclose(one.score, logp, rtol=1e-4)
        assert one.source_tokens[0] == "<s>"
        assert one.alignment.shape == (len(ids), len(one.source_tokens))
        streamed = "".join(x.text for x in translator.stream(line))
        assert streamed == one.text
    scored = translator.score(SOURCES, list(found))
    np.testing.assert_allclose(scored.scores, found.scores, rtol=1e-4)
    signatures = tf.saved_model.load(
        str(translator.export(tmp_path, signatures="all"))
    ).signatures
    answer = signatures["align"](text=tf.constant(SOURCES))
    texts = [x.decode() for x in answer["text"].numpy()]
    assert texts == found.text
    assert steps(signatures, translator) == found[0].tokens


@pytest.mark.full
@pytest.mark.filterwarnings("ignore:The source is empty")
def test_a_client_streams_whatever_id_the_end_token_has(tmp_path):
    pieces = ["[END]", "[PAD]", "to", "[GO]", "[UNK]", "be", "no", "##t"]
    special = SpecialTokens(pad=1, start=(3,), end=0, unknown=4)
    text = Text(split=keras_attn.WordPiece(pieces, special))
    search = keras_attn.GreedySearch(max_length=7)
    made = model(text.size, 1, seed=2)
    translator = keras_attn.Translator(made, text, text, search)
    translator.export(tmp_path / "own", signatures=["step"])
    with (
        Server(tmp_path / "own", "own", port=0) as server,
        Client(server.address, "own") as client,
    ):
        written = []
        for line in SOURCES:
            tokens = list(client.stream(line))
            (expected,) = translator([line])
            assert "".join(x.text for x in tokens) == expected.text
            written.append([x.id for x in tokens])
            assert [text.tokens[i] for i in written[-1]] == expected.tokens
    assert any(2 in ids[:-1] and ids[-1] == 0 for ids in written), written


def steps(signatures, translator):
    """Decodes the first source with the signatures of a client's search."""
    encoded = signatures["encode"](text=tf.constant(SOURCES[:1]))
    wanted = signatures["step"].structured_input_signature[1]
    given = {k: v for k, v in encoded.items() if k in wanted}
    assert encoded["end"].numpy().tolist() == [0]
    found = []
    for _ in range(7):
        answer = signatures["step"](**given)
        token = int(tf.argmax(answer["log_probabilities"][0, 0]))
        found.append(translator.target_text.tokens[token])
        if token == 0:
            break
        given |= {k: v for k, v in answer.items() if k in wanted}
        given["tokens"] = tf.constant([[token]])
    return found


@pytest.mark.full
def test_padding_may_be_the_start_token():
    pieces = ["[PAD]", "[UNK]", "[END]", "to", "be", "no", "##t", ","]
    special = SpecialTokens(pad=0, start=(0,), end=2, unknown=1)
    text = Text(split=keras_attn.WordPiece(pieces, special))
    assert text.tokens == pieces and text.size == 8
    assert text.ids(["to be, not", "x to"]).numpy().tolist() == [
        [3, 4, 7, 5, 6, 2],
        [1, 3, 2, 0, 0, 0],
    ]
    assert text.strings([[3, 4, 7, 5, 6, 2, 0]]).numpy() == [b"to be , not"]
    made = model(8, 0, end=2, seed=5)
    translator = keras_attn.Translator(
        made, text, text, keras_attn.GreedySearch(max_length=5)
    )
    assert len(translator(["to be", "not"])) == 2
    source = text.ids(["to be", "not"])
    data = keras_attn.pairs(["to be"], ["not"], text, text)
    ((_, target_in), target_out) = next(iter(data))
    assert target_in.numpy().tolist() == [[0, 5, 6]]
    assert target_out.numpy().tolist() == [[5, 6, 2]]
    assert source.shape == (2, 3)


class Letters(keras_attn.Splitter):
    """Letters with ids of their own, and none that is unknown."""

    special = SpecialTokens(pad=1, start=(2,), end=0, unknown=-1)

    def __init__(self):
        super().__init__()
        self.tokens = ["[END]", "[PAD]", "[GO]", *"abcd"]

    def ids(self, strings):
        kept = tf.strings.regex_replace(strings, "[^abcd]", "")
        pieces = tf.strings.bytes_split(kept)
        numbers = tf.io.decode_raw(pieces.flat_values, tf.uint8)
        numbers = tf.cast(tf.reshape(numbers, [-1]), tf.int32) - ord("a") + 3
        return pieces.with_flat_values(numbers)

    def strings(self, ids):
        letters = tf.gather(tf.constant(self.tokens), ids.flat_values)
        return tf.strings.reduce_join(ids.with_flat_values(letters), axis=-1)

    keeps_text = False


@pytest.mark.full
def test_a_vocabulary_without_an_unknown_token():
    text = Text(split=Letters())
    assert text.strings([[3, 4, 99, 0, 1]]).numpy() == [b"ab"]
    assert text.token_ids(["a", "x", "[END]"]).numpy().tolist() == [3, -1, -1]
    made = model(text.size, 1, seed=4)
    search = keras_attn.GreedySearch(max_length=5)
    translator = keras_attn.Translator(made, text, text, search)
    found = translator(["abc", "dd", "xyz"])
    assert found.unknown == [0, 0, 0]
    scored = translator.score(["abc", "dd", "xyz"], list(found))
    np.testing.assert_allclose(scored.scores, found.scores, rtol=1e-4)
    with pytest.raises(ValueError, match="needs a target text with an unknown"):
        keras_attn.Translator(made, text, text, search, replace_unknown=True)


@pytest.mark.parametrize(
    "wrong",
    [
        {"pad": -1},
        {"start": ()},
        {"start": (1.5,)},
        {"pad": 2},
        {"unknown": 0},
        {"unknown": -2},
        {"end": True},
        {"source_start": (-1,)},
    ],
    ids=str,
)
def test_wrong_special_tokens_are_refused(wrong):
    with pytest.raises(ValueError, match="Received"):
        SpecialTokens(**wrong)


def test_special_tokens_must_be_in_the_vocabulary(content):
    beyond = SpecialTokens(pad=1000, start=(3,), end=0, unknown=1)
    with pytest.raises(ValueError, match="highest id is 1000"):
        Text(split=keras_attn.SentencePiece(content, special=beyond))
    with pytest.raises(ValueError, match="must be a `SpecialTokens`"):
        keras_attn.SentencePiece(content, special=7)


def test_more_logits_than_tokens_are_refused_with_a_remedy(own):
    with pytest.raises(ValueError, match=r"logits\[\.\.\., :"):
        keras_attn.Translator(model(own.size + 9, 2), own, own)
