"""KerasHub's encoder-decoders, small and with random weights.

`MODELS` names backbones. `model_of()` makes a model of one, from its sources
and the target's ids to logits.
"""

import keras
import keras_hub
import numpy as np
from keras import ops
from keras_hub.src.models.gemma3.gemma3_vision_encoder import (
    Gemma3VisionEncoder,
)

VOCABULARY = 20

SMALL = {"hidden_dim": 8, "intermediate_dim": 12}
TEXT = {
    **SMALL,
    "vocabulary_size": VOCABULARY,
    "num_layers": 2,
    "num_heads": 2,
}


def bart(**options):
    sizes = {**TEXT, "max_sequence_length": 16, **options}
    return keras_hub.models.BartBackbone(**sizes)


def t5(**options):
    return keras_hub.models.T5Backbone(**{**TEXT, **options})


def whisper(**options):
    sizes = {
        **TEXT,
        "num_mels": 5,
        "max_encoder_sequence_length": 24,
        "max_decoder_sequence_length": 16,
        **options,
    }
    return keras_hub.models.WhisperBackbone(**sizes)


def moonshine(**options):
    sizes = {
        **SMALL,
        "vocabulary_size": VOCABULARY,
        "filter_dim": 8,
        "encoder_num_layers": 1,
        "decoder_num_layers": 2,
        "encoder_num_heads": 2,
        "decoder_num_heads": 2,
        **options,
    }
    return keras_hub.models.MoonshineBackbone(**sizes)


def blip2():
    """Reads a picture and text; its decoder is that of T5."""
    sizes = {**TEXT, "num_layers": 1}
    del sizes["vocabulary_size"]
    rates = {"layer_norm_epsilon": 1e-6}
    return keras_hub.models.BLIP2Backbone(
        vision_encoder=keras_hub.models.BLIP2VisionEncoder(
            **sizes,
            **rates,
            image_size=8,
            patch_size=4,
            use_patch_bias=True,
            use_class_token=True,
            use_mha_bias=True,
            use_mlp_bias=True,
            dropout_rate=0.0,
            initializer_range=0.02,
        ),
        qformer=keras_hub.models.BLIP2QFormer(
            **sizes,
            **rates,
            num_query_tokens=3,
            vision_dim=8,
            cross_attention_frequency=1,
            dropout=0.0,
        ),
        language_model=keras_hub.models.BLIP2FlanT5(
            **TEXT, num_query_tokens=3, qformer_hidden_dim=8
        ),
    )


def edrec():
    return keras_hub.models.EdRecBackbone(
        **SMALL,
        vocab_size=VOCABULARY,
        num_layers_enc=1,
        num_layers_dec=2,
        num_heads=2,
    )


def parseq():
    """Reads the text in a picture; it has no encoder's inputs but those."""
    return keras_hub.models.PARSeqBackbone(
        image_encoder=keras_hub.models.ViTBackbone(
            image_shape=(8, 8, 3),
            patch_size=(4, 4),
            num_layers=1,
            num_heads=2,
            hidden_dim=8,
            mlp_dim=12,
            use_class_token=False,
        ),
        vocabulary_size=VOCABULARY,
        max_label_length=10,
        decoder_hidden_dim=8,
        num_decoder_layers=2,
        num_decoder_heads=2,
        decoder_mlp_dim=12,
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
    usual = {
        "vocabulary_size": VOCABULARY,
        "sliding_window": 3,
        "query_pre_attn_scalar": 6.0,
    }
    return kind(**{**sizes, **usual, **options})


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
    "blip2": blip2,
    "edrec": edrec,
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
    "t5gemma2, pictures": lambda: t5gemma2(
        vision_encoder=Gemma3VisionEncoder(
            **SMALL,
            image_size=8,
            patch_size=4,
            num_heads=2,
            num_layers=1,
            output_dim=10,
            pool_size=2,
        ),
        eoi_token_index=7,
    ),
}


def family(name):
    """Returns the family of a name of `MODELS`, such as `"t5"`."""
    return name.partition(",")[0]


def louder(backbone, seed=7):
    """Gives all weights values that show, also biases and scales."""
    random = np.random.default_rng(seed)
    # EdRec has no last normalization. With 0.7 its logits are in the hundreds,
    # and float32 has too few digits to compare their probabilities.
    edrec = isinstance(backbone, keras_hub.models.EdRecBackbone)
    for weight in backbone.weights:
        scale = 0.7 if not edrec else 0.35
        if weight.name == "embeddings":
            scale = 0.3
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


def sources_of(name):
    """Returns arrays for a backbone's inputs on its encoder's side, no masks.

    Some sources are padded.
    """
    random = np.random.default_rng(2)
    if family(name) == "moonshine":
        sound = random.normal(size=(4, 3000, 1)).astype("float32")
        sound[1, 1500:] = 0
        return {"encoder_input_values": sound}
    if family(name) == "whisper":
        features = random.normal(size=(4, 24, 5)).astype("float32")
        return {"encoder_features": features}
    ids = random.integers(3, VOCABULARY, (4, 7)).astype("int32")
    ids[1, 4:] = ids[2, 1:] = 0
    if family(name) == "blip2":
        images = random.normal(size=(4, 8, 8, 3)).astype("float32")
        return {"images": images, "encoder_token_ids": ids}
    if "pictures" in name:  # the token of each stands here among the ids
        images = random.normal(size=(4, 1, 8, 8, 3)).astype("float32")
        places = np.full((4, 1), 1, "int32")
        return {
            "images": images,
            "vision_indices": places,
            "encoder_token_ids": ids,
        }
    return {"encoder_token_ids": ids}


def with_masks(backbone, given):
    """Adds masks to a backbone's inputs, which are tensors or arrays."""
    found = {"decoder_padding_mask": ops.ones_like(given["decoder_token_ids"])}
    if "encoder_token_ids" in given:
        found["encoder_padding_mask"] = given["encoder_token_ids"] != 0
    elif "encoder_input_values" in given:
        sound = given["encoder_input_values"]
        found["encoder_padding_mask"] = ops.any(sound != 0, axis=-1)
    kinds = backbone.input
    found = {name: ops.cast(x, kinds[name].dtype) for name, x in found.items()}
    return {**given, **found}


def logits_of(name, backbone, hidden):
    """Returns the logits of a backbone's last hidden states."""
    if family(name) == "edrec":
        return keras.layers.Dense(VOCABULARY, use_bias=False)(hidden)
    if family(name) == "blip2":
        return backbone.language_model.lm_head(hidden)
    if family(name) == "t5":
        hidden = hidden * backbone.hidden_dim**-0.5
    words = getattr(backbone, "decoder_token_embedding", None)
    logits = (words or backbone.token_embedding)(hidden, reverse=True)
    cap = getattr(backbone, "final_logit_softcapping", None)
    return logits if cap is None else ops.tanh(logits / cap) * cap


def model_of(name):
    """Returns a backbone, its model with list inputs, and a list of sources."""
    backbone, sources = louder(MODELS[name]()), sources_of(name)
    given = {
        key: keras.Input(
            (None,) if key == "encoder_token_ids" else x.shape[1:],
            dtype=x.dtype,
            name=key,
        )
        for key, x in sources.items()
    }
    given["decoder_token_ids"] = keras.Input((None,), dtype="int32")
    hidden = backbone(with_masks(backbone, given))
    if isinstance(hidden, dict):
        hidden = hidden["decoder_sequence_output"]
    logits = logits_of(name, backbone, hidden)
    model = keras.Model(list(given.values()), logits)
    return backbone, model, list(sources.values())
