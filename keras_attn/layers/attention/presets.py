"""The papers' attentions by name, each a score with an alignment."""

import keras

from keras_attn.layers.alignments import LocalMonotonicAlignment
from keras_attn.layers.alignments import LocalPredictiveAlignment
from keras_attn.layers.alignments import SoftmaxAlignment
from keras_attn.layers.attention.attention import Attention
from keras_attn.layers.scores import AdditiveScore
from keras_attn.layers.scores import ConcatScore
from keras_attn.layers.scores import DotScore
from keras_attn.layers.scores import GeneralScore
from keras_attn.layers.scores import LocationScore
from keras_attn.layers.scores import ScaledDotScore


@keras.saving.register_keras_serializable("keras_attn")
class BahdanauAttention(Attention):
    """Additive attention: `AdditiveScore(units)` and a softmax.

    Unlike `keras.layers.AdditiveAttention` it projects queries and keys, as in
    the paper. So queries and keys may differ in width.

    Args:
        units: Width of the space in which query and key are added.
        use_bias: Whether a bias is added inside the tanh.
        normalize: Whether the score is weight-normalized with a learned
            scale: see `AdditiveScore`.
        block_size: How many queries are compared at once: see
            `AdditiveScore`.
        **kwargs: Arguments of `Attention`, such as `dropout` and `num_heads`.

    Call arguments and output: as for `Attention`.

    Reference:
        - [Bahdanau et al., 2015](https://arxiv.org/abs/1409.0473)

    Example:
        >>> attention = keras_attn.BahdanauAttention(8)
        >>> attention(np.ones((2, 3, 4)), np.ones((2, 5, 6))).shape
        TensorShape([2, 3, 6])
    """

    def __init__(
        self,
        units,
        use_bias=False,
        normalize=False,
        block_size=None,
        **kwargs,
    ):
        score = AdditiveScore(
            units,
            use_bias,
            normalize,
            block_size=block_size,
            dtype=kwargs.get("dtype"),
        )
        super().__init__(score, **kwargs)

    def get_config(self):
        return _preset_config(
            super().get_config(),
            units=self.score.units,
            use_bias=self.score.use_bias,
            normalize=self.score.normalize,
            block_size=self.score.block_size,
        )


@keras.saving.register_keras_serializable("keras_attn")
class LuongAttention(Attention):
    """Luong's attention, global or local, with one of the paper's scores.

    Args:
        score: `"dot"`, `"general"`, `"concat"` or `"location"`, the paper's
            names for `DotScore`, `GeneralScore`, `ConcatScore` and
            `LocationScore`.
        units: Width of the hidden layer of `"concat"`, which needs it.
        max_source: Length of the longest source, which `"location"` needs.
        alignment: `"global"`, `"local-m"` or `"local-p"`, the paper's names
            for `SoftmaxAlignment`, `LocalMonotonicAlignment` and
            `LocalPredictiveAlignment`.
        window: The paper's `D`: a local attention looks at this many
            positions on either side of its center. Defaults to 10, as in the
            paper.
        **kwargs: Arguments of `Attention`, such as `dropout` and `num_heads`.

    Call arguments and output: as for `Attention`.

    Reference:
        - [Luong et al., 2015](https://arxiv.org/abs/1508.04025), section 3

    Example:
        >>> attention = keras_attn.LuongAttention("general")
        >>> attention(np.ones((2, 3, 4)), np.ones((2, 5, 6))).shape
        TensorShape([2, 3, 6])
    """

    _scores = {
        "dot": DotScore,
        "general": GeneralScore,
        "concat": ConcatScore,
        "location": LocationScore,
    }
    _alignments = {
        "global": SoftmaxAlignment,
        "local-m": LocalMonotonicAlignment,
        "local-p": LocalPredictiveAlignment,
    }

    def __init__(
        self,
        score,
        units=None,
        max_source=None,
        alignment="global",
        window=None,
        **kwargs,
    ):
        _require_name("score", score, self._scores)
        _require_name("alignment", alignment, self._alignments)
        sizes = _only_for(score, units=(units, "concat"))
        sizes |= _only_for(score, max_source=(max_source, "location"))
        if "scale" in kwargs:
            raise ValueError(
                "Luong's scores have no scale of their own: the kernel of "
                f'"general" holds it. Received: scale={kwargs["scale"]!r}. '
                "Leave it out; for a learned scale use "
                "`Attention(ScaledDotScore(learned_scale=True))`."
            )
        local = alignment != "global"
        if window is not None and not local:
            raise ValueError(
                "A global attention has no window, so `window` would have no "
                f"effect. Received: window={window!r} with "
                'alignment="global". Leave `window` out, or pass '
                '`alignment="local-m"` or `"local-p"`.'
            )
        dtype = kwargs.get("dtype")
        score = self._scores[score](dtype=dtype, **sizes)
        width = {"window": 10 if window is None else window} if local else {}
        super().__init__(score, self._alignments[alignment](**width), **kwargs)

    def get_config(self):
        def name_of(part, names):
            return {kind: name for name, kind in names.items()}[type(part)]

        return _preset_config(
            super().get_config(),
            score=name_of(self.score, self._scores),
            units=getattr(self.score, "units", None),
            max_source=getattr(self.score, "max_source", None),
            alignment=name_of(self.alignment, self._alignments),
            window=getattr(self.alignment, "window", None),
        )


@keras.saving.register_keras_serializable("keras_attn")
class ScaledDotAttention(Attention):
    """Scaled dot-product attention, the Transformer's.

    With one head, queries, keys and values are not projected, so queries and
    keys must have the same width.

    Args:
        **kwargs: Arguments of `Attention`, such as `dropout` and `num_heads`.

    Call arguments and output: as for `Attention`.

    Reference:
        - [Vaswani et al., 2017](https://arxiv.org/abs/1706.03762)

    Example:
        >>> attention = keras_attn.ScaledDotAttention()
        >>> attention(np.ones((2, 3, 4)), np.ones((2, 5, 4))).shape
        TensorShape([2, 3, 4])
    """

    def __init__(self, **kwargs):
        super().__init__(ScaledDotScore(dtype=kwargs.get("dtype")), **kwargs)

    def get_config(self):
        return _preset_config(super().get_config())


def _require_name(argument, name, known):
    if not isinstance(name, str) or name not in known:
        raise ValueError(
            f"`{argument}` of `LuongAttention` must be one of "
            f"{', '.join(map(repr, known))}. Received: {argument}={name!r}. "
            f"For any other {argument} use `Attention(score, alignment)`."
        )


def _only_for(score, **argument):
    """Returns the argument that one score needs and the others refuse."""
    ((name, (value, owner)),) = argument.items()
    if score == owner and value is None:
        raise ValueError(
            f'The score "{owner}" needs `{name}`. Received: {name}=None. '
            f'Pass for example `LuongAttention("{owner}", {name}=128)`.'
        )
    if score != owner and value is not None:
        raise ValueError(
            f'Only the score "{owner}" takes `{name}`, which would have no '
            f"effect. Received: {name}={value!r} with score={score!r}. Leave "
            f"`{name}` out."
        )
    return {name: value} if score == owner else {}


def _preset_config(config, **arguments):
    """Returns a config with the preset's arguments instead of its parts."""
    del config["score"], config["alignment"]
    return {**config, **arguments}
