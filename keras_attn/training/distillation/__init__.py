"""Targets that a teacher writes for a student to learn from."""

from keras_attn.training.distillation.distilled import Distilled as Distilled
from keras_attn.training.distillation.distilled import Record as Record
from keras_attn.training.distillation.distilling import distill as distill
