"""Callbacks for `model.fit`."""

from keras_attn.training.callbacks.best import BestCheckpoint as BestCheckpoint
from keras_attn.training.callbacks.decoding_metrics import (
    DecodingMetrics as DecodingMetrics,
)
from keras_attn.training.callbacks.last_checkpoints import (
    LastCheckpoints as LastCheckpoints,
)
from keras_attn.training.callbacks.resume_training import (
    ResumeTraining as ResumeTraining,
)
