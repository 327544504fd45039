"""Rules that limit outputs to a set of texts: `Among`, `Matches`."""

from keras_attn.decoding.output_sets.among import Among as Among
from keras_attn.decoding.output_sets.matches import Matches as Matches
