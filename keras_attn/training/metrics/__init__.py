"""Metrics of predicted tokens in training, and of decoded text."""

from keras_attn.training.metrics.edits import ErrorRates as ErrorRates
from keras_attn.training.metrics.edits import edit_distance as edit_distance
from keras_attn.training.metrics.edits import error_rates as error_rates
from keras_attn.training.metrics.links import (
    alignment_error_rate as alignment_error_rate,
)
from keras_attn.training.metrics.links import alignment_links as alignment_links
from keras_attn.training.metrics.texts import BY_NAME as BY_NAME
from keras_attn.training.metrics.texts import bleu as bleu
from keras_attn.training.metrics.texts import (
    character_error_rate as character_error_rate,
)
from keras_attn.training.metrics.texts import chrf as chrf
from keras_attn.training.metrics.texts import (
    sequence_error_rate as sequence_error_rate,
)
from keras_attn.training.metrics.texts import word_error_rate as word_error_rate
from keras_attn.training.metrics.tokens import Perplexity as Perplexity
from keras_attn.training.metrics.tokens import (
    SequenceAccuracy as SequenceAccuracy,
)
from keras_attn.training.metrics.tokens import TokenAccuracy as TokenAccuracy
