"""Phrases that outputs must or must not contain: `Glossary`, `Without`."""

from keras_attn.decoding.phrases.glossary import Glossary as Glossary
from keras_attn.decoding.phrases.without import Without as Without
