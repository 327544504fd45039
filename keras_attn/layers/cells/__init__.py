"""Keras RNN cells: functions that run any cell, and cells that Keras lacks."""

from keras_attn.layers.cells.gru import GRUCell as GRUCell
from keras_attn.layers.cells.layer_norm import (
    LayerNormGRUCell as LayerNormGRUCell,
)
from keras_attn.layers.cells.layer_norm import (
    LayerNormLSTMCell as LayerNormLSTMCell,
)
from keras_attn.layers.cells.residual import ResidualCell as ResidualCell
from keras_attn.layers.cells.step import (
    dropout_drawn_before as dropout_drawn_before,
)
from keras_attn.layers.cells.step import drops as drops
from keras_attn.layers.cells.step import hidden_index as hidden_index
from keras_attn.layers.cells.step import initial_state as initial_state
from keras_attn.layers.cells.step import output_size as output_size
from keras_attn.layers.cells.step import puts_out_hidden as puts_out_hidden
from keras_attn.layers.cells.step import run as run
from keras_attn.layers.cells.step import stacked as stacked
from keras_attn.layers.cells.step import state_sizes as state_sizes
from keras_attn.layers.cells.tabulated import TabulatedCell as TabulatedCell
from keras_attn.layers.cells.tabulated import is_tabulable as is_tabulable
