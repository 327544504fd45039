"""Attention for sequence-to-sequence models in Keras.

Layers, losses and the decoder run on every Keras backend. They are imported
eagerly, so that Keras finds them when it loads a saved model. Text, search,
export and `Translator` need TensorFlow and are imported on first use.
"""

import importlib

from keras_attn import renamed
from keras_attn.diagnostics import check
from keras_attn.incremental import Incremental
from keras_attn.incremental import Stepper
from keras_attn.incremental import stepper_for
from keras_attn.layers.alignments import Alignment
from keras_attn.layers.alignments import EntmaxAlignment
from keras_attn.layers.alignments import HardAlignment
from keras_attn.layers.alignments import LocalMonotonicAlignment
from keras_attn.layers.alignments import LocalPredictiveAlignment
from keras_attn.layers.alignments import MonotonicAlignment
from keras_attn.layers.alignments import ReinforceAlignment
from keras_attn.layers.alignments import SigmoidAlignment
from keras_attn.layers.alignments import SoftmaxAlignment
from keras_attn.layers.alignments import SparsemaxAlignment
from keras_attn.layers.attention import Attention
from keras_attn.layers.attention import BahdanauAttention
from keras_attn.layers.attention import LuongAttention
from keras_attn.layers.attention import ScaledDotAttention
from keras_attn.layers.cells import GRUCell
from keras_attn.layers.cells import LayerNormGRUCell
from keras_attn.layers.cells import LayerNormLSTMCell
from keras_attn.layers.cells import ResidualCell
from keras_attn.layers.decoder import AttentionDecoder
from keras_attn.layers.gelu_tanh import gelu_tanh as _registers_it  # noqa: F401
from keras_attn.layers.log_mel_spectrogram import LogMelSpectrogram
from keras_attn.layers.logit_bias import LogitBias
from keras_attn.layers.marginal import MarginalDecoder
from keras_attn.layers.positions import PositionEmbedding
from keras_attn.layers.positions import SinePositionEncoding
from keras_attn.layers.scores import AdditiveScore
from keras_attn.layers.scores import ConcatScore
from keras_attn.layers.scores import CosineScore
from keras_attn.layers.scores import CoverageScore
from keras_attn.layers.scores import DotScore
from keras_attn.layers.scores import GeneralScore
from keras_attn.layers.scores import LocationScore
from keras_attn.layers.scores import LocationSensitiveScore
from keras_attn.layers.scores import ScaledDotScore
from keras_attn.layers.scores import Score
from keras_attn.layers.tied_embedding import TiedEmbedding
from keras_attn.models import keras_hub as _registers_its_layers  # noqa: F401
from keras_attn.models.tf_addons.weights import load_tf_addons_weights
from keras_attn.placement import on_device
from keras_attn.text.special_tokens import SpecialTokens
from keras_attn.training import metrics
from keras_attn.training.averaging import average
from keras_attn.training.callbacks import BestCheckpoint
from keras_attn.training.callbacks import DecodingMetrics
from keras_attn.training.callbacks import LastCheckpoints
from keras_attn.training.callbacks import ResumeTraining
from keras_attn.training.distillation import Distilled
from keras_attn.training.distillation import distill
from keras_attn.training.losses import SequenceCrossentropy
from keras_attn.training.metrics import Perplexity
from keras_attn.training.metrics import SequenceAccuracy
from keras_attn.training.metrics import TokenAccuracy
from keras_attn.training.metrics import alignment_error_rate
from keras_attn.training.regularizers import CoverageLoss
from keras_attn.training.regularizers import DoublyStochastic
from keras_attn.training.reinforce import ReinforceModel
from keras_attn.training.scheduled_sampling import ScheduledSamplingModel
from keras_attn.training.schedules import InverseSigmoidDecay
from keras_attn.training.schedules import InverseSquareRootDecay
from keras_attn.viewing.html import attention_html
from keras_attn.viewing.plots import plot_attention

