"""`configuration_of` and `build`: a model by its `model_type`."""

import contextlib
from typing import Any

import keras

from keras_attn.caller import without_warnings_of_keras
from keras_attn.models.hugging_face.architecture import bart_configuration
from keras_attn.models.hugging_face.architecture import t5_configuration
from keras_attn.models.hugging_face.architecture import whisper_configuration
from keras_attn.models.hugging_face.architecture.bart_builder import BartBuilder
from keras_attn.models.hugging_face.architecture.bart_configuration import (
    BartConfiguration,
)
from keras_attn.models.hugging_face.architecture.t5_builder import T5Builder
from keras_attn.models.hugging_face.architecture.t5_configuration import (
    T5Configuration,
)
from keras_attn.models.hugging_face.architecture.table import Table
from keras_attn.models.hugging_face.architecture.whisper_builder import (
    WhisperBuilder,
)
from keras_attn.models.hugging_face.architecture.whisper_configuration import (
    WhisperConfiguration,
)

_CONFIGURATIONS: dict[str, Any] = {
    **dict.fromkeys(bart_configuration.FAMILIES, BartConfiguration),
    **dict.fromkeys(t5_configuration.FAMILIES, T5Configuration),
    **dict.fromkeys(whisper_configuration.FAMILIES, WhisperConfiguration),
}
_BUILDERS: dict[Any, Any] = {
    BartConfiguration: BartBuilder,
    T5Configuration: T5Builder,
    WhisperConfiguration: WhisperBuilder,
}


def configuration_of(
    fields: dict,
) -> BartConfiguration | T5Configuration | WhisperConfiguration:
    """Reads the fields of a `config.json`.

    Raises:
        ValueError: If the model is of another family, or if a field that could
            change results is unknown, has a wrong type or an unsupported value.
    """
    family = fields.get("model_type")
    if family not in _CONFIGURATIONS:
        raise ValueError(
            "`from_hugging_face` reads encoder-decoders that write text. "
            f"Received: a `config.json` with model_type={family!r}. It reads "
            f"{', '.join(sorted(_CONFIGURATIONS))} (NLLB is of m2m_100, "
            "mBART-50 of mbart, Flan and ByT5 of t5)."
        )
    return _CONFIGURATIONS[family].of(fields)


def build(configuration, checkpoint, dtype) -> keras.Model:
    """Returns a model with its weights, of a source and the target's ids.

    The source is ids, or the features of sound.

    Args:
        configuration: What `configuration_of()` returned.
        checkpoint: The `Checkpoint`.
        dtype: Dtype policy of the layers, or `None` for Keras's.

    Raises:
        ImportError: If it needs KerasHub, which is not installed.
        ValueError: If a weight is missing, has another shape or is left over.
    """
    table = Table(checkpoint)
    with _policy(dtype), without_warnings_of_keras():
        model = _BUILDERS[type(configuration)](configuration, table).model()
    table.fill()
    return model


@contextlib.contextmanager
def _policy(dtype):
    """Sets the dtype policy of layers that are made in a `with` block."""
    before = keras.config.dtype_policy()
    if dtype is not None:
        keras.config.set_dtype_policy(dtype)
    try:
        yield
    finally:
        keras.config.set_dtype_policy(before)
