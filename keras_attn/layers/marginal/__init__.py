"""`MarginalDecoder`: hard attention, summed over all alignments."""

from keras_attn.layers.marginal.marginal_decoder import (
    MarginalDecoder as MarginalDecoder,
)
from keras_attn.layers.marginal.marginal_decoder import (
    MarginalState as MarginalState,
)
