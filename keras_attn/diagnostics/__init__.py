"""`check()`: finds mistakes in a model and its data."""

from keras_attn.diagnostics.checking import check as check
from keras_attn.diagnostics.finding import Finding as Finding
