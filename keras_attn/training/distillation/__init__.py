"""Distillation: a teacher generates targets to train a student on."""

from keras_attn.training.distillation.distilled import Distilled as Distilled
from keras_attn.training.distillation.distilled import Record as Record
from keras_attn.training.distillation.distilling import distill as distill
