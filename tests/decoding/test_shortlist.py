"""Shortlists, against the search over the whole vocabulary."""

import keras
import keras_hub
import numpy as np
import pytest
import tensorflow as tf
from support import toys

import keras_attn
from keras_attn import Shortlist
from keras_attn import Text
from keras_attn import Translator

pytestmark = pytest.mark.full

WORDS = [f"w{i:03}" for i in range(150)]
SOURCE = toys.SOURCE
TARGET = Text(WORDS, split="whitespace")
SEARCHES = {
    "greedy": keras_attn.GreedySearch(max_length=7),
    "beam": keras_attn.BeamSearch(4, num_hypotheses=3, max_length=7),
    "rules": keras_attn.BeamSearch(
        4, max_length=7, min_length=3, no_repeat_ngram=2, length_penalty=0.6
    ),
    "groups": keras_attn.BeamSearch(
        4, groups=2, diversity=0.5, max_length=6, num_hypotheses=2
    ),
    "penalty": keras_attn.GreedySearch(max_length=6, repetition_penalty=1.5),
    "sampling": keras_attn.Sampling(max_length=6, num_hypotheses=3),
    "top": keras_attn.Sampling(top_k=5, top_p=0.9, max_length=6),
}


def made(seed=3, size=TARGET.size, weights=False, mask=True):
    """Returns a model of logits, or with the same weights of alignments."""
    source = keras.Input((None,), dtype="int32", name="source")
    target = keras.Input((None,), dtype="int32", name="target")
    memory = keras.layers.GRU(8, return_sequences=True)(
        keras.layers.Embedding(SOURCE.size, 6, mask_zero=True)(source)
    )
    hidden, attended = keras_attn.AttentionDecoder(
        keras.layers.GRUCell(8), keras_attn.BahdanauAttention(5)
    )(
        keras.layers.Embedding(size, 6, mask_zero=mask)(target),
        memory,
        return_attention_scores=True,
    )
    model = keras.Model([source, target], keras.layers.Dense(size)(hidden))
    toys.speak_up(model, seed)
    kernel, bias = model.layers[-1].get_weights()
    bias[2] += 4.0  # so that texts end
    model.layers[-1].set_weights([kernel, bias])
    return keras.Model([source, target], attended) if weights else model


@pytest.fixture(scope="module")
def model():
    return made()


@pytest.fixture(scope="module")
def short():
    random = np.random.default_rng(5)
    table = random.integers(4, TARGET.size, (SOURCE.size, 6))
    table[5, 2:] = -1
    return Shortlist(table, always=[7, 9])


ALL = Shortlist(np.full([SOURCE.size, 1], -1), always=np.arange(4, TARGET.size))


def same(found, expected):
    for one, other in zip(found, expected, strict=True):
        assert one.tokens == other.tokens and one.text == other.text
        np.testing.assert_allclose(one.score, other.score, atol=2e-6, rtol=1e-6)
        np.testing.assert_allclose(one.alignment, other.alignment, atol=1e-6)
        same(one.alternatives, other.alternatives)


@pytest.mark.sample_cases(1)
@pytest.mark.parametrize("name", SEARCHES)
def test_a_list_of_the_whole_vocabulary_changes_nothing(model, name):
    search = SEARCHES[name]
    seed = {"seed": 4} if search.draws else {}
    plain = Translator(model, SOURCE, TARGET, search)
    listed = Translator(model, SOURCE, TARGET, search, shortlist=ALL)
    same(listed(toys.LINES, **seed), plain(toys.LINES, **seed))


def masked(model, short, line, forbidden=(), prefix=()):
    """A model whose logits outside of a line's list are impossible."""
    allowed = np.zeros(TARGET.size, bool)
    allowed[[0, 1, 2, 3, *short.always, *forbidden, *prefix]] = True
    ids = SOURCE.ids([line]).numpy()[0]
    listed = short.table[ids]
    allowed[listed[listed >= 0]] = True
    logits = model.outputs[0] + np.where(allowed, 0, -2e9).astype("float32")
    return keras.Model(model.inputs, logits), allowed


@pytest.mark.sample_cases(1)
@pytest.mark.parametrize("name", ["greedy", "beam", "rules", "groups"])
def test_each_row_has_its_own_list_in_any_batch(model, short, name):
    search = SEARCHES[name]
    forbidden = ["w003", "<unk>"]
    listed = Translator(
        model, SOURCE, TARGET, search, shortlist=short, forbidden=forbidden
    )
    found = listed(toys.LINES)
    few = 2 if name == "greedy" else 1
    for line, one in list(zip(toys.LINES, found, strict=True))[::few]:
        alone, allowed = masked(model, short, line, [7])
        expected = Translator(
            alone, SOURCE, TARGET, search, forbidden=forbidden
        )
        same([one], expected([line]))
        assert all(allowed[TARGET.tokens.index(x)] for x in one.tokens)
    assert len({*found.text}) > 3


