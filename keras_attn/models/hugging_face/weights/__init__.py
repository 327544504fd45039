"""Checkpoints of Hugging Face: arrays by name, read one at a time."""

from keras_attn.models.hugging_face.weights.checkpoint import Checkpoint

__all__ = ["Checkpoint"]
