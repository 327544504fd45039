"""Mistakes of a new user: errors say what is needed and what would work.

The first tests compare whole messages, the table below only the words that
matter.
"""

import keras
import numpy as np
import pytest
import tensorflow as tf
from keras import layers
from keras_attn_serving import Client
from support import toys as toy_models

import keras_attn
from keras_attn import AttentionDecoder
from keras_attn import BahdanauAttention
from keras_attn import Incremental
from keras_attn import SequenceCrossentropy
from keras_attn import Text
from keras_attn import Translator

SOURCE, TARGET, LINES = toy_models.SOURCE, toy_models.TARGET, toy_models.LINES


def ones(*shape):
    return np.ones(shape, "float32")


def mask(*shape):
    return np.ones(shape, bool)


def ids(*shape):
    return np.ones(shape, "int32")


def attention():
    return BahdanauAttention(4)


def decoder(**options):
    return AttentionDecoder(layers.GRUCell(4), attention(), **options)


def message_of(call, kind=ValueError):
    with pytest.raises(kind) as error:
        call()
    return str(error.value)


def test_query_and_value_in_one_list():
    found = message_of(lambda: attention()([ones(2, 3, 4), ones(2, 5, 4)]))
    assert found == (
        "`BahdanauAttention` takes query and value as separate arguments, and "
        "not in one list like Keras's own attentions. Received: a list of 2. "
        "Call `attention(query, value, value_mask=mask)`."
    )


def test_masks_in_one_list():
    query, value = ones(2, 3, 4), ones(2, 5, 4)
    masks = [None, mask(2, 5)]
    found = message_of(lambda: attention()(query, value, mask=masks))
    assert found == (
        "`BahdanauAttention` takes each mask by a name of its own: "
        "`query_mask`, `value_mask`, `key_mask`, boolean tensors (batch, "
        "length). Received: mask=a list of 2. Pass it by one of these names, "
        "or leave it to Keras, which passes the masks of "
        "`Embedding(mask_zero=True)` by itself."
    )


def test_both_in_a_functional_model_and_of_the_decoder():
    query, value = keras.Input((None, 4)), keras.Input((None, 4))
    for layer in (attention(), decoder()):
        assert "separate arguments" in message_of(
            lambda layer=layer: layer([query, value])
        )
        assert "a name of its own" in message_of(
            lambda layer=layer: layer(query, value, mask=[None, None])
        )


def test_a_subclass_may_take_arguments_of_its_own():
    class Louder(keras_attn.Attention):
        def call(self, query, value, key=None, volume=1.0, **kwargs):
            return volume * super().call(query, value, key, **kwargs)

    layer = Louder(keras_attn.DotScore())
    quiet = layer(QUERY, VALUE, value_mask=mask(2, 5))
    loud = layer(QUERY, VALUE, volume=2.0, value_mask=mask(2, 5))
    np.testing.assert_allclose(loud, 2 * quiet)


def test_a_list_as_source_text(toys):
    model = toys["greedy"].model
    found = message_of(lambda: Translator(model, ["a", "b"], TARGET))
    assert found == (
        "`source_text` must be a `Text`, None for arrays, or a dictionary of "
        "`Text`s by the names of inputs. Received: source_text=['a', 'b'] (of "
        "type list). `Text.from_lines(lines, split=...)` makes one from "
        "lines, `Text(tokens, split=...)` from a list of tokens; the ids must "
        "be those that the model was trained on."
    )


@pytest.mark.parametrize(
    "name, given",
    {
        "memory": {"memory": ones(3, 5, 4)},
        "initial_state": {"initial_state": ones(3, 4)},
        "condition": {"condition": ones(3, 6)},
    }.items(),
)
def test_batches_that_differ_in_the_decoder(name, given):
    options = {"query": ("state", "condition")} if name == "condition" else {}
    given = {"memory": ones(2, 5, 4)} | given
    found = message_of(lambda: decoder(**options)(ones(2, 3, 4), **given))
    shapes = {"inputs": (2, 3, 4)} | {k: v.shape for k, v in given.items()}
    assert found == (
        "Axis 0 is the batch, a row for each source, so it must have the same "
        "size in all tensors. Received: "
        + ", ".join(f"{name} {shape}" for name, shape in shapes.items())
        + ". To make n rows of each row, use `keras.ops.repeat(x, n, axis=0)`."
    )


