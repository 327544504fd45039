"""KerasHub's encoder-decoders, small and with random weights.

`MODELS` names backbones. `model_of()` makes a model of one, with the inputs
`[source, target]` and logits.
"""

import keras
import keras_hub
import numpy as np
from keras import ops

VOCABULARY = 20

SMALL = {"hidden_dim": 8, "intermediate_dim": 12}
TEXT = {
    **SMALL,
    "vocabulary_size": VOCABULARY,
    "num_layers": 2,
    "num_heads": 2,
}


def bart():
    return keras_hub.models.BartBackbone(**TEXT, max_sequence_length=16)


def t5(**options):
    return keras_hub.models.T5Backbone(**TEXT, **options)


def whisper():
    return keras_hub.models.WhisperBackbone(
        **TEXT,
        num_mels=5,
        max_encoder_sequence_length=24,
        max_decoder_sequence_length=16,
    )


def moonshine(**options):
    return keras_hub.models.MoonshineBackbone(
        **SMALL,
        vocabulary_size=VOCABULARY,
        filter_dim=8,
        encoder_num_layers=1,
        decoder_num_layers=2,
        encoder_num_heads=2,
        decoder_num_heads=2,
        **options,
    )


def t5gemma2(**options):
    """Encoder and decoder have one width, as they must."""
    sizes = {"encoder_hidden_dim": 10, "rope_max_wavelength": 50.0}
    return t5gemma(keras_hub.models.T5Gemma2Backbone, **{**sizes, **options})


def t5gemma(kind=keras_hub.models.T5GemmaBackbone, **options):
    """Encoder and decoder differ in all sizes; query heads share keys."""
    encoder = {
        "hidden_dim": 8,
        "intermediate_dim": 12,
        "num_layers": 2,
        "num_attention_heads": 2,
        "num_key_value_heads": 2,
        "head_dim": 4,
        "layer_types": ["sliding_attention", "full_attention"],
    }
    decoder = {
        "hidden_dim": 10,
        "intermediate_dim": 14,
        "num_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "head_dim": 6,
        "layer_types": ["sliding_attention", "full_attention"],
    }
    sides = {"encoder": encoder, "decoder": decoder}
    sizes = {
        f"{side}_{name}": value
        for side, given in sides.items()
        for name, value in given.items()
    }
    usual = {"sliding_window": 3, "query_pre_attn_scalar": 6.0}
    return kind(vocabulary_size=VOCABULARY, **{**sizes, **usual, **options})


MODELS = {
    "bart": bart,
    "t5": t5,
    "t5, no gates, wide heads": lambda: t5(
        use_gated_activation=False, key_value_dim=6
    ),
    "whisper": whisper,
    "moonshine": moonshine,
    "moonshine, wide heads, no gates": lambda: moonshine(
        pad_head_dim_to_multiple_of=6,
        decoder_use_swiglu_activation=False,
        attention_bias=True,
    ),
    "t5gemma": t5gemma,
    "t5gemma, biases, caps, untied": lambda: t5gemma(
        attention_bias=True,
        attn_logit_softcapping=2.0,
        final_logit_softcapping=3.0,
        tie_word_embeddings=False,
        rope_max_wavelength=50.0,
        hidden_activation="relu",
    ),
    "t5gemma, one head of keys, narrow": lambda: t5gemma(
        decoder_num_key_value_heads=1,
        decoder_layer_types=["sliding_attention"] * 2,
        sliding_window=1,
        dropout_rate=0.5,
        attention_dropout=0.5,
    ),
    "t5gemma2": t5gemma2,
    "t5gemma2, biases, caps, untied": lambda: t5gemma2(
        attention_bias=True,
        attn_logit_softcapping=2.0,
        final_logit_softcapping=3.0,
        tie_word_embeddings=False,
        use_query_key_norm=False,
        hidden_activation="relu",
    ),
    "t5gemma2, one head of keys, narrow": lambda: t5gemma2(
        decoder_num_key_value_heads=1,
        sliding_window=2,
        global_rope_scaling_factor=4.0,
        dropout_rate=0.5,
        attention_dropout=0.5,
    ),
}


def family(name):
    """Returns the family of a name of `MODELS`, such as `"t5"`."""
    return name.partition(",")[0]


def louder(backbone):
    """Gives all weights values that show, also biases and scales."""
    random = np.random.default_rng(7)
    for weight in backbone.weights:
        scale = 0.3 if weight.name == "embeddings" else 0.7
        if "position" in weight.path:  # or tokens would repeat
            scale = 1.5
        if len(weight.shape) == 1:
            scale = 0.1
        value = random.normal(scale=scale, size=weight.shape)
        if "inv_freq" in weight.path:  # a constant
            continue
        scales = weight.name in ("scale", "gamma", "weight")
        weight.assign(value + (1.0 if scales else 0.0))
    return backbone


def model_of(name):
    """Returns a backbone, its model with list inputs, and sources for it."""
    backbone = louder(MODELS[name]())
    random = np.random.default_rng(2)
    target = keras.Input((None,), dtype="int32", name="target")
    given = {
        "decoder_token_ids": target,
        "decoder_padding_mask": ops.ones_like(
            target, dtype=backbone.input["decoder_padding_mask"].dtype
        ),
    }
    if family(name) == "moonshine":
        source = keras.Input((3000, 1), name="sound")
        given["encoder_input_values"] = source
        given["encoder_padding_mask"] = ops.any(source != 0, axis=-1)
        values = random.normal(size=(4, 3000, 1)).astype("float32")
        values[1, 1500:] = 0
    elif family(name) == "whisper":
        source = keras.Input((24, 5), name="features")
        given["encoder_features"] = source
        values = random.normal(size=(4, 24, 5)).astype("float32")
    else:
        source = keras.Input((None,), dtype="int32", name="source")
        mask = ops.cast(ops.not_equal(source, 0), "int32")
        given |= {"encoder_token_ids": source, "encoder_padding_mask": mask}
        values = random.integers(3, VOCABULARY, (4, 7)).astype("int32")
        values[1, 4:] = values[2, 1:] = 0
    hidden = backbone(given)["decoder_sequence_output"]
    if family(name) == "t5":
        hidden = hidden * backbone.hidden_dim**-0.5
    words = getattr(backbone, "decoder_token_embedding", None)
    logits = (words or backbone.token_embedding)(hidden, reverse=True)
    cap = getattr(backbone, "final_logit_softcapping", None)
    if cap is not None:
        logits = ops.tanh(logits / cap) * cap
    return backbone, keras.Model([source, target], logits), values
