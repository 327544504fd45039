"""The papers' attentions by name: each a score and an alignment."""

import keras

from keras_attn.attention.base import Attention
from keras_attn.scores import AdditiveScore
from keras_attn.scores import ConcatScore
from keras_attn.scores import DotScore
from keras_attn.scores import GeneralScore
from keras_attn.scores import ScaledDotScore


@keras.saving.register_keras_serializable("keras_attn")
class BahdanauAttention(Attention):
    """Additive attention: `AdditiveScore(units)` and a softmax.

    Unlike `keras.layers.AdditiveAttention` it projects queries and keys, so
    it is the paper's layer and the two may differ in width.

    Args:
        units: Width of the space in which query and key are added.
        dropout: Share of the weights to drop in training.
        seed: Integer that seeds the dropout, or `None`.

    Call arguments and output: as for `Attention`.

    Reference:
        - [Bahdanau et al., 2015](https://arxiv.org/abs/1409.0473)

    Example:

    >>> attention = keras_attn.BahdanauAttention(8)
    >>> attention(np.ones((2, 3, 4)), np.ones((2, 5, 6))).shape
    TensorShape([2, 3, 6])
    """

    def __init__(self, units, dropout=0.0, seed=None, **kwargs):
        super().__init__(
            AdditiveScore(units, dtype=kwargs.get("dtype")),
            dropout=dropout,
            seed=seed,
            **kwargs,
        )

    def get_config(self):
        return _preset_config(super().get_config(), units=self.score.units)


@keras.saving.register_keras_serializable("keras_attn")
class LuongAttention(Attention):
    """Luong's global attention with one of the paper's scores.

    Args:
        score: `"dot"`, `"general"` or `"concat"`, the paper's names for
            `DotScore`, `GeneralScore` and `ConcatScore`.
        units: Width of the hidden layer of `"concat"`, which needs one; the
            other two have none.
        dropout: Share of the weights to drop in training.
        seed: Integer that seeds the dropout, or `None`.

    Call arguments and output: as for `Attention`.

    Reference:
        - [Luong et al., 2015](https://arxiv.org/abs/1508.04025), section 3.1

    Example:

    >>> attention = keras_attn.LuongAttention("general")
    >>> attention(np.ones((2, 3, 4)), np.ones((2, 5, 6))).shape
    TensorShape([2, 3, 6])
    """

    _scores = {"dot": DotScore, "general": GeneralScore, "concat": ConcatScore}

    def __init__(self, score, units=None, dropout=0.0, seed=None, **kwargs):
        if not isinstance(score, str) or score not in self._scores:
            raise ValueError(
                '`LuongAttention` knows the scores "dot", "general" and '
                f'"concat". Received: score={score!r}. Any other goes into '
                "`Attention(score)`."
            )
        if score == "concat" and units is None:
            raise ValueError(
                'The score "concat" has a hidden layer and needs its width, '
                'as in `LuongAttention("concat", units=128)`.'
            )
        if score != "concat" and units is not None:
            raise ValueError(
                f'The score "{score}" has no hidden layer, so `units` would '
                f'have no effect. Received: units={units!r}. Only "concat" '
                "takes it."
            )
        arguments = {} if units is None else {"units": units}
        super().__init__(
            self._scores[score](dtype=kwargs.get("dtype"), **arguments),
            dropout=dropout,
            seed=seed,
            **kwargs,
        )

    def get_config(self):
        names = {kind: name for name, kind in self._scores.items()}
        return _preset_config(
            super().get_config(),
            score=names[type(self.score)],
            units=getattr(self.score, "units", None),
        )


@keras.saving.register_keras_serializable("keras_attn")
class ScaledDotAttention(Attention):
    """Scaled dot-product attention, one head, no projections.

    Args:
        dropout: Share of the weights to drop in training.
        seed: Integer that seeds the dropout, or `None`.

    Call arguments and output: as for `Attention`.

    Reference:
        - [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762)

    Example:

    >>> attention = keras_attn.ScaledDotAttention()
    >>> attention(np.ones((2, 3, 4)), np.ones((2, 5, 4))).shape
    TensorShape([2, 3, 4])
    """

    def __init__(self, dropout=0.0, seed=None, **kwargs):
        super().__init__(
            ScaledDotScore(dtype=kwargs.get("dtype")),
            dropout=dropout,
            seed=seed,
            **kwargs,
        )

    def get_config(self):
        return _preset_config(super().get_config())


def _preset_config(config, **arguments):
    """A preset names its parts by arguments of its own."""
    del config["score"], config["alignment"]
    return {**config, **arguments}