COMPARES = (
    "SequenceCrossentropy compares ids of shape (batch, target) with logits "
    "of shape (batch, target, vocabulary)."
)
ADVICE = (
    " Pass as targets the ids of the decoder input moved by one token: of the "
    "same length, and not one-hot."
)


def test_targets_longer_than_the_input():
    loss = SequenceCrossentropy()
    found = message_of(lambda: loss(ids(2, 6), ones(2, 4, 9)))
    assert found == (
        f"{COMPARES} Received: y_true of shape (2, 6), y_pred of shape "
        f"(2, 4, 9).{ADVICE}"
    )


@pytest.mark.full
@pytest.mark.sample_cases(1)
@pytest.mark.parametrize("longer", [2, -1])
def test_targets_of_another_length_in_fit_where_no_length_is_known(longer):
    def rows():
        yield (ids(2, 3), ids(2, 4)), ids(2, 4 + longer)

    unknown = tf.TensorSpec((None, None), tf.int32)
    data = tf.data.Dataset.from_generator(
        rows, output_signature=((unknown, unknown), unknown)
    )
    model = toy_models.model(decoder(), toy_models.no_state)
    model.compile("adam", loss=SequenceCrossentropy(), jit_compile=False)
    found = message_of(
        lambda: model.fit(data, verbose=0), tf.errors.InvalidArgumentError
    )
    shapes = f"[2 {4 + longer}] [2 4 {TARGET.size}]"
    assert f"{COMPARES}{ADVICE} Received: shapes] {shapes}" in found


@pytest.mark.full
def test_tensors_of_tensorflow_where_arrays_do(toys):
    translator = toys["greedy"]
    lines = ["abc", "", "é"]
    texts = translator(lines).text
    assert translator(tf.constant(lines)).text == texts
    assert translator([tf.constant(x) for x in lines]).text == texts
    scores = translator.score(lines, ["AA"] * 3).scores
    found = translator.score(tf.constant(lines), tf.constant(["AA"] * 3))
    np.testing.assert_array_equal(found.scores, scores)
    begun = translator(lines, prefixes=["B"] * 3).text
    found = translator(lines, prefixes=tf.constant(["B"] * 3)).text
    assert found == begun
    streamed = [x.text for x in translator.stream(tf.constant("abc"))]
    assert "".join(streamed) == texts[0]


@pytest.mark.full
@pytest.mark.sample_cases(1)
@pytest.mark.sample_cases(1)
@pytest.mark.parametrize("name", ["spectra", "images"])
def test_features_as_tensors_of_tensorflow(name, toys):
    arrays = toy_models.sources(name)
    tensors = tf.nest.map_structure(tf.constant, arrays)
    assert toys[name](tensors).text == toys[name](arrays).text
    if name == "images":
        names = ("image", "style")
        by_name = dict(zip(names, tensors, strict=True))
        assert toys[name](by_name).text == toys[name](arrays).text
    else:
        (row,) = {"".join(toys[name](tensors[:1]).text)}
        found = toys[name]([tensors[0]]).text
        assert found == [row]


def test_a_decoder_in_which_nothing_remembers():
    source = keras.Input((None,), dtype="int32", name="source")
    target = keras.Input((None,), dtype="int32", name="target")
    read = layers.GlobalMaxPooling1D()(layers.Embedding(9, 4)(source))
    hidden = layers.Embedding(9, 4, name="embed")(target)
    hidden = layers.Dense(4, name="inner")(hidden)
    hidden = layers.Add(name="joined")([hidden, layers.RepeatVector(1)(read)])
    logits = layers.Dense(9, name="logits")(hidden)
    model = keras.Model([source, target], logits)
    assert message_of(lambda: Incremental(model)) == (
        "The model has no `AttentionDecoder`, recurrent layer or attention "
        "between its last input, 'target', and its output, so there is "
        "nothing to decode: no token depends on the tokens before it. "
        "Received: 'embed' (Embedding), 'inner' (Dense), 'joined' (Add), "
        "'logits' (Dense). Make the target's ids the last input, or name "
        "it, `Translator(..., target=...)`, and put a layer that remembers "
        "tokens behind it: an `AttentionDecoder`, a recurrent layer or "
        "self-attention with `use_causal_mask=True`. If one of these layers "
        "remembers tokens by itself, write a `keras_attn.Stepper` for it."
    )


