"""The models: their `config.json`, their layers and their weights."""

from keras_attn.models.hugging_face.architecture.bart_builder import (
    attention_name as attention_name,
)
from keras_attn.models.hugging_face.architecture.families import build as build
from keras_attn.models.hugging_face.architecture.families import (
    configuration_of as configuration_of,
)
from keras_attn.models.hugging_face.architecture.whisper_configuration import (
    WhisperConfiguration as WhisperConfiguration,
)
