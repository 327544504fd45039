"""From sources to target texts: models, texts and a search, joined."""

from keras_attn.translator.base import Translator as Translator
from keras_attn.translator.results import Scores as Scores
from keras_attn.translator.results import Token as Token
from keras_attn.translator.results import Translation as Translation
from keras_attn.translator.results import Translations as Translations