def test_a_decoder_that_reads_no_source():
    source = keras.Input((None,), dtype="int32", name="source")
    target = keras.Input((None,), dtype="int32", name="target")
    hidden = layers.Embedding(9, 4, name="embed")(target)
    hidden = layers.GRU(4, return_sequences=True, name="gru")(hidden)
    model = keras.Model([source, target], layers.Dense(9, name="out")(hidden))
    assert message_of(lambda: Incremental(model)).endswith(
        "between target and output 'embed' (Embedding), 'gru' (GRU), 'out' "
        "(Dense). Connect the source by attention, or as the first state of a "
        "decoder."
    )


def test_a_model_without_attention_has_none_to_replace_unknown_words_by():
    source = keras.Input((None,), dtype="int32")
    target = keras.Input((None,), dtype="int32")
    embedded = layers.Embedding(SOURCE.size, 4, mask_zero=True)(source)
    state = layers.GRU(4)(embedded)
    embed = layers.Embedding(TARGET.size, 4, mask_zero=True, name="embed")
    hidden = AttentionDecoder(layers.GRUCell(4), name="decoder")(
        embed(target), initial_state=state
    )
    logits = layers.Dense(TARGET.size, name="logits")(hidden)
    model = keras.Model([source, target], logits)
    found = message_of(
        lambda: Translator(model, SOURCE, TARGET, replace_unknown=True)
    )
    assert (
        "Received: a model without attention to the source, whose output "
        "depends on "
        "'embed' (Embedding), 'decoder' (AttentionDecoder), 'logits' (Dense). "
        "`forbidden=['<unk>']`" in found
    )


QUERY, VALUE = ones(2, 3, 4), ones(2, 5, 4)

