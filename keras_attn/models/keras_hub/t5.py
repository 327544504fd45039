"""`T5Model`: an encoder-decoder built of KerasHub's T5 layers."""

import keras
from keras import layers
from keras import ops

from keras_attn.layers.tied_embedding import TiedEmbedding
from keras_attn.models.keras_hub.library import import_keras_hub


@keras.saving.register_keras_serializable("keras_attn")
class T5Model(keras.Model):
    """T5 from ids to logits, with list inputs, source and target.

    KerasHub's `T5Backbone` has as many blocks in the decoder as in the encoder,
    unlike ByT5. It also divides by the square root of the width whenever one
    matrix is used for embedding and logits, which some models do not. Its
    layers are used as they are.

    Args:
        vocabulary_size: Number of ids.
        hidden_dim: Number of units.
        encoder_layers, decoder_layers: Numbers of blocks.
        num_heads, key_value_dim: Number of heads, and units of each.
        intermediate_dim: Width of the layer between the two dense ones of a
            block.
        activation: Activation of the first of these.
        use_gated_activation: Whether its output is multiplied by that of a
            third dense layer.
        layer_norm_epsilon: Epsilon of the norms.
        dropout: Rate in training.
        tie_weights: Whether the embedding also makes the logits.
        scale_output: Whether the decoder's output is divided by the square
            root of `hidden_dim` before the logits.
        pad: Id of padding.
        embeddings: Initializer of the embedding, which is not saved.
        dtype: Dtype policy of the layers. Defaults to Keras's.

    Raises:
        ImportError: If KerasHub is missing.
    """

    def __init__(
        self,
        vocabulary_size,
        hidden_dim,
        encoder_layers,
        decoder_layers,
        num_heads,
        key_value_dim,
        intermediate_dim,
        activation,
        use_gated_activation,
        layer_norm_epsilon,
        dropout,
        tie_weights,
        scale_output,
        pad,
        embeddings="zeros",
        dtype=None,
        **kwargs,
    ):
        policy = keras.dtype_policies.get(dtype or keras.config.dtype_policy())
        of_blocks = {
            "hidden_dim": hidden_dim,
            "intermediate_dim": intermediate_dim,
            "key_value_dim": key_value_dim,
            "num_heads": num_heads,
            "dropout": dropout,
            "activation": keras.activations.get(activation),
            "layer_norm_epsilon": layer_norm_epsilon,
            "use_gated_activation": use_gated_activation,
        }
        self._options = of_blocks | {
            "vocabulary_size": vocabulary_size,
            "encoder_layers": encoder_layers,
            "decoder_layers": decoder_layers,
            "tie_weights": tie_weights,
            "scale_output": scale_output,
            "pad": pad,
        }
        self._policy = policy
        self.embedding = TiedEmbedding(
            vocabulary_size,
            hidden_dim,
            tie_weights=tie_weights,
            embeddings_initializer=embeddings,
            dtype=policy,
            name="embedding",
        )
        self.embedding.build()
        sides = {"encoder": encoder_layers, "decoder": decoder_layers}
        self.encoder, self.decoder = (
            _Stack(name, count, of_blocks, policy)
            for name, count in sides.items()
        )
        source = keras.Input((None,), dtype="int32", name="source")
        target = keras.Input((None,), dtype="int32", name="target")
        real = ops.not_equal(source, pad)[:, None]
        memory = self.encoder.run(
            self.embedding(source), attention_mask=real, use_causal_mask=False
        )
        hidden = self.decoder.run(
            self.embedding(target),
            encoder_hidden_states=memory,
            encoder_attention_mask=real,
            use_causal_mask=True,
        )
        if scale_output:
            hidden = hidden * hidden_dim**-0.5
        logits = self.embedding(hidden, reverse=True)
        super().__init__([source, target], logits, **kwargs)

    def get_config(self):
        activation = keras.activations.serialize(self._options["activation"])
        policy = keras.dtype_policies.serialize(self._policy)
        return self._options | {
            "activation": activation,
            "dtype": policy,
            "name": self.name,
        }

    @classmethod
    def from_config(cls, config, custom_objects=None):
        config = dict(config)
        activation = config["activation"]
        config["activation"] = keras.activations.deserialize(
            activation, custom_objects
        )
        return cls(**config)


class _Stack:
    """The blocks of an encoder or a decoder, and the norm after them.

    Args:
        name: `"encoder"` or `"decoder"`.
        count: Number of blocks.
        options: Arguments of each block.
        policy: Dtype policy.
    """

    def __init__(self, name, count, options, policy):
        block, norm = _layers()
        self.blocks = [
            block(
                is_decoder=name == "decoder",
                use_relative_attention_bias=i == 0,
                dtype=policy,
                name=f"{name}_{i}",
                **options,
            )
            for i in range(count)
        ]
        epsilon = options["layer_norm_epsilon"]
        self.norm = norm(epsilon, dtype=policy, name=f"{name}_norm")
        self._dropouts = [
            layers.Dropout(options["dropout"], dtype=policy) for _ in range(2)
        ]

    def run(self, x, **given):
        """Returns the output for embeddings.

        Args:
            x: Embeddings `(batch, time, width)`.
            **given: Further arguments of each block.
        """
        first, last = self._dropouts
        x, bias = first(x), None
        for block in self.blocks:
            x, bias = block(x, position_bias=bias, **given)
        return last(self.norm(x))


def _layers():
    """Returns KerasHub's classes of a block and a norm.

    They are accessible only as layers of a backbone.
    """
    hub = import_keras_hub("T5").models
    least = hub.T5Backbone(
        vocabulary_size=1,
        num_layers=1,
        num_heads=1,
        hidden_dim=1,
        intermediate_dim=1,
    )
    block, norm = least.encoder_transformer_layers[0], least.encoder_layer_norm
    return type(block), type(norm)
