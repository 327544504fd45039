"""Callbacks for `model.fit`."""

from keras_attn.callbacks.best import BestCheckpoint as BestCheckpoint
from keras_attn.callbacks.decode import Decode as Decode
from keras_attn.callbacks.resume import Resume as Resume
