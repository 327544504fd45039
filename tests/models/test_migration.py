"""TF Addons' own numbers, from layers that carry its weights.

`tests/fixtures/tfa/make.py` wrote the numbers, with tensorflow-addons 0.23.0.
"""

import json
import pathlib

import numpy as np
import pytest
from keras import layers

import keras_attn
from keras_attn import load_tf_addons_weights

FIXTURES = pathlib.Path(__file__).parents[1] / "fixtures" / "tfa"


def read(name):
    """A fixture's arrays, its weights apart, by TF Addons' names."""
    arrays = dict(np.load(FIXTURES / f"{name}.npz"))
    weights = {
        key.removeprefix("weights/"): arrays.pop(key)
        for key in list(arrays)
        if key.startswith("weights/")
    }
    return json.loads(str(arrays.pop("config"))), arrays, weights


def mask(arrays):
    positions = np.arange(arrays["memory"].shape[1])
    return positions < arrays["lengths"][:, None]


def counterpart(class_name, options):
    """The tables of `keras_attn/models/tf_addons/README.md`."""
    if class_name.startswith("Bahdanau"):
        normalize = options.get("normalize", False)
        score = keras_attn.AdditiveScore(
            options["units"], use_bias=normalize, normalize=normalize
        )
    else:
        score = keras_attn.GeneralScore()
    if "Monotonic" in class_name:
        mode = options.get("mode", "parallel")
        alignment = keras_attn.MonotonicAlignment(mode, initial_bias=0.0)
    elif options.get("probability_fn") == "hardmax":
        alignment = keras_attn.HardAlignment()
    else:
        alignment = keras_attn.SoftmaxAlignment()
    return keras_attn.Attention(score, alignment)


MECHANISMS = [
    path.stem
    for path in sorted(FIXTURES.glob("*.npz"))
    if path.stem.startswith(("bahdanau", "luong"))
]


@pytest.mark.parametrize("name", MECHANISMS)
def test_a_mechanism_gives_the_alignments_of_tf_addons(name):
    config, arrays, weights = read(name)
    attention = counterpart(config["class_name"], config["options"])
    load_tf_addons_weights(attention, weights)
    _, alignments = attention(
        arrays["query"],
        arrays["memory"],
        value_mask=mask(arrays),
        return_attention_scores=True,
    )
    np.testing.assert_allclose(alignments, arrays["alignments"], atol=1e-5)


def test_every_class_and_option_of_tf_addons_has_a_fixture():
    configs = [read(name)[0] for name in MECHANISMS]
    found = {
        (config["class_name"], option, value)
        for config in configs
        for option, value in config["options"].items()
        if option != "units"
    }
    both = "BahdanauMonotonicAttention", "LuongMonotonicAttention"
    assert found == {
        ("BahdanauAttention", "normalize", True),
        ("BahdanauAttention", "probability_fn", "hardmax"),
        ("LuongAttention", "scale", True),
        ("LuongAttention", "probability_fn", "hardmax"),
        ("BahdanauMonotonicAttention", "normalize", True),
        ("LuongMonotonicAttention", "scale", True),
        *(
            (name, "mode", mode)
            for name in both
            for mode in ("recursive", "parallel", "hard")
        ),
    }


def make_decoder(config, **options):
    of_mechanism = read(config["mechanism"])[0]
    attention = counterpart(of_mechanism["class_name"], of_mechanism["options"])
    cells = [getattr(layers, cell)(3) for cell in config["cells"]]
    cell = cells if len(cells) > 1 else cells[0]
    return keras_attn.AttentionDecoder(cell, attention, "post", **options)


def decode(decoder, arrays):
    states = [
        arrays[key] for key in sorted(arrays) if key.startswith("initial_state")
    ]
    return decoder(
        arrays["inputs"],
        arrays["memory"],
        initial_state=states if len(states) > 1 else states[0],
        memory_mask=mask(arrays),
        return_attention_scores=True,
    )


