"""Every mechanism and form of a decoder, in beam search, as TF Serving runs it.

A decoder may have several attentions, so one export tests several rows of the
table: each attention contributes to every score that the search compares.
"""

import numpy as np
import pytest
from keras import layers
from support import toys
from support.grouped import LINES
from support.grouped import embedded
from support.grouped import of_group
from support.grouped import translator
from support.lazily import Answers
from support.lazily import Lazily
from support.lazily import some
from support.mechanisms import MECHANISMS
from tensorflow.core.protobuf import saved_model_pb2

import keras_attn

AT_ONCE = 6  # attentions in a decoder
GROUPS = {
    f"{group[0].name} to {group[-1].name}": group
    for group in (
        MECHANISMS[i : i + AT_ONCE] for i in range(0, len(MECHANISMS), AT_ONCE)
    )
}
WIRINGS = [
    {"order": "pre"},
    {"order": "post"},
    {"order": "post", "input_feeding": False},
]


def of_all_forms():
    """Bottom attention, own past, every query, two memories, a bridge."""
    source, target, memory, embedding = embedded(memories=2)
    pooled = layers.GlobalAveragePooling1D()(memory[0])
    decoder = keras_attn.AttentionDecoder(
        [layers.GRUCell(4), keras_attn.ResidualCell(layers.LSTMCell(4))],
        [keras_attn.BahdanauAttention(3), keras_attn.LuongAttention("general")],
        query=("state", "input", "context", "condition"),
        attend="bottom",
        bridge="dense",
        self_attention=keras_attn.ScaledDotAttention(num_heads=2),
    )
    hidden = decoder(
        embedding,
        memory,
        initial_state=[pooled],
        condition=layers.Dense(2)(pooled),
    )
    return translator(source, target, hidden)


def without_attention():
    source, target, (memory,), embedding = embedded()
    decoder = keras_attn.AttentionDecoder(
        keras_attn.LayerNormLSTMCell(4), bridge="dense"
    )
    state = layers.GRU(4)(memory)
    return translator(source, target, decoder(embedding, initial_state=state))


def attends_in_the_encoder():
    """Additive attention to sources of any length, also in blocks."""
    source, target, (memory,), embedding = embedded()
    for block_size in (None, 1):
        attention = keras_attn.BahdanauAttention(3, block_size=block_size)
        memory = attention(memory, memory)
    decoder = keras_attn.AttentionDecoder(
        layers.GRUCell(4), keras_attn.LuongAttention("general")
    )
    return translator(source, target, decoder(embedding, memory))


def hard_alignments():
    """Alignments summed over; the decoder gives the logits itself."""
    source, target, (memory,), embedding = embedded()
    decoder = keras_attn.MarginalDecoder(
        layers.GRUCell(4), toys.TARGET.size, order=1, monotonic=True
    )
    logits = decoder(embedding, memory, target)
    return translator(source, target, logits)


MAKERS = {
    **{
        name: lambda group=group, i=i: of_group(group, WIRINGS[i % 3])
        for i, (name, group) in enumerate(GROUPS.items())
    },
    "all forms": of_all_forms,
    "without attention": without_attention,
    "an encoder that attends": attends_in_the_encoder,
    "hard alignments": hard_alignments,
}


# Two of them; the others are left to `make test-all`.
ALWAYS = list(MAKERS)[::5]


@pytest.fixture(scope="module")
def translators():
    return Lazily(lambda name: MAKERS[name](), MAKERS)


@pytest.fixture(scope="module")
def exports(translators, tmp_path_factory):
    return Lazily(
        lambda name: translators[name].export(
            tmp_path_factory.mktemp("exports")
        ),
        MAKERS,
    )


@pytest.fixture(scope="module")
def answers(exports, tmp_path_factory):
    """Returns the answers of TF Serving's loader, without Keras."""
    text = np.array([x.encode() for x in LINES], object)
    return Answers(
        exports,
        lambda name: {"lines": ("align", {"text": text})},
    )


@pytest.mark.full
@pytest.mark.parametrize("name", some(MAKERS, ALWAYS))
def test_an_export_answers_as_its_translator_does(name, translators, answers):
    expected = translators[name](LINES)
    answer = answers[name, "lines"]
    assert [x.decode() for x in answer["text"]] == list(expected.text)
    assert np.std(expected.scores) > 1e-3  # they differ
    np.testing.assert_allclose(
        answer["score"], expected.scores, rtol=1e-4, atol=1e-4
    )
    for i, one in enumerate(expected):
        alignments = answer["alignments"][i][
            : answer["length"][i], : answer["source_length"][i]
        ]
        np.testing.assert_allclose(alignments, one.alignment, atol=1e-4)


@pytest.mark.full
@pytest.mark.parametrize("name", some(MAKERS, ALWAYS))
def test_an_export_needs_tensorflow_and_no_more(name, exports):
    data = (exports[name] / "saved_model.pb").read_bytes()
    graph = saved_model_pb2.SavedModel.FromString(data).meta_graphs[0]
    nodes = [graph.graph_def.node]
    nodes += [x.node_def for x in graph.graph_def.library.function]
    operations = {node.op for some in nodes for node in some}
    # Of tensorflow-text, as in every export; no Python and no random state.
    of_text = {"NormalizeUTF8", "TFText>WhitespaceTokenizeWithOffsetsV2"}
    strange = {x for x in operations - of_text if ">" in x}
    assert not strange
    assert not {x for x in operations if "PyFunc" in x or "Random" in x}
