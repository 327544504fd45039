"""`T5Builder`: a `T5Model`, and where its weights are."""

import keras
import numpy as np

from keras_attn.models.hugging_face.architecture.t5_configuration import (
    T5Configuration,
)
from keras_attn.models.hugging_face.architecture.table import Table
from keras_attn.models.keras_hub import T5Model

# Old files have this weight, although attention to the source has no positions.
_WITHOUT_EFFECT = (
    "decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"
)
_LOGITS = "lm_head.weight"
_EMBEDDING = (
    "shared.weight",
    "encoder.embed_tokens.weight",
    "decoder.embed_tokens.weight",
)


class T5Builder:
    """Makes a model, and records where its weights are.

    Args:
        configuration: The `T5Configuration`.
        table: The `Table` of weights.
    """

    def __init__(self, configuration: T5Configuration, table: Table):
        self._is, self._table = configuration, table
        self._size = configuration.target_size, configuration.width

    def model(self):
        """Returns the model, without most of its weights.

        Raises:
            ImportError: If KerasHub is missing.
        """
        is_, table = self._is, self._table
        if keras.config.dtype_policy().compute_dtype == "float16":
            raise ValueError(
                "KerasHub's T5 cannot compute in float16: it adds -1e9, which "
                "float16 cannot represent. Received: a policy of float16. Pass "
                '`dtype="bfloat16"`, or leave it out.'
            )
        # As in transformers 5: two different matrices are not tied, whatever
        # `tie_word_embeddings` says.
        tied = not table.has(_LOGITS) or table.same(
            _EMBEDDING, _LOGITS, self._size
        )
        model = T5Model(
            vocabulary_size=is_.target_size,
            hidden_dim=is_.width,
            encoder_layers=is_.encoder_blocks,
            decoder_layers=is_.decoder_blocks,
            num_heads=is_.heads,
            key_value_dim=is_.head_size,
            intermediate_dim=is_.inner,
            activation=is_.activation,
            use_gated_activation=is_.gated,
            layer_norm_epsilon=is_.epsilon,
            dropout=is_.dropout,
            tie_weights=tied,
            scale_output=is_.scaled,
            pad=is_.pad,
            embeddings=table.initializer(_EMBEDDING, self._size),
        )
        self._add_embedding(model.embedding, tied)
        for side in ("encoder", "decoder"):
            stack = getattr(model, side)
            for i, block in enumerate(stack.blocks):
                self._add_block(f"{side}.block.{i}.layer", block)
            self._add_norm(f"{side}.final_layer_norm", stack.norm)
        table.skip(_WITHOUT_EFFECT)
        return model

    def _add_embedding(self, layer, tied):
        table = self._table
        if tied:
            table.skip(_LOGITS)
        else:
            logits = layer.reverse_embeddings
            table.add(_LOGITS, logits, self._size, np.transpose)

    def _add_block(self, theirs, block):
        table, attention = self._table, block.self_attention
        norm, last = block.self_attention_layer_norm, f"{theirs}.1"
        self._add_attention(f"{theirs}.0.SelfAttention", attention)
        self._add_norm(f"{theirs}.0.layer_norm", norm)
        if attention.use_relative_attention_bias:
            bias = attention.relative_attention_bias
            name = f"{theirs}.0.SelfAttention.relative_attention_bias.weight"
            table.add(name, bias, tuple(bias.shape))
        if block.is_decoder:
            attention = block.cross_attention
            norm = block.cross_attention_layer_norm
            self._add_attention(f"{last}.EncDecAttention", attention)
            self._add_norm(f"{last}.layer_norm", norm)
            last = f"{theirs}.2"
        dense = f"{last}.DenseReluDense"
        if self._is.gated:
            table.add_dense(f"{dense}.wi_0", block.input_projector)
            table.add_dense(f"{dense}.wi_1", block.gate_projector)
        else:
            table.add_dense(f"{dense}.wi", block.input_projector)
        table.add_dense(f"{dense}.wo", block.output_projector)
        self._add_norm(f"{last}.layer_norm", block.layer_norm)

    def _add_attention(self, theirs, layer):
        parts = {
            "q": layer.query_projector,
            "k": layer.key_projector,
            "v": layer.value_projector,
            "o": layer.output_projector,
        }
        for part, dense in parts.items():
            self._table.add_dense(f"{theirs}.{part}", dense)

    def _add_norm(self, theirs, layer):
        self._table.add(f"{theirs}.weight", layer.weight, (self._is.width,))
