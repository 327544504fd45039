"""The tables of `keras_attn/models/tf_addons/README.md` name what there is.

TensorFlow Addons is not installed here. Its names are those that version
0.23.0 exports, and the options are those of its constructors.
"""

import ast
import inspect
import pathlib
import re
from typing import NamedTuple

import numpy as np
import pytest
from keras import layers

import keras_attn

PAGE = pathlib.Path(keras_attn.__file__).parent / "models/tf_addons/README.md"
ROOT = pathlib.Path(__file__).parents[2]

THEIRS = """
AttentionMechanism AttentionWrapper AttentionWrapperState BahdanauAttention
BahdanauMonotonicAttention LuongAttention LuongMonotonicAttention hardmax
monotonic_attention safe_cumprod BasicDecoder BasicDecoderOutput
BeamSearchDecoder BeamSearchDecoderOutput BeamSearchDecoderState
FinalBeamSearchDecoderOutput gather_tree gather_tree_from_array tile_batch
BaseDecoder Decoder dynamic_decode SequenceLoss sequence_loss CustomSampler
GreedyEmbeddingSampler InferenceSampler SampleEmbeddingSampler Sampler
ScheduledEmbeddingTrainingSampler ScheduledOutputTrainingSampler
TrainingSampler
""".split()

# What a row that begins with "…" may name, by the row that it continues.
OPTIONS = {
    "BahdanauAttention": {"normalize", "kernel_initializer"},
    "LuongAttention": {"scale"},
    "probability_fn": {"hardmax"},
    "LuongMonotonicAttention": {
        *("mode", "sigmoid_noise", "sigmoid_noise_seed", "score_bias_init")
    },
    "neither": {"output_attention"},
    "BasicDecoder": {
        *("output_layer", "GreedyEmbeddingSampler", "SampleEmbeddingSampler"),
        "ScheduledEmbeddingTrainingSampler",
    },
    "BeamSearchDecoder": {"coverage_penalty_weight"},
}


class Row(NamedTuple):
    parent: str  # the first word of the row that this one continues
    theirs: str
    ours: str


def rows():
    found, parent = [], ""
    for line in PAGE.read_text(encoding="utf-8").splitlines():
        theirs, *rest = line.strip("| ").split(" | ")
        head = "keras_attn" in rest or theirs == "with"
        if head or not line.startswith("| "):
            continue
        if not theirs.startswith("…"):
            parent = re.search(r"\w+", theirs)[0]
        found.append(Row(parent, theirs, rest[0]))
    return found


def code(cell):
    return re.findall(r"`([^`]+)`", cell)


def known_arguments():
    """Every argument of our layers, searches and translators."""
    found = set()
    for name in dir(keras_attn):
        value = getattr(keras_attn, name)
        for method in ("__init__", "__call__", "call"):
            function = getattr(value, method, None)
            if inspect.isclass(value) and inspect.isfunction(function):
                found |= inspect.signature(function).parameters.keys()
    return found


def named(node):
    """The class of ours, or layer of Keras, that the page calls."""
    for module in (keras_attn, layers):
        if hasattr(module, node.func.id):
            return getattr(module, node.func.id)
    raise AssertionError(f"There is no {node.func.id}.")


def require_true(span):
    """Fails for a class or an argument that there is not."""
    tree = ast.parse(f"_({span})", mode="eval").body
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and node is not tree:
            signature = inspect.signature(named(node))
            names = {x.arg for x in node.keywords}
            assert names <= signature.parameters.keys(), node.func.id
            signature.bind_partial(*node.args, **dict.fromkeys(names))
    for keyword in tree.keywords:
        assert keyword.arg in known_arguments(), keyword.arg
    for argument in tree.args:
        if isinstance(argument, ast.Name):
            public = hasattr(keras_attn, argument.id)
            assert public or argument.id in known_arguments(), argument.id


def test_the_page_knows_every_name_that_tf_addons_exports():
    words = set(re.findall(r"\w+", PAGE.read_text(encoding="utf-8")))
    assert [name for name in THEIRS if name not in words] == []


def test_a_row_that_goes_on_names_an_option_of_the_row_above():
    continued = [row for row in rows() if row.theirs.startswith("…")]
    assert len(continued) > 9
    for row in continued:
        for span in code(row.theirs):
            option = re.search(r"\w+", span)[0]
            if option not in ("recursive", "hard", "True", "False"):
                assert option in OPTIONS[row.parent], row


@pytest.mark.parametrize(
    "span", sorted({x for row in rows() for x in code(row.ours)})
)
def test_our_side_of_a_table_names_what_there_is(span):
    require_true(span)


@pytest.mark.parametrize(
    "span",
    ["BahdanauAttention(scale=1)", "Sampler(1)", "no_such=1", "no_such"],
)
def test_a_name_that_there_is_not_would_be_seen(span):
    with pytest.raises((AssertionError, TypeError)):
        require_true(span)


def test_the_example_moves_a_whole_model_of_tf_addons(monkeypatch):
    monkeypatch.chdir(ROOT)
    page = PAGE.read_text(encoding="utf-8")
    example = re.search(r"```python\n(.*?)```", page, re.DOTALL)[1]
    scope: dict = {}
    exec(example, scope)
    file = np.load("tests/fixtures/tfa/translation.npz")
    logits = scope["model"]([file["source"], file["target"]])
    np.testing.assert_allclose(logits, file["logits"], atol=1e-4)
    lines = list(file["lines"])
    ids = scope["source_text"].source_ids(lines)
    np.testing.assert_array_equal(ids, file["source"][:, : ids.shape[1]])
    greedy = keras_attn.Translator(
        scope["model"],
        scope["source_text"],
        scope["target_text"],
        keras_attn.GreedySearch(max_length=6),
        pad_to=file["source"].shape[1],
    )
    tokens = scope["target_text"].tokens
    end = tokens[scope["target_text"].special.end]
    wanted = [
        " ".join(tokens[i] for i in row).split(f" {end}")[0]
        for row in file["greedy"]
    ]
    assert greedy(lines).text == wanted
    assert len({*wanted}) > 10
