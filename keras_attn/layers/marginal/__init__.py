"""`MarginalDecoder`: hard attention whose alignments are summed over."""

from keras_attn.layers.marginal.marginal_decoder import (
    MarginalDecoder as MarginalDecoder,
)
from keras_attn.layers.marginal.marginal_decoder import (
    MarginalState as MarginalState,
)
