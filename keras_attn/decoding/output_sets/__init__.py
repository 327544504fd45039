"""Rules by which each output is one of a set: `Among`, `Matches`."""

from keras_attn.decoding.output_sets.among import Among as Among
from keras_attn.decoding.output_sets.matches import Matches as Matches