# name -> what a user does (with the fixture `at`), and the expected words.
MISTAKES = {
    # Layers
    "no value": (
        lambda at: attention()(QUERY),
        ["needs a query and a value", "no value", "attention(x, x"],
    ),
    "an argument of another library": (
        lambda at: attention()(QUERY, VALUE, attention_mask=mask(2, 5)),
        ["no call argument 'attention_mask'", "(2, 5)", "value_mask"],
    ),
    "the query's mask for the value": (
        lambda at: attention()(QUERY, VALUE, value_mask=mask(2, 3)),
        ["`value_mask`", "here (2, 5)", "of shape (2, 3)"],
    ),
    "a mask of pairs": (
        lambda at: attention()(QUERY, VALUE, value_mask=mask(2, 3, 5)),
        ["must have the shape (batch, length)", "(2, 3, 5)"],
    ),
    "the value's mask for the query": (
        lambda at: attention()(QUERY, VALUE, query_mask=mask(2, 5)),
        ["`query_mask`", "here (2, 3)", "of shape (2, 5)"],
    ),
    "keys longer than values": (
        lambda at: attention()(QUERY, VALUE, ones(2, 6, 4)),
        ["must have the same length", "(2, 5, 4)", "(2, 6, 4)"],
    ),
    "batches that differ": (
        lambda at: attention()(QUERY, ones(3, 5, 4)),
        ["Axis 0 is the batch", "query (2, 3, 4), value (3, 5, 4)"],
    ),
    "positions of ids": (
        lambda at: keras_attn.SinePositionEncoding()(ids(2, 3)),
        ["takes vectors (batch, length, dim)", "int32", "Embedding"],
    ),
    "positions of a matrix": (
        lambda at: keras_attn.PositionEmbedding(9)(ones(2, 3)),
        ["(batch, length, dim)", "(2, 3)"],
    ),
    "a weight that is no number": (
        lambda at: keras_attn.CoverageLoss("1"),
        ["`weight` of a `CoverageLoss`", "weight='1'"],
    ),
    "a layer in a residual cell": (
        lambda at: keras_attn.ResidualCell(layers.GRU(4)),
        ["wraps a Keras RNN cell", "GRU", "GRUCell(256)"],
    ),
    # The decoder
    "no memory": (
        lambda at: decoder()(QUERY),
        ["needs a `memory` for each", "Received: 0"],
    ),
    "no inputs": (
        lambda at: decoder()(memory=VALUE),
        ["needs the embedded target", "decoder(target, memory)"],
    ),
    "ids that are not embedded": (
        lambda at: decoder()(ids(2, 3), VALUE),
        ["`inputs` must have three axes", "(2, 3)"],
    ),
    "a mask of another length": (
        lambda at: decoder()(QUERY, VALUE, inputs_mask=mask(2, 4)),
        ["`inputs_mask`", "here (2, 3)", "(2, 4)"],
    ),
    "the memory's mask of another length": (
        lambda at: decoder()(QUERY, VALUE, memory_mask=mask(2, 4)),
        ["`memory_mask`", "here (2, 5)", "(2, 4)"],
    ),
    "all states of an encoder for its last": (
        lambda at: decoder()(QUERY, VALUE, initial_state=VALUE),
        ["`initial_state` must have one vector per row", "return_state=True"],
    ),
    "a condition with a time axis": (
        lambda at: decoder(query=("state", "condition"))(
            QUERY, VALUE, condition=ones(2, 1, 4)
        ),
        ["`condition` must have one vector per row", "(2, 1, 4)"],
    ),
    "a query of nothing": (
        lambda at: decoder(query=None),
        ["`query` must be a string or a tuple", "query=None"],
    ),
    # Loss and metrics
    "targets of another batch": (
        lambda at: SequenceCrossentropy()(ids(3, 4), ones(2, 4, 9)),
        ["(3, 4)", "(2, 4, 9)", "of the same length"],
    ),
    "a smoothing that is no number": (
        lambda at: SequenceCrossentropy("0.1"),
        ["`label_smoothing`", "label_smoothing='0.1'"],
    ),
    "a string for a list of hypotheses": (
        lambda at: keras_attn.metrics.error_rates("ab", [["a"], ["b"]]),
        ["`hypotheses` must be a list", "'ab'", "in a list of one"],
    ),
    "translations for their texts": (
        lambda at: keras_attn.metrics.error_rates(
            at["greedy"](["a"]), [["AA"]]
        ),
        ["hypotheses[0]=Translation(", "`result.text`"],
    ),
    "the distance of numbers": (
        lambda at: keras_attn.metrics.edit_distance(1, 2),
        ["`a` must be a sequence", "a=1"],
    ),
    # Text and pairs
    "a line that is None": (
        lambda at: Text.from_lines(["a", None], split="characters"),
        ["lines[1]=None", "the empty string"],
    ),
    "a count that is no number": (
        lambda at: Text.from_lines(["a"], "characters", min_count="2"),
        ["`min_count` must be an integer", "'2'"],
    ),
    "ids of one string": (
        lambda at: SOURCE.ids("abc"),
        ["a batch of strings", "'abc'", "a list of one"],
    ),
    "ids of ids": (
        lambda at: SOURCE.ids(ids(2, 3)),
        ["a batch of strings", "text.strings(ids)"],
    ),
    "ids of numbers": (
        lambda at: SOURCE.ids([1, 2]),
        ["strings[0]=1 (of type int)", "str(x)"],
    ),
    "strings of strings": (
        lambda at: SOURCE.strings(["a"]),
        ["`ids` must be integers", "string", "text.ids(strings)"],
    ),
    "pairs in another order": (
        lambda at: keras_attn.pairs(SOURCE, TARGET, ["a"], ["B"]),
        ["`source_text` must be a `Text`", "pairs(sources, targets, source_"],
    ),
    "pairs without a text": (
        lambda at: keras_attn.pairs(["a"], ["B"], None, TARGET),
        ["without a `Text` must be numbers", "Pass a `Text` of the lines"],
    ),
    "a pair without a line": (
        lambda at: keras_attn.pairs(["a", None], ["B", "K"], SOURCE, TARGET),
        ["sources[1]=None", "the empty string"],
    ),
    "batches of a string": (
        lambda at: keras_attn.pairs(
            ["a"], ["B"], SOURCE, TARGET, batch_size="64"
        ),
        ["must be integers", "batch_size='64'"],
    ),
    # The translator
    "no target text": (
        lambda at: Translator(at["greedy"].model, SOURCE, None),
        ["`target_text` must be a `Text`", "target_text=None"],
    ),
    "sources by name": (
        lambda at: at["greedy"]({"text": ["a"]}),
        ["a list of strings, without names", "{'text': ['a']}"],
    ),
    "no sources": (
        lambda at: at["greedy"](None),
        ["a list of strings", "None (of type NoneType)"],
    ),
    "a scalar tensor": (
        lambda at: at["greedy"](tf.constant("abc")),
        ["Received: the string b'abc'", "a list of one"],
    ),
    "lists in a list": (
        lambda at: at["greedy"](tf.constant([["abc"]])),
        ["takes a list of strings", "array([b'abc']"],
    ),
    "features that are ragged": (
        lambda at: at["spectra"](tf.ragged.constant([[[1.0] * 3]])),
        ["Pad rows of unequal length first", "RaggedTensor"],
    ),
    "a batch size that is a string": (
        lambda at: at["greedy"](["a"], batch_size="64"),
        ["`batch_size` must be an integer, at least 1", "'64'"],
    ),
    "a batch size that is no integer": (
        lambda at: at["greedy"](["a"], batch_size=2.5),
        ["`batch_size` must be an integer, at least 1", "2.5"],
    ),
    "targets that are a number": (
        lambda at: at["greedy"].score(["a"], 5),
        ["`targets` must be a list", "targets=5"],
    ),
    "prefixes that are a number": (
        lambda at: at["greedy"](["a"], prefixes=5),
        ["`prefixes` must be a list", "prefixes=5"],
    ),
    "options without names": (
        lambda at: at["greedy"](["a"], options=["max_length"]),
        ["`options` must be a dictionary", "options=['max_length']"],
    ),
    "a seed between integers": (
        lambda at: at["sampling"](["a"], seed=1.5),
        ["`seed` must be an integer", "seed=1.5"],
    ),
    "a stream of a list": (
        lambda at: at["greedy"].stream(["abc"]),
        ["takes a list of strings", "['abc']"],
    ),
    "no directory": (
        lambda at: at["greedy"].save(None),
        ["`directory` must be the path of a directory", "directory=None"],
    ),
    "an export to nowhere": (
        lambda at: at["greedy"].export(None),
        ["`directory` must be the path of a directory", "directory=None"],
    ),
    "a file for a directory": (
        lambda at: Translator.load(__file__),
        ["Received: the path of a file", "`Translator.save(directory)` wrote"],
    ),
    # The cut
    "an ensemble of models": (
        lambda at: keras_attn.incremental.Ensemble([at["greedy"].model]),
        ["at least one member", "[Incremental(model) for model"],
    ),
    "an ensemble of none": (
        lambda at: keras_attn.incremental.Ensemble([]),
        ["at least one member", "Received: None"],
    ),
    "a source too many": (
        lambda at: Incremental(at["greedy"].model).encode(ids(1, 2), ids(1, 2)),
        ["the model's inputs but the last, ['source']", "2 argument(s)"],
    ),
    "strings to encode": (
        lambda at: Incremental(at["greedy"].model).encode(["abc"]),
        ["`encode` takes arrays", "'source'", "text.ids(strings)"],
    ),
    "no hypotheses": (
        lambda at: at["cut"].start(at["encoded"], beams=0),
        ["`beams`", "at least 1", "beams=0"],
    ),
    "tokens without an axis of beams": (
        lambda at: at["cut"].step(ids(1), at["state"], at["encoded"]),
        ["(batch, beams)", "of shape (1,)", "tokens[:, None]"],
    ),
    "more tokens than beams": (
        lambda at: at["cut"].step(ids(1, 3), at["state"], at["encoded"]),
        ["here (1, 1)", "of shape (1, 3)"],
    ),
    "the state and the source exchanged": (
        lambda at: at["cut"].step(ids(1, 1), at["encoded"], at["state"]),
        ["step(tokens, state, encoded)", "state of type Encoded"],
    ),
    # Migration and the client
    "a checkpoint that is not there": (
        lambda at: keras_attn.load_tf_addons_weights(
            decoder(order="post"), "nowhere"
        ),
        ["path of a TensorFlow checkpoint", "'nowhere'", "cannot read ("],
    ),
    "an address of the web": (
        lambda at: Client("http://localhost:8500"),
        ["`host:port`", "without http://", "'http://localhost:8500'"],
    ),
    "a port for an address": (
        lambda at: Client(8500),
        ["`host:port`", "address=8500"],
    ),
}


@pytest.fixture(scope="module")
def at(toys):
    """The toys, and a cut of one with the arguments of a step."""

    class At(dict):
        def __missing__(self, name):
            return toys[name]

    cut = Incremental(toys["greedy"].model)
    encoded = cut.encode(SOURCE.ids(["ab"]))
    return At(cut=cut, encoded=encoded, state=cut.start(encoded))


@pytest.mark.sample_cases(25)
@pytest.mark.parametrize("name", MISTAKES)
def test_a_mistake_is_told_in_words_that_help(name, at):
    make, words = MISTAKES[name]
    found = message_of(lambda: make(at))
    assert not [x for x in words if x not in found], found
