"""`MarginalDecoder`: hard attention whose alignments are summed over."""

from keras_attn.marginal.base import MarginalDecoder as MarginalDecoder
from keras_attn.marginal.base import MarginalState as MarginalState