@pytest.mark.full
def test_prefixes_options_and_streams(model, short):
    search = SEARCHES["beam"]
    listed = Translator(model, SOURCE, TARGET, search, shortlist=short)
    prefixes = ["w149 w011", "", None, "w020"]
    lines, options = toys.LINES[:4], {"num_beams": [1, 2, 3, 4]}
    found = listed(lines, prefixes=prefixes, options=options)
    for i, one in enumerate(found):
        assert one.text.startswith(prefixes[i] or "")
        given = TARGET.ids([prefixes[i] or ""], end=False).numpy()[0]
        alone, _ = masked(model, short, lines[i], prefix=given)
        expected = Translator(alone, SOURCE, TARGET, search)(
            [lines[i]],
            prefixes=prefixes[i : i + 1],
            options={"num_beams": i + 1},
        )
        same([one], expected)
    greedy = Translator(
        model, SOURCE, TARGET, SEARCHES["greedy"], shortlist=short
    )
    for line in ("dead", "abc"):
        called = greedy([line], prefixes=["w020"])[0]
        streamed = list(greedy.stream(line, prefix="w020"))
        assert "".join(x.text for x in streamed) == called.text
        total = sum(x.log_probability for x in streamed)
        np.testing.assert_allclose(total, called.score, rtol=1e-4)


@pytest.mark.full
def test_an_ensemble_has_it_for_each_model(model, short):
    models = [model, made(seed=4)]
    plain = Translator(models, SOURCE, TARGET, SEARCHES["beam"])
    every = Translator(models, SOURCE, TARGET, SEARCHES["beam"], shortlist=ALL)
    same(every(toys.LINES[:4]), plain(toys.LINES[:4]))
    listed = Translator(
        models, SOURCE, TARGET, SEARCHES["beam"], shortlist=short
    )
    together = listed(toys.LINES)
    for line, one in zip(toys.LINES, together, strict=True):
        same([one], listed([line]))


@pytest.mark.full
@pytest.mark.filterwarnings("ignore:The source is empty")
def test_an_ensemble_s_penalties_are_those_of_each_row(model, short):
    search = keras_attn.GreedySearch(max_length=7, repetition_penalty=1.5)
    models = [model, made(seed=4)]
    listed = Translator(models, SOURCE, TARGET, search, shortlist=short)
    together = listed(toys.LINES)
    same(together[:1], listed(toys.LINES[:1]))
    for line, one in list(zip(toys.LINES, together, strict=True))[:3]:
        alone = [masked(x, short, line)[0] for x in models]
        expected = Translator(alone, SOURCE, TARGET, search)([line])
        same([one], expected)
        told = listed.stream(line)
        assert "".join(x.text for x in told) == one.text


def test_draws_stream_where_special_tokens_are_the_last_ones(short):
    pieces = [f"w{i}" for i in range(40)]
    special = keras_attn.SpecialTokens(40, start=(41,), end=42, unknown=43)
    named = ["[PAD]", "[CLS]", "[END]", "[UNK]"]
    text = Text(split=keras_attn.WordPiece([*pieces, *named], special))
    search = keras_attn.Sampling(max_length=5)
    every = Shortlist(np.full([SOURCE.size, 1], -1), always=np.arange(0, 40, 2))
    translator = Translator(
        made(size=text.size, mask=False), SOURCE, text, search, shortlist=every
    )
    for seed, line in enumerate(filter(None, toys.LINES[:6])):
        called = translator([line], seed=seed)[0].text
        told = "".join(x.text for x in translator.stream(line, seed=seed))
        assert called == told


def test_a_list_that_is_too_short_is_named(model):
    few = Shortlist(np.full([SOURCE.size, 1], -1))
    search = keras_attn.GreedySearch(max_length=7, min_length=3)
    translator = Translator(
        model, SOURCE, TARGET, search, shortlist=few, forbidden=["<unk>"]
    )
    with pytest.raises(ValueError, match="shortlist with fewer tokens than"):
        translator(["abc"])


