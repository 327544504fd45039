"""`import_keras_hub`: imports KerasHub, of a version that is new enough."""


def import_keras_hub(what: str):
    """Imports KerasHub.

    Args:
        what: What needs it, for the error message.

    Raises:
        ImportError: If it is missing or too old.
    """
    found = "none"
    try:
        import keras_hub
    except ModuleNotFoundError as error:
        if error.name != "keras_hub":
            raise
    else:
        if hasattr(keras_hub.models, "T5Seq2SeqLMPreprocessor"):
            return keras_hub
        found = keras_hub.__version__
    raise ImportError(
        f"`{what}` needs KerasHub 0.32 or later. Received: {found}. Install "
        'it with `pip install "keras-attn[keras-hub]"`.'
    )
