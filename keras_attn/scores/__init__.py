"""How well a query matches each key: one small class per mechanism.

A score compares every query with every key and does not normalise: that is
the work of an alignment (`alignments/`). To add a mechanism, subclass `Score`
and write `call`. It then works as a layer, in the decoder, in beam search, in
the export and in the plots.
"""

from keras_attn.scores.additive import AdditiveScore as AdditiveScore
from keras_attn.scores.additive import ConcatScore as ConcatScore
from keras_attn.scores.base import Score as Score
from keras_attn.scores.coverage import CoverageScore as CoverageScore
from keras_attn.scores.dot import CosineScore as CosineScore
from keras_attn.scores.dot import DotScore as DotScore
from keras_attn.scores.dot import GeneralScore as GeneralScore
from keras_attn.scores.dot import ScaledDotScore as ScaledDotScore
from keras_attn.scores.location import LocationScore as LocationScore
from keras_attn.scores.location import (
    LocationSensitiveScore as LocationSensitiveScore,
)
