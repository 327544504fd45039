"""Chooses among hypotheses by samples or by scores of other models."""

from keras_attn.reranking.minimum_risk import MinimumRisk as MinimumRisk
from keras_attn.reranking.nbest import own_score as own_score
from keras_attn.reranking.reordering import rerank as rerank
from keras_attn.reranking.tuning import tune as tune
from keras_attn.reranking.utility import Utility as Utility