@pytest.mark.parametrize(
    "name, options",
    [
        ("wrapper_lstm", {}),
        ("wrapper_gru", {}),
        ("wrapper_stack", {}),
        ("wrapper_not_fed", {"input_feeding": False}),
    ],
)
def test_a_decoder_emits_what_a_wrapper_with_a_tanh_layer_did(name, options):
    config, arrays, weights = read(name)
    decoder = make_decoder(config, **options)
    load_tf_addons_weights(decoder, weights)
    outputs, alignments = decode(decoder, arrays)
    np.testing.assert_allclose(outputs, arrays["outputs"], atol=1e-5)
    np.testing.assert_allclose(alignments, arrays["alignments"], atol=1e-5)


def test_without_tanh_the_wrapper_s_output_is_a_product_of_ours():
    config, arrays, weights = read("wrapper_linear")
    decoder = make_decoder(config, emit="concatenated")
    load_tf_addons_weights(decoder, weights)
    outputs, alignments = decode(decoder, arrays)
    outputs = outputs @ weights["_attention_layers/0/kernel"]
    np.testing.assert_allclose(outputs, arrays["outputs"], atol=1e-5)
    np.testing.assert_allclose(alignments, arrays["alignments"], atol=1e-5)


@pytest.mark.parametrize(
    "name, part",
    [
        ("wrapper_cell_output", np.s_[..., :3]),  # of [state; context]
        ("wrapper_context", np.s_[..., 3:]),
    ],
)
def test_without_a_layer_the_wrapper_s_output_is_a_part_of_ours(name, part):
    config, arrays, weights = read(name)
    decoder = make_decoder(config, emit="concatenated")
    load_tf_addons_weights(decoder, weights)
    outputs, alignments = decode(decoder, arrays)
    np.testing.assert_allclose(outputs[part], arrays["outputs"], atol=1e-5)
    np.testing.assert_allclose(alignments, arrays["alignments"], atol=1e-5)


def test_two_mechanisms_stand_beside_each_other():
    config, arrays, weights = read("wrapper_two")
    names = config["mechanism"]
    attentions = []
    for name in names:
        of_mechanism = read(name)[0]
        attentions.append(
            counterpart(of_mechanism["class_name"], of_mechanism["options"])
        )
    decoder = keras_attn.AttentionDecoder(
        layers.GRUCell(3), attentions, "post", emit="attentional"
    )
    load_tf_addons_weights(decoder, weights)
    outputs, alignments = decoder(
        arrays["inputs"],
        [arrays["memory"], arrays["memory_1"]],
        initial_state=arrays["initial_state/0"],
        memory_mask=[mask(arrays), None],
        return_attention_scores=True,
    )
    np.testing.assert_allclose(outputs, arrays["outputs"], atol=1e-5)
    for i, name in enumerate(("alignments", "alignments_1")):
        np.testing.assert_allclose(alignments[i], arrays[name], atol=1e-5)


def test_a_checkpoint_is_read_by_its_path():
    config, arrays, weights = read("wrapper_lstm")
    decoder = make_decoder(config)
    load_tf_addons_weights(decoder, FIXTURES / "wrapper_lstm")
    outputs, _ = decode(decoder, arrays)
    np.testing.assert_allclose(outputs, arrays["outputs"], atol=1e-5)


def test_a_decoder_within_a_model_is_filled_from_the_model_s_checkpoint():
    # If the mechanism and the layer were attributes of the model too, its
    # checkpoint has them there.
    config, arrays, weights = read("wrapper_lstm")
    decoder = make_decoder(config)
    decode(decoder, arrays)  # builds
    renamed = {"encoder/kernel": np.ones(3), "save_counter": np.array(1)}
    for name, array in weights.items():
        name = name.replace("_attention_mechanisms/0", "model/attention")
        name = name.replace("_attention_layers/0", "model/vector")
        renamed[name.replace("_cell/", "model/wrapper/_cell/")] = array
    load_tf_addons_weights(
        decoder,
        renamed,
        attention="model/attention",
        cell="model/wrapper/_cell",
        attention_layer="model/vector/",
    )
    outputs, _ = decode(decoder, arrays)
    np.testing.assert_allclose(outputs, arrays["outputs"], atol=1e-5)