def test_alignments_need_attention():
    model = made()
    source, target = model.inputs
    state = keras.layers.GRU(8)(
        keras.layers.Embedding(SOURCE.size, 6, mask_zero=True)(source)
    )
    hidden = keras.layers.GRU(8, return_sequences=True)(
        keras.layers.Embedding(TARGET.size, 6, mask_zero=True)(target),
        initial_state=state,
    )
    plain = keras.Model(
        [source, target], keras.layers.Dense(TARGET.size)(hidden)
    )
    translator = Translator(plain, SOURCE, TARGET)
    with pytest.raises(ValueError, match="a model that attends to its source"):
        Shortlist.from_alignments(translator, ["abc"], ["w001"])
    with pytest.raises(ValueError, match="Received: no pair"):
        Shortlist.from_alignments(Translator(model, SOURCE, TARGET), [], [])


@pytest.mark.full
def test_logits_that_come_from_elsewhere_are_cut(short):
    model = made()
    scaled = keras.Model(model.inputs, model.outputs[0] * 1.5)
    plain = Translator(scaled, SOURCE, TARGET, SEARCHES["beam"])
    every = Translator(scaled, SOURCE, TARGET, SEARCHES["beam"], shortlist=ALL)
    same(every(toys.LINES[:4]), plain(toys.LINES[:4]))


def tied(model, layer):
    """Returns a model whose logits are those of an embedding."""
    hidden = model.layers[-1].input
    layer.build()
    random = np.random.default_rng(8)
    layer.set_weights(
        [random.normal(size=x.shape) for x in layer.get_weights()]
    )
    return keras.Model(model.inputs, layer(hidden, reverse=True))


def biased(model):
    """Returns a model whose logits have a bias behind them."""
    bias = keras_attn.LogitBias(keras.initializers.RandomNormal(seed=2))
    return keras.Model(model.inputs, bias(model.outputs[0]))


TIED = {
    "tied": keras.layers.ReversibleEmbedding,
    "ours": keras_attn.TiedEmbedding,
    "capped": lambda *given: keras.layers.ReversibleEmbedding(
        *given, tie_weights=False, logit_soft_cap=3.0
    ),
    "biased": keras.layers.ReversibleEmbedding,
    "KerasHub's": lambda *given: keras_hub.layers.ReversibleEmbedding(
        *given, reverse_dtype="float32"
    ),
}


@pytest.mark.filterwarnings("ignore:.*does not support masking")
@pytest.mark.full
@pytest.mark.parametrize("name", TIED)
def test_tied_embeddings_are_narrowed_too(short, name):
    model = tied(made(), TIED[name](TARGET.size, 8))
    model = biased(model) if name == "biased" else model
    search = SEARCHES["greedy"]
    listed = Translator(model, SOURCE, TARGET, search, shortlist=short)
    require_narrow(listed)
    for line, one in zip(toys.LINES, listed(toys.LINES), strict=True):
        alone, _ = masked(model, short, line)
        same([one], Translator(alone, SOURCE, TARGET, search)([line]))
        if name != "tied":
            break


@pytest.mark.full
def test_only_the_columns_of_the_list_are_multiplied(model, short):
    listed = Translator(
        model, SOURCE, TARGET, SEARCHES["beam"], shortlist=short
    )
    function = require_narrow(listed)
    ids = SOURCE.ids(["abc", "d"])
    found = function(ids)
    fixed = tf.function(lambda: listed.decode_ids(tf.constant(ids)))()
    assert (found.tokens == fixed.tokens).numpy().all()


def require_narrow(listed):
    """Requires that no product is as wide as the vocabulary."""
    function = tf.function(listed.decode_ids, autograph=False)
    graph = function.get_concrete_function(
        tf.TensorSpec([None, None], tf.int32)
    ).graph
    widths = {
        op.outputs[0].shape[-1]
        for inner in [graph, *_inner(graph)]
        for op in inner.get_operations()
        if op.type in ("MatMul", "BatchMatMulV2")
    }
    assert None in widths and TARGET.size not in widths
    return function


def _inner(graph):
    for name in graph._functions:
        function = graph._get_function(name)
        if function is not None and function.graph is not None:
            yield function.graph


@pytest.mark.full
def test_it_is_saved_loaded_and_exported(model, short, tmp_path):
    listed = Translator(
        model, SOURCE, TARGET, SEARCHES["beam"], shortlist=short
    )
    expected = listed(toys.LINES)
    listed.save(tmp_path / "saved")
    again = Translator.load(tmp_path / "saved")
    assert (again.shortlist.table == short.table).all()
    assert (again.shortlist.always == short.always).all()
    same(again(toys.LINES), expected)
    Translator(model, SOURCE, TARGET).save(tmp_path / "saved")
    assert Translator.load(tmp_path / "saved").shortlist is None
    from support.lazily import ask

    path = listed.export(tmp_path / "export")
    lines = np.array([x.encode() for x in toys.LINES], object)
    (answer,) = ask([(str(path), "serving_default", {"text": lines}, "c")])
    assert [x.decode() for x in answer["text"]] == expected.text
    np.testing.assert_allclose(answer["score"], expected.scores, rtol=1e-4)
    with pytest.raises(ValueError, match="XLA cannot compile"):
        listed.export(tmp_path / "export", jit_compile=True)


