"""Cuts a trained functional model into `encode()` and `step()`."""

from keras_attn.incremental.base import Encoded as Encoded
from keras_attn.incremental.base import Incremental as Incremental
from keras_attn.incremental.ensemble import Ensemble as Ensemble