def test_biases_of_tf_addons_layers_become_one():
    # They are all added inside the tanh.
    random = np.random.default_rng(2)
    weights = {
        "query_layer/kernel": np.zeros((3, 2)),
        "query_layer/bias": np.array([1.0, 2.0]),
        "memory_layer/kernel": np.zeros((4, 2)),
        "memory_layer/bias": np.array([10.0, 20.0]),
        "attention_v": random.normal(size=2),
    }
    score = keras_attn.AdditiveScore(2, use_bias=True)
    load_tf_addons_weights(keras_attn.Attention(score), weights)
    np.testing.assert_array_equal(score.bias, [11.0, 22.0])


def test_a_concat_score_is_an_additive_one_with_one_matrix():
    _, arrays, weights = read("bahdanau")
    attention = keras_attn.LuongAttention("concat", units=5)
    load_tf_addons_weights(attention, weights)
    _, alignments = attention(
        arrays["query"],
        arrays["memory"],
        value_mask=mask(arrays),
        return_attention_scores=True,
    )
    np.testing.assert_allclose(alignments, arrays["alignments"], atol=1e-5)


@pytest.mark.full
def test_on_long_sources_ours_keeps_the_weight_that_tf_addons_loses():
    _, arrays, _ = read("monotonic_long")
    assert arrays["recursive"] == pytest.approx(1.0)
    assert arrays["parallel"] == 0.0  # the same recurrence, in closed form
    # From the first of 400 positions on, each is chosen with probability 1/2.
    for mode in "recursive", "parallel":
        alignment = keras_attn.MonotonicAlignment(mode, initial_bias=0.0)
        attention = keras_attn.Attention(keras_attn.DotScore(), alignment)
        _, found = attention(
            np.zeros((1, 200, 2)),
            np.zeros((1, 400, 2)),
            return_attention_scores=True,
        )
        # The 200th query stands about the 200th position.
        assert np.sum(found[0, -1]) == pytest.approx(1.0, abs=1e-3)


def test_the_loss_is_that_of_tf_addons_with_weights_of_no_padding():
    _, arrays, _ = read("sequence_loss")
    loss = keras_attn.SequenceCrossentropy()(
        arrays["targets"], arrays["logits"]
    )
    assert float(loss) == pytest.approx(float(arrays["of_function"]), abs=1e-5)
    assert float(loss) == pytest.approx(float(arrays["of_class"]), abs=1e-5)


def additive(**options):
    return keras_attn.Attention(keras_attn.AdditiveScore(5, **options))


@pytest.mark.parametrize(
    "make, fixture, change, message",
    [
        pytest.param(
            additive,
            "bahdanau",
            lambda x: x.pop("attention_v"),
            "'attention_v' is needed.*'memory_layer/kernel', 'query_layer",
            id="missing",
        ),
        pytest.param(
            lambda: additive(normalize=True),
            "bahdanau",
            lambda x: None,
            "'attention_g' is needed.*TF Addons has it with `normalize=True`",
            id="missing for an option",
        ),
        pytest.param(
            additive,
            "bahdanau_normalize",
            lambda x: None,
            "'attention_b', which belongs.*use_bias=True, normalize=True",
            id="extra",
        ),
        pytest.param(
            additive,
            "bahdanau_monotonic_parallel",
            lambda x: None,
            "'attention_score_bias', which belongs.*MonotonicAlignment",
            id="of a monotonic one",
        ),
        pytest.param(
            lambda: keras_attn.Attention(keras_attn.AdditiveScore(7)),
            "bahdanau",
            lambda x: None,
            r"'query_kernel' of AdditiveScore has the shape \(3, 7\)",
            id="shape",
        ),
        pytest.param(
            additive,
            "bahdanau",
            lambda x: x.update(attention_v=np.ones((5, 1))),
            r"'attention_v' must be of rank 1. Received.*\(5, 1\)",
            id="rank",
        ),
        pytest.param(
            additive,
            "bahdanau",
            lambda x: x.update({"BahdanauAttention/kernel:0": np.ones(3)}),
            "must have their names in a checkpoint.*tf.train.Checkpoint",
            id="names of variables",
        ),
        pytest.param(
            lambda: keras_attn.ScaledDotAttention(),
            "luong",
            lambda x: None,
            "Received: ScaledDotScore",
            id="score",
        ),
        pytest.param(
            lambda: keras_attn.Attention(
                keras_attn.AdditiveScore(5), gate=True
            ),
            "bahdanau",
            lambda x: None,
            "Every weight of the layer must have a counterpart",
            id="option without counterpart",
        ),
        pytest.param(
            lambda: layers.Dense(3),
            "bahdanau",
            lambda x: None,
            "must be an `Attention` or an `AttentionDecoder`",
            id="layer",
        ),
    ],
)
def test_arrays_that_do_not_fit_are_refused(make, fixture, change, message):
    _, _, weights = read(fixture)
    change(weights)
    with pytest.raises(ValueError, match=message):
        load_tf_addons_weights(make(), weights)


