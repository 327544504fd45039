"""Callbacks for `model.fit`."""

from keras_attn.callbacks.decode import Decode as Decode
