"""`pairs()`: turns pairs of lines into batches for `model.fit`."""

from keras_attn.batches.base import pairs as pairs
from keras_attn.batches.dataset import Pairs as Pairs
