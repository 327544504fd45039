"""Looks for mistakes before a model is trained."""

from keras_attn.findings.base import check as check
from keras_attn.findings.finding import Finding as Finding