def test_alignments_of_given_pairs_are_the_model_s(model):
    translator = Translator(model, SOURCE, TARGET, SEARCHES["greedy"])
    targets = ["w001 w002", "w100", "", "w003 w004 w005", "x", "", "w1", "w009"]
    found = translator.alignments_of(toys.LINES, targets, batch_size=3)
    attended = made(weights=True)
    seen = set()
    for source, target, weights in found:
        assert source[-1] == 2 and target[-1] == 2
        read = np.concatenate([[1], target[:-1]])[None]
        expected = attended([tf.constant(source[None]), tf.constant(read)])
        np.testing.assert_allclose(weights, expected[0], atol=1e-5)
        seen.add((tuple(source), tuple(target)))
    sources = [tuple(SOURCE.ids([x]).numpy()[0]) for x in toys.LINES]
    wanted = [tuple(TARGET.ids([x]).numpy()[0]) for x in targets]
    assert seen == {*zip(sources, wanted, strict=True)}


@pytest.mark.full
def test_a_list_from_alignments_has_the_attended_tokens(model):
    translator = Translator(model, SOURCE, TARGET, SEARCHES["greedy"])
    targets = ["w001 w002", "w100", "", "w003 w001", "w001", "", "w1", "w009"]
    short = Shortlist.from_alignments(
        translator, toys.LINES, targets, best=2, always=3
    )
    sums, counts = {}, {}
    for source, target, weights in translator.alignments_of(
        toys.LINES, targets
    ):
        for j, y in enumerate(target):
            counts[y] = counts.get(y, 0) + 1
            for i, x in enumerate(source):
                row = sums.setdefault(x, {})
                row[y] = row.get(y, 0) + float(weights[j, i])
    for x, row in sums.items():
        if x == 2:
            continue
        best = sorted(row, key=lambda y: (-row[y], y))[:2]
        assert [y for y in short.table[x] if y >= 0] == best
    frequent = sorted(counts, key=lambda y: (-counts[y], y))[:3]
    assert short.always.tolist() == sorted(frequent)
    assert (short.table[0] == -1).all() and (short.table[2] == -1).all()
    listed = Translator(
        model, SOURCE, TARGET, SEARCHES["greedy"], shortlist=short
    )
    kept = short.tokens_of(SOURCE, TARGET, "dead")
    assert {*listed(["dead"])[0].tokens} <= {*kept}


@pytest.mark.parametrize(
    "wrong, message",
    [
        ({"shortlist": "w001"}, "must be a `Shortlist`"),
        ({"shortlist": Shortlist(np.zeros([3, 1]))}, "a row for each id"),
        (
            {"shortlist": Shortlist(np.full([SOURCE.size, 1], 999))},
            "a row for each id",
        ),
        ({"shortlist": ALL, "jit_compile": True}, "without XLA"),
        ({"shortlist": ALL, "source_text": None}, "must be text"),
    ],
    ids=["a string", "rows", "ids", "XLA", "features"],
)
def test_wrong_shortlists_are_refused(model, wrong, message):
    given = {"source_text": SOURCE, "target_text": TARGET} | wrong
    with pytest.raises(ValueError, match=message):
        Translator(model, **given)


@pytest.mark.parametrize(
    "make",
    [
        lambda: Shortlist([1, 2]),
        lambda: Shortlist([[-2]]),
        lambda: Shortlist([[1]], always=[-1]),
        lambda: Shortlist([[1.7]]),
        lambda: Shortlist([[1]], always=[2.5]),
        lambda: Shortlist.from_tokens(SOURCE, TARGET, {"z": ["w001"]}),
        lambda: Shortlist.from_tokens(SOURCE, TARGET, {"a": ["z"]}),
        lambda: Shortlist.from_tokens(SOURCE, TARGET, {}, always=["z"]),
    ],
    ids=[
        "one axis",
        "below -1",
        "always",
        "float",
        "half",
        "source",
        "target",
        "frequent",
    ],
)
def test_wrong_tables_are_refused(make):
    with pytest.raises(ValueError, match="Received"):
        make()
