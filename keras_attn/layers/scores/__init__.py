"""Scores of a query for each key: one small class per mechanism.

A score compares every query with every key. It does not normalize: alignments
do that (`alignments/`). To add a mechanism, subclass `Score` and write `call`.
The new score then works in `Attention`, the decoder, beam search, the export
and the plots.
"""

from keras_attn.layers.scores.additive import AdditiveScore as AdditiveScore
from keras_attn.layers.scores.additive import ConcatScore as ConcatScore
from keras_attn.layers.scores.coverage import CoverageScore as CoverageScore
from keras_attn.layers.scores.dot import CosineScore as CosineScore
from keras_attn.layers.scores.dot import DotScore as DotScore
from keras_attn.layers.scores.dot import GeneralScore as GeneralScore
from keras_attn.layers.scores.dot import ScaledDotScore as ScaledDotScore
from keras_attn.layers.scores.location import LocationScore as LocationScore
from keras_attn.layers.scores.location import (
    LocationSensitiveScore as LocationSensitiveScore,
)
from keras_attn.layers.scores.score import Score as Score
