"""`T5Configuration`: the `config.json` of a T5 model."""

import dataclasses
from typing import NamedTuple

from keras_attn.models.hugging_face.architecture.fields import ACTIVATIONS
from keras_attn.models.hugging_face.architecture.fields import Fields


class _Kind(NamedTuple):
    """Traits of a family of models that no field states."""

    size: int
    forward: str
    blocks: int
    heads: int
    inner: int


FAMILIES = {
    "t5": _Kind(32128, "relu", 6, 8, 2048),
    "mt5": _Kind(250112, "gated-gelu", 8, 6, 1024),
}
# By `feed_forward_proj`: whether the dense layers are gated, and the activation
_FORWARDS = {
    **{name: (False, x) for name, x in ACTIVATIONS.items()},
    **{f"gated-{name}": (True, x) for name, x in ACTIVATIONS.items()},
    "gated-gelu": (True, ACTIVATIONS["gelu_new"]),
}


@dataclasses.dataclass(frozen=True)
class T5Configuration:
    """A model of T5's family.

    Attributes:
        family: Hugging Face's `model_type`.
        source_size, target_size: Number of ids, the same.
        width: Number of units, `d_model`.
        longest: `None`, since positions have no end.
        encoder_blocks, decoder_blocks: Numbers of blocks.
        heads, head_size: Number of heads, and units of each.
        inner: Width of the layer between the two dense ones of a block.
        activation: Activation of the first of these two, as the argument of a
            layer.
        gated: Whether its output is multiplied by that of a third layer.
        epsilon: Epsilon of the norms.
        dropout: Rate in training.
        scaled: Whether the decoder's output is divided by the square root of
            the width before it is multiplied by the embedding.
        pad, start, end: Ids of padding, of the token with which the decoder
            begins, and of the end.
    """

    family: str
    source_size: int
    target_size: int
    width: int
    longest: int | None
    encoder_blocks: int
    decoder_blocks: int
    heads: int
    head_size: int
    inner: int
    activation: object
    gated: bool
    epsilon: float
    dropout: float
    scaled: bool
    pad: int
    start: int | None
    end: int

    @classmethod
    def of(cls, fields: dict) -> "T5Configuration":
        """Reads the fields of a `config.json`.

        Raises:
            ValueError: If a field that could change results is unknown, has a
                wrong type or an unsupported value.
        """
        family = fields["model_type"]
        kind, read = FAMILIES[family], Fields(fields)
        size = read.whole("vocab_size", kind.size)
        blocks = read.whole("num_layers", kind.blocks)
        gated, activation = read.one_of(
            "feed_forward_proj", _FORWARDS, kind.forward
        )
        # Models with a separate matrix for the logits do not scale, and mT5
        # models never do. transformers 5 stores this in a field.
        tied = read.truth("tie_word_embeddings", True)
        scaled = read.truth("scale_decoder_outputs", tied)
        read.id("bos_token_id", 0)  # no text begins with it
        found = cls(
            family=family,
            source_size=size,
            target_size=size,
            width=read.whole("d_model", 512),
            longest=None,
            encoder_blocks=blocks,
            decoder_blocks=read.whole("num_decoder_layers", blocks),
            heads=read.whole("num_heads", kind.heads),
            head_size=read.whole("d_kv", 64),
            inner=read.whole("d_ff", kind.inner),
            activation=activation,
            gated=gated,
            epsilon=read.number("layer_norm_epsilon", 1e-6),
            dropout=read.rate("dropout_rate", 0.1),
            scaled=scaled and family == "t5",
            pad=read.id("pad_token_id", 0),
            start=read.id("decoder_start_token_id", 0),
            end=read.end(1),
        )
        read.require_usual(
            relative_attention_num_buckets=32,
            relative_attention_max_distance=128,
        )
        read.require_none_left(family)
        return found
