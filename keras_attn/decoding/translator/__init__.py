"""Translates sources to target texts with models, texts and a search."""

from keras_attn.decoding.translator.results import Scores as Scores
from keras_attn.decoding.translator.results import Token as Token
from keras_attn.decoding.translator.results import Translation as Translation
from keras_attn.decoding.translator.results import Translations as Translations
from keras_attn.decoding.translator.results import Word as Word
from keras_attn.decoding.translator.translator import Translator as Translator
