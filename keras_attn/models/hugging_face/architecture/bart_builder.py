"""`BartBuilder`: a functional Keras model like BART.

Its layers are Keras's and ours, so `fit`, `save`, LoRA and `Translator` work
with it as with any other model. Only the table of weights uses Hugging Face's
names.
"""

import keras
import numpy as np
from keras import layers
from keras import ops

from keras_attn.layers.logit_bias import LogitBias
from keras_attn.layers.positions import PositionEmbedding
from keras_attn.layers.positions import SinePositionEncoding
from keras_attn.layers.tied_embedding import TiedEmbedding
from keras_attn.models.hugging_face.architecture.bart_configuration import (
    LEARNED,
)
from keras_attn.models.hugging_face.architecture.bart_configuration import (
    SINES_TO_THE_END,
)
from keras_attn.models.hugging_face.architecture.bart_configuration import (
    BartConfiguration,
)
from keras_attn.models.hugging_face.architecture.table import Table

_EPSILON = 1e-5  # PyTorch's
_SKIPPED = 2  # Rows of a table of positions that BART does not use


def attention_name(block: int) -> str:
    """Returns the name of a decoder block's layer that reads the source."""
    return f"decoder_{block}_attention"


class BartBuilder:
    """Makes the layers of a model, and records where their weights are.

    Args:
        configuration: The `BartConfiguration`.
        table: The `Table` of weights.

    Attributes:
        has_key_bias: Whether keys of attention have a bias.
    """

    has_key_bias = True

    def __init__(self, configuration: BartConfiguration, table: Table):
        self._is, self._table = configuration, table

    def model(self):
        """Returns the model, without its weights."""
        source = keras.Input((None,), dtype="int32", name="source")
        target = keras.Input((None,), dtype="int32", name="target")
        real = ops.not_equal(source, self._is.pad)
        embedding, output = self._embeddings()
        memory = self._encoder(embedding(source), real)
        hidden = self._decoder(output(target), memory, real)
        logits = output(hidden, reverse=True)
        if self._is.has_bias and self._table.has("final_logits_bias"):
            bias = LogitBias(trainable=False, name="logit_bias")
            logits = bias(logits)
            shape = (1, self._is.target_size)
            self._table.add(
                "final_logits_bias", bias.bias, shape, lambda x: x[0]
            )
        return keras.Model([source, target], logits)

    def _embeddings(self):
        """Returns the source's embedding and the target's `TiedEmbedding`."""
        is_, table = self._is, self._table
        own = ["encoder.embed_tokens.weight", "decoder.embed_tokens.weight"]
        shares = is_.one_vocabulary
        if not is_.tied and all(map(table.has, own)):
            shares = False
            table.skip("shared.weight")
        output = self._tied(
            "embedding" if shares else "target_embedding",
            ["shared.weight", *own] if shares else own[1:],
            "lm_head.weight",
        )
        if shares:
            return output, output
        source = layers.Embedding(
            is_.source_size,
            is_.width,
            embeddings_initializer="zeros",
            name="source_embedding",
        )
        size = is_.source_size, is_.width
        self._build(source, own[:1], size)
        return source, output

    def _tied(self, name, names, reverse):
        """Returns the layer that embeds a target, and makes its logits.

        Args:
            name: Name of the layer.
            names: Names of its weights in files.
            reverse: Name of the logits' weights in files.
        """
        is_ = self._is
        size = is_.target_size, is_.width
        made = TiedEmbedding(
            *size,
            tie_weights=is_.tied,
            embeddings_initializer="zeros",
            name=name,
        )
        self._build(made, [*names, *([reverse] if is_.tied else ())], size)
        if not is_.tied:
            self._table.add(
                reverse, made.reverse_embeddings, size, np.transpose
            )
        return made

    def _build(self, layer, names, size):
        layer.embeddings_initializer = self._table.initializer(names, size)
        layer.build()
        layer.embeddings_initializer = keras.initializers.Zeros()

    def _encoder(self, x, real):
        x = self._begun(x, "encoder")
        for i in range(self._is.encoder.blocks):
            name, theirs = f"encoder_{i}", f"encoder.layers.{i}"
            x = self._attending(
                x,
                lambda q, layer: layer(q, q, value_mask=real),
                self._is.encoder.heads,
                f"{name}_self_attention",
                f"{theirs}.self_attn",
            )
            x = self._forward(x, self._is.encoder.inner, name, theirs)
        return self._ended(x, "encoder")

    def _decoder(self, x, memory, real):
        x = self._begun(x, "decoder")
        for i in range(self._is.decoder.blocks):
            name, theirs = f"decoder_{i}", f"decoder.layers.{i}"
            heads = self._is.decoder.heads
            x = self._attending(
                x,
                lambda q, layer: layer(q, q, use_causal_mask=True),
                heads,
                f"{name}_self_attention",
                f"{theirs}.self_attn",
            )
            x = self._attending(
                x,
                lambda q, layer: layer(q, memory, value_mask=real),
                heads,
                attention_name(i),
                f"{theirs}.encoder_attn",
            )
            x = self._forward(x, self._is.decoder.inner, name, theirs)
        return self._ended(x, "decoder")

    def _begun(self, x, side):
        """Scales embeddings, and adds positions."""
        is_ = self._is
        if is_.scale != 1:
            x = x * is_.scale
        x = self._positions(side)(x)
        if is_.norm_embedding:
            name = f"{side}_embedding_norm"
            x = self._norm(x, name, f"{side}.layernorm_embedding")
        return self._dropped(x, is_.dropout)

    def _positions(self, side):
        is_, name = self._is, f"{side}_positions"
        theirs = f"{side}.embed_positions.weight"
        if is_.positions == LEARNED:
            made = PositionEmbedding(
                is_.longest, embeddings_initializer="zeros", name=name
            )
            made.build((None, None, is_.width))
            size = is_.longest + _SKIPPED, is_.width
            self._table.add(
                theirs, made.embeddings, size, lambda x: x[_SKIPPED:]
            )
            return made
        of_family = {}
        if is_.positions == SINES_TO_THE_END:
            of_family = {"endpoint": True, "offset": is_.pad + 1}
        made = SinePositionEncoding(layout="halves", name=name, **of_family)
        self._table.add_computed(
            [theirs, f"{theirs}s"],
            lambda rows: made(np.zeros((1, rows, is_.width)))[0],
            made.offset,
        )
        return made

    def _attending(self, x, attend, heads, name, theirs):
        """A block's attention, with norm and residual."""
        is_ = self._is
        layer = layers.MultiHeadAttention(
            heads,
            is_.width // heads,
            dropout=is_.attention_dropout,
            name=name,
        )
        found = attend(self._before(x, name, theirs), layer)
        self._table.add_heads(theirs, layer, self.has_key_bias)
        return self._after(x, found, name, theirs)

    def _forward(self, x, inner, name, theirs):
        """A block's two dense layers, with norm and residual."""
        is_ = self._is
        found = self._before(x, name, theirs, "final")
        found = self._dense(
            found, inner, f"{name}_inner", f"{theirs}.fc1", is_.activation
        )
        found = self._dropped(found, is_.activation_dropout)
        found = self._dense(found, is_.width, f"{name}_outer", f"{theirs}.fc2")
        return self._after(x, found, name, theirs, "final")

    def _before(self, x, name, theirs, kind=None):
        if not self._is.norm_first:
            return x
        return self._block_norm(x, name, theirs, kind)

    def _after(self, x, found, name, theirs, kind=None):
        x = x + self._dropped(found, self._is.dropout)
        if self._is.norm_first:
            return x
        return self._block_norm(x, name, theirs, kind)

    def _block_norm(self, x, name, theirs, kind):
        if kind is not None:
            return self._norm(x, f"{name}_norm", f"{theirs}.final_layer_norm")
        return self._norm(x, f"{name}_norm", f"{theirs}_layer_norm")

    def _ended(self, x, side):
        if not self._is.norm_first:
            return x
        return self._norm(x, f"{side}_norm", f"{side}.layer_norm")

    def _norm(self, x, name, theirs):
        layer = layers.LayerNormalization(epsilon=_EPSILON, name=name)
        found = layer(x)
        size = (self._is.width,)
        self._table.add(f"{theirs}.weight", layer.gamma, size)
        self._table.add(f"{theirs}.bias", layer.beta, size)
        return found

    def _dense(self, x, units, name, theirs, activation=None):
        layer = layers.Dense(
            units, activation, kernel_initializer="zeros", name=name
        )
        found = layer(x)
        self._table.add_dense(theirs, layer)
        return found

    def _dropped(self, x, rate):
        return layers.Dropout(rate)(x) if rate else x
