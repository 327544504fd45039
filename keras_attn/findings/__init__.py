"""`check()` and its findings: mistakes in a model and its data."""

from keras_attn.findings.base import check as check
from keras_attn.findings.finding import Finding as Finding