__version__ = "0.4.0"

_NEED_TENSORFLOW = {
    "Among": "decoding.output_sets",
    "BeamSearch": "decoding",
    "BytePair": "text",
    "Bytes": "text",
    "GreedySearch": "decoding",
    "IntegerIds": "text",
    "LanguagePrompt": "decoding.language_prompt",
    "Matches": "decoding.output_sets",
    "MinimumRisk": "reranking",
    "Glossary": "decoding.phrases",
    "Without": "decoding.phrases",
    "pairs": "training.batches",
    "rank_correlation": "viewing.saliency",
    "rerank": "reranking",
    "saliency": "viewing.saliency",
    "Sampling": "decoding",
    "Scores": "decoding.translator",
    "Search": "decoding",
    "SentencePiece": "text",
    "Shortlist": "decoding.shortlist",
    "Splitter": "text",
    "Text": "text",
    "Translation": "decoding.translator",
    "Translations": "decoding.translator",
    "Translator": "decoding.translator",
    "tune": "reranking",
    "Word": "decoding.translator",
    "WordPiece": "text",
    "WordTimes": "decoding.word_times",
    "XLASizes": "decoding.xla_sizes",
}

# Names that need TensorFlow are left out, so `import *` works without it.
__all__ = [
    "AdditiveScore",
    "Alignment",
    "Attention",
    "AttentionDecoder",
    "BahdanauAttention",
    "BestCheckpoint",
    "ConcatScore",
    "CosineScore",
    "CoverageLoss",
    "CoverageScore",
    "DecodingMetrics",
    "Distilled",
    "DotScore",
    "DoublyStochastic",
    "EntmaxAlignment",
    "GRUCell",
    "GeneralScore",
    "HardAlignment",
    "Incremental",
    "InverseSigmoidDecay",
    "InverseSquareRootDecay",
    "LastCheckpoints",
    "LayerNormGRUCell",
    "LayerNormLSTMCell",
    "LocalMonotonicAlignment",
    "LocalPredictiveAlignment",
    "LocationScore",
    "LocationSensitiveScore",
    "LogMelSpectrogram",
    "LogitBias",
    "LuongAttention",
    "MarginalDecoder",
    "MonotonicAlignment",
    "Perplexity",
    "PositionEmbedding",
    "ReinforceAlignment",
    "ReinforceModel",
    "ResidualCell",
    "ResumeTraining",
    "ScaledDotAttention",
    "ScaledDotScore",
    "ScheduledSamplingModel",
    "Score",
    "SequenceAccuracy",
    "SequenceCrossentropy",
    "SigmoidAlignment",
    "SinePositionEncoding",
    "SoftmaxAlignment",
    "SparsemaxAlignment",
    "SpecialTokens",
    "Stepper",
    "TiedEmbedding",
    "TokenAccuracy",
    "alignment_error_rate",
    "attention_html",
    "average",
    "check",
    "distill",
    "load_tf_addons_weights",
    "metrics",
    "on_device",
    "plot_attention",
    "stepper_for",
]


def __getattr__(name):
    if name not in _NEED_TENSORFLOW:
        raise renamed.attribute_error("keras_attn", name)
    try:
        module = importlib.import_module(f"keras_attn.{_NEED_TENSORFLOW[name]}")
        return getattr(module, name)
    except ModuleNotFoundError as error:
        if error.name not in ("tensorflow", "tensorflow_text"):
            raise
        raise ModuleNotFoundError(
            f"`keras_attn.{name}` needs TensorFlow and tensorflow-text. "
            f"Missing: {error.name}. Install both with `pip install "
            '"tensorflow==2.21.*" "tensorflow-text>=2.21.1,<2.22"`; the '
            "layers work without them on JAX and PyTorch.",
            name=error.name,
        ) from error


def __dir__():
    return sorted([*__all__, *_NEED_TENSORFLOW])
