"""`pairs()`: turns pairs of lines into batches for `model.fit`."""

from keras_attn.training.batches.dataset import Pairs as Pairs
from keras_attn.training.batches.of_pairs import pairs as pairs
