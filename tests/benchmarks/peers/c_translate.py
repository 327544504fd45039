"""The Transformer of `examples/transformer.py` in CTranslate2.

CTranslate2 decodes Transformers in C++. It is given the same weights and split
tokens, so its times leave out what reads the texts.
"""

import copy
from pathlib import Path

import ctranslate2
import numpy as np
from ctranslate2.specs import transformer_spec
from keras import layers

import keras_attn

POSITIONS = 1000


class Net:
    """A net of `build_model()`, whose layers are found in their order.

    Args:
        model: The `keras.Model`.
        texts: The `Text`s of source and target.
        depth: Layers on either side.
        heads: Heads of each attention.
    """

    def __init__(self, model, texts, depth, heads):
        self._model, self._texts = model, texts
        self._norms = self._of(layers.LayerNormalization)
        self._attentions = self._of(layers.MultiHeadAttention)
        self._denses = self._of(layers.Dense)
        self._spec = transformer_spec.TransformerSpec.from_config(
            depth, heads, pre_norm=True
        )
        self._fill(self._spec)

    def save(self, folder: Path):
        """Writes the net, and returns its `ctranslate2.Translator`."""
        spec = copy.deepcopy(self._spec)
        dense = self._denses[-1]
        _linear(spec.decoder.projection, *_both(dense))
        spec.validate()
        spec.optimize(quantization="float32")
        folder.mkdir(parents=True)
        spec.save(str(folder))
        return ctranslate2.Translator(
            str(folder),
            device="cpu",
            intra_threads=1,
            inter_threads=1,
            compute_type="float32",
        )

    def _of(self, kind):
        """Returns the layers of a kind in the order they were made in."""
        found = [x for x in self._model.layers if isinstance(x, kind)]
        return sorted(found, key=lambda x: (len(x.name), x.name))

    def _fill(self, spec):
        encoder, decoder = spec.encoder, spec.decoder
        source, target = self._texts
        spec.register_source_vocabulary(list(source.tokens))
        spec.register_target_vocabulary(list(target.tokens))
        spec.config.layer_norm_epsilon = self._norms[0].epsilon
        spec.config.add_source_eos = True
        tables = [x.embeddings.numpy() for x in self._of(layers.Embedding)]
        encoder.embeddings[0].weight, decoder.embeddings.weight = tables
        adds = self._of(keras_attn.SinePositionEncoding)[0]
        blank = np.zeros((1, POSITIONS, tables[0].shape[1]), "float32")
        positions = adds(blank)[0].numpy()
        for side in encoder, decoder:
            side.position_encodings.encodings = positions
        # CTranslate2 normalizes the memory once, and we before each attention.
        # What our norms add to that goes into the attentions' weights.
        width = tables[0].shape[1]
        encoder.layer_norm.gamma = np.ones(width, "float32")
        encoder.layer_norm.beta = np.zeros(width, "float32")
        norms, attentions, denses = map(
            iter, (self._norms, self._attentions, self._denses)
        )
        for layer in encoder.layer:
            _self_attention(layer.self_attention, next(norms), next(attentions))
            _feed_forward(layer.ffn, next(norms), next(denses), next(denses))
        for layer in decoder.layer:
            _self_attention(layer.self_attention, next(norms), next(attentions))
            _cross_attention(
                layer.attention, next(norms), next(norms), next(attentions)
            )
            _feed_forward(layer.ffn, next(norms), next(denses), next(denses))
        _norm(decoder.layer_norm, next(norms))


def _self_attention(spec, norm, attention):
    _norm(spec.layer_norm, norm)
    each = [
        _projection(attention, x)
        for x in ("query_dense", "key_dense", "value_dense")
    ]
    _linear(
        spec.linear[0],
        *(np.concatenate(x, -1) for x in zip(*each, strict=True)),
    )
    _linear(spec.linear[1], *_projection(attention, "output_dense"))


def _cross_attention(spec, norm, memory_norm, attention):
    _norm(spec.layer_norm, norm)
    _linear(spec.linear[0], *_projection(attention, "query_dense"))
    gamma, beta = _both(memory_norm)
    each = []
    for name in "key_dense", "value_dense":
        kernel, bias = _projection(attention, name)
        each.append((gamma[:, None] * kernel, beta @ kernel + bias))
    _linear(
        spec.linear[1],
        *(np.concatenate(x, -1) for x in zip(*each, strict=True)),
    )
    _linear(spec.linear[2], *_projection(attention, "output_dense"))


def _feed_forward(spec, norm, first, second):
    _norm(spec.layer_norm, norm)
    _linear(spec.linear_0, *_both(first))
    _linear(spec.linear_1, *_both(second))


def _norm(spec, layer):
    spec.gamma, spec.beta = _both(layer)


def _linear(spec, kernel, bias):
    spec.weight, spec.bias = np.ascontiguousarray(kernel.T), bias


def _both(layer):
    """Returns a layer's two weights, as arrays."""
    return [x.numpy() for x in layer.weights]


def _projection(attention, name):
    """Returns kernel and bias of an attention's projection, heads joined."""
    kernel, bias = _both(getattr(attention, f"_{name}"))
    width = bias.size if name != "output_dense" else kernel.shape[-1]
    return kernel.reshape(-1, width), bias.reshape(width)
