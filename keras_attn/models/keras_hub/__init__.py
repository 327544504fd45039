"""Models of KerasHub as arguments of a `Translator`.

A task or a backbone becomes a functional model with list inputs. Its tokenizer
becomes `Text`s with the same ids, and its preprocessor defines the special
tokens. `Translator.from_keras_hub` uses it.

The layers and models imported here need only Keras, so they are registered
whenever `keras_attn` is imported; the other files need TensorFlow.
"""

from keras_attn.models.keras_hub.models import TiedModel as TiedModel
from keras_attn.models.keras_hub.sound import SoundFeatures as SoundFeatures
from keras_attn.models.keras_hub.sound import Waveform as Waveform
from keras_attn.models.keras_hub.t5 import T5Model as T5Model