def test_a_layer_keeps_its_weights_where_arrays_do_not_fit():
    attention = additive()
    attention.build((None, None, 3), (None, None, 4))
    before = attention.get_weights()
    _, _, weights = read("bahdanau")
    weights["attention_v"] = weights["attention_v"][:2]
    with pytest.raises(ValueError, match="attention_v"):
        load_tf_addons_weights(attention, weights)
    for old, new in zip(before, attention.get_weights(), strict=True):
        np.testing.assert_array_equal(old, new)


@pytest.mark.parametrize(
    "options, message",
    [
        ({"order": "pre"}, "order='pre'"),
        ({"order": "post", "query": ("state", "input")}, "query="),
        ({"order": "post", "bridge": "dense"}, "bridge="),
    ],
)
def test_a_decoder_that_no_wrapper_is_like_is_refused(options, message):
    _, _, weights = read("wrapper_lstm")
    decoder = keras_attn.AttentionDecoder(
        layers.LSTMCell(3), additive(), **options
    )
    with pytest.raises(ValueError, match=message):
        load_tf_addons_weights(decoder, weights)


@pytest.mark.parametrize(
    "name, message",
    [
        ("wrapper_tanh_bias", "attention layer here has no bias"),
        ("wrapper_context", "'_attention_layers/0/kernel' is needed"),
        ("wrapper_not_fed", "pass `input_feeding=False`"),
    ],
)
def test_a_wrapper_that_the_decoder_is_not_like_is_refused(name, message):
    config, _, weights = read(name)
    with pytest.raises(ValueError, match=message):
        load_tf_addons_weights(make_decoder(config), weights)


def test_an_attention_layer_that_was_named_must_be_there():
    config, _, weights = read("wrapper_linear")
    decoder = make_decoder(config, emit="concatenated")
    with pytest.raises(ValueError, match="'vector/kernel' is needed"):
        load_tf_addons_weights(decoder, weights, attention_layer="vector")


def test_an_attention_layer_beside_the_cell_is_not_passed_over():
    config, _, weights = read("wrapper_linear")
    weights = {f"model/wrapper/{name}": x for name, x in weights.items()}
    with pytest.raises(ValueError, match="Pass `attention_layer='model/wrap"):
        load_tf_addons_weights(
            make_decoder(config, emit="concatenated"),
            weights,
            attention="model/wrapper/_attention_mechanisms/0",
            cell="model/wrapper/_cell",
        )


def test_the_cell_of_the_wrapper_must_be_that_of_the_decoder():
    config, _, weights = read("wrapper_gru")
    config["cells"] = ["LSTMCell"]
    with pytest.raises(ValueError, match=r"LSTMCell has the shape \(5, 12\)"):
        load_tf_addons_weights(make_decoder(config), weights)


def test_arguments_for_a_decoder_do_not_go_with_an_attention():
    _, _, weights = read("bahdanau")
    with pytest.raises(ValueError, match="cell='_cell'"):
        load_tf_addons_weights(additive(), weights, cell="_cell")
    config, _, weights = read("wrapper_gru")
    with pytest.raises(ValueError, match="Pass a list of 1"):
        load_tf_addons_weights(
            make_decoder(config), weights, attention=["a", "b"]
        )


def test_weights_must_be_a_mapping_or_a_path():
    with pytest.raises(ValueError, match="np.load"):
        load_tf_addons_weights(additive(), [np.ones(3)])


def test_the_fixtures_are_small():
    size = sum(x.stat().st_size for x in FIXTURES.iterdir() if x.is_file())
    assert size < 150_000
