"""`AttentionDecoder`: an RNN cell that attends to a source at every step."""

from keras_attn.layers.decoder.attention_decoder import (
    AttentionDecoder as AttentionDecoder,
)
from keras_attn.layers.decoder.state import DecoderState as DecoderState
from keras_attn.layers.decoder.state import Source as Source
