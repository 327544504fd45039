"""Attention for sequence-to-sequence models in Keras.

Layers, losses and the decoder run on every Keras backend. They are imported
eagerly, so that Keras finds them when it loads a saved model. Text, search,
export and `Translator` need TensorFlow and are imported on first use.
"""

import importlib

from keras_attn import hub as hub
from keras_attn.alignments import Alignment as Alignment
from keras_attn.alignments import EntmaxAlignment as EntmaxAlignment
from keras_attn.alignments import HardAlignment as HardAlignment
from keras_attn.alignments import (
    LocalMonotonicAlignment as LocalMonotonicAlignment,
)
from keras_attn.alignments import (
    LocalPredictiveAlignment as LocalPredictiveAlignment,
)
from keras_attn.alignments import MonotonicAlignment as MonotonicAlignment
from keras_attn.alignments import ReinforceAlignment as ReinforceAlignment
from keras_attn.alignments import Sample as Sample
from keras_attn.alignments import SigmoidAlignment as SigmoidAlignment
from keras_attn.alignments import SoftmaxAlignment as SoftmaxAlignment
from keras_attn.alignments import SparsemaxAlignment as SparsemaxAlignment
from keras_attn.alignments import Window as Window
from keras_attn.attention import Attention as Attention
from keras_attn.attention import BahdanauAttention as BahdanauAttention
from keras_attn.attention import History as History
from keras_attn.attention import LuongAttention as LuongAttention
from keras_attn.attention import Memory as Memory
from keras_attn.attention import ScaledDotAttention as ScaledDotAttention
from keras_attn.callbacks import BestCheckpoint as BestCheckpoint
from keras_attn.callbacks import Decode as Decode
from keras_attn.callbacks import Resume as Resume
from keras_attn.cells import GRUCell as GRUCell
from keras_attn.cells import LayerNormGRUCell as LayerNormGRUCell
from keras_attn.cells import LayerNormLSTMCell as LayerNormLSTMCell
from keras_attn.cells import ResidualCell as ResidualCell
from keras_attn.decoder import AttentionDecoder as AttentionDecoder
from keras_attn.decoder import DecoderState as DecoderState
from keras_attn.decoder import Source as Source
from keras_attn.findings import Finding as Finding
from keras_attn.findings import check as check
from keras_attn.html import attention_html as attention_html
from keras_attn.incremental import Encoded as Encoded
from keras_attn.incremental import Ensemble as Ensemble
from keras_attn.incremental import Incremental as Incremental
from keras_attn.incremental import Stepper as Stepper
from keras_attn.incremental import stepper_for as stepper_for
from keras_attn.losses import SequenceCrossentropy as SequenceCrossentropy
from keras_attn.marginal import MarginalDecoder as MarginalDecoder
from keras_attn.marginal import MarginalState as MarginalState
from keras_attn.metrics import Perplexity as Perplexity
from keras_attn.metrics import SequenceAccuracy as SequenceAccuracy
from keras_attn.metrics import TokenAccuracy as TokenAccuracy
from keras_attn.metrics import alignment_error_rate as alignment_error_rate
from keras_attn.metrics import edit_distance as edit_distance
from keras_attn.metrics import error_rates as error_rates
from keras_attn.migration import (
    load_tf_addons_weights as load_tf_addons_weights,
)
from keras_attn.parts import Part as Part
from keras_attn.placement import on_device as on_device
from keras_attn.plots import plot_attention as plot_attention
from keras_attn.positions import PositionEmbedding as PositionEmbedding
from keras_attn.positions import SinePositionEncoding as SinePositionEncoding
from keras_attn.regularizers import CoverageLoss as CoverageLoss
from keras_attn.regularizers import DoublyStochastic as DoublyStochastic
from keras_attn.reinforce import ReinforceModel as ReinforceModel
from keras_attn.scheduled_sampling import (
    ScheduledSamplingModel as ScheduledSamplingModel,
)
from keras_attn.schedules import InverseSigmoidDecay as InverseSigmoidDecay
from keras_attn.schedules import (
    InverseSquareRootDecay as InverseSquareRootDecay,
)
from keras_attn.scores import AdditiveScore as AdditiveScore
from keras_attn.scores import ConcatScore as ConcatScore
from keras_attn.scores import CosineScore as CosineScore
from keras_attn.scores import CoverageScore as CoverageScore
from keras_attn.scores import DotScore as DotScore
from keras_attn.scores import GeneralScore as GeneralScore
from keras_attn.scores import LocationScore as LocationScore
from keras_attn.scores import LocationSensitiveScore as LocationSensitiveScore
from keras_attn.scores import ScaledDotScore as ScaledDotScore
from keras_attn.scores import Score as Score
from keras_attn.special_tokens import SpecialTokens as SpecialTokens

__version__ = "0.3.0"

_NEED_TENSORFLOW = {
    "BeamSearch": "search",
    "BytePair": "text",
    "Bytes": "text",
    "GreedySearch": "search",
    "Hypotheses": "search",
    "Ids": "text",
    "Sampling": "search",
    "SentencePiece": "text",
    "Scores": "translator",
    "Search": "search",
    "Shortlist": "shortlist",
    "Splitter": "text",
    "Text": "text",
    "Token": "translator",
    "Pairs": "batches",
    "pairs": "batches",
    "Translation": "translator",
    "Translations": "translator",
    "Translator": "translator",
    "WordPiece": "text",
    "rank_correlation": "gradients",
    "saliency": "gradients",
}


def __getattr__(name):
    if name not in _NEED_TENSORFLOW:
        raise AttributeError(f"module 'keras_attn' has no attribute {name!r}")
    try:
        module = importlib.import_module(f"keras_attn.{_NEED_TENSORFLOW[name]}")
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
    return getattr(module, name)


def __dir__():
    return sorted([*globals(), *_NEED_TENSORFLOW])
