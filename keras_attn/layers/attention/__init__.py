"""Attention: the layer that all mechanisms share, and the papers' layers."""

from keras_attn.layers.attention.attention import Attention as Attention
from keras_attn.layers.attention.memory import Attended as Attended
from keras_attn.layers.attention.memory import History as History
from keras_attn.layers.attention.memory import Memory as Memory
from keras_attn.layers.attention.presets import (
    BahdanauAttention as BahdanauAttention,
)
from keras_attn.layers.attention.presets import LuongAttention as LuongAttention
from keras_attn.layers.attention.presets import (
    ScaledDotAttention as ScaledDotAttention,
)
