"""Functional models with list inputs, around tasks of KerasHub."""

import inspect

import keras
from keras import ops

from keras_attn.hub.sound import SoundFeatures
from keras_attn.hub.sound import Waveform

TARGET = "decoder_token_ids"
SOURCE = "encoder_token_ids"
_TARGET_MASK = "decoder_padding_mask"
_SOURCE_MASK = "encoder_padding_mask"
_SAMPLES = "encoder_input_values"
_FEATURES = "encoder_features"


@keras.saving.register_keras_serializable("keras_attn")
class TiedModel(keras.Model):
    """A backbone of KerasHub whose token embedding also makes the logits.

    It is for backbones without a task, such as `WhisperBackbone`.

    Args:
        backbone: A backbone with `token_embedding`, a `ReversibleEmbedding`.
    """

    def __init__(self, backbone, **kwargs):
        self.backbone = backbone  # first, so that it holds the weights
        hidden = backbone(backbone.input)["decoder_sequence_output"]
        super().__init__(
            inputs=backbone.input,
            outputs=backbone.token_embedding(hidden, reverse=True),
            **kwargs,
        )

    def get_config(self):
        backbone = keras.saving.serialize_keras_object(self.backbone)
        return {"backbone": backbone, "name": self.name}

    @classmethod
    def from_config(cls, config, custom_objects=None):
        config = dict(config)
        backbone = keras.saving.deserialize_keras_object(
            config.pop("backbone"), custom_objects
        )
        return cls(backbone, **config)


def task_of(model):
    """Returns a model with logits, without a preprocessor.

    Args:
        model: A task, or a backbone.

    Raises:
        ValueError: If it is neither, or not from a source to a text.
    """
    import keras_hub

    hub = keras_hub.models
    if isinstance(model, hub.Seq2SeqLM):
        return _without_preprocessor(model)
    if not isinstance(model, hub.Backbone) or not isinstance(model.input, dict):
        raise ValueError(
            "`from_keras_hub` takes an encoder-decoder of KerasHub: a "
            "`Seq2SeqLM`, such as `BartSeq2SeqLM` or `MoonshineAudioToText`, "
            f"or the backbone of one. Received: {model!r:.200} (of type "
            f"{type(model).__name__}). Any other functional model goes to "
            "`Translator(model, source_text, target_text)`, with list inputs."
        )
    _require_decoder(model)
    kinds = [
        x
        for x in vars(hub).values()
        if isinstance(x, type)
        and issubclass(x, hub.Seq2SeqLM)
        and x.backbone_cls is not None
        and isinstance(model, x.backbone_cls)
    ]
    if kinds:
        # That of the nearest class, if a backbone is a subclass of another.
        order = type(model).__mro__
        kind = min(kinds, key=lambda x: order.index(x.backbone_cls))
        task = kind(backbone=model, preprocessor=None)
        if task.has_task_weights():
            raise ValueError(
                f"A `{kind.__name__}` has weights beside its backbone's, which "
                "make the logits. Received: the backbone, "
                f"{type(model).__name__}. Pass the `{kind.__name__}`."
            )
        return task
    embedding = getattr(model, "token_embedding", None)
    call = inspect.signature(type(embedding).call).parameters
    if "reverse" not in call:
        raise ValueError(
            "A backbone without a task needs a `token_embedding` that also "
            "makes logits, a `ReversibleEmbedding`. Received: "
            f"{type(model).__name__} with {embedding!r:.100}. Build a "
            "functional model with logits and list inputs, and pass it to "
            "`Translator(model, source_text, target_text)`."
        )
    return TiedModel(model)


def list_model(task, pad: int, size: int, audio_converter) -> keras.Model:
    """Returns a model of the source inputs and, last, the target's ids.

    Masks of padding are derived from the sources.

    Args:
        task: Result of `task_of()`.
        pad: Id of padding.
        size: Number of ids. Further logits are cut off, as they have no
            token.
        audio_converter: KerasHub's layer from sound to features, or `None`.
    """
    _require_decoder(task)
    known = task.input
    target = keras.Input((None,), dtype="int32", name="target")
    given, sources = {TARGET: target}, []
    if _TARGET_MASK in known:
        # A search never decodes padding, and the loss leaves it out.
        given[_TARGET_MASK] = ops.ones_like(
            target, dtype=known[_TARGET_MASK].dtype
        )
    if SOURCE in known:
        source = keras.Input((None,), dtype="int32", name="source")
        sources.append(source)
        given[SOURCE] = source
        if _SOURCE_MASK in known:
            given[_SOURCE_MASK] = ops.cast(
                ops.not_equal(source, pad), known[_SOURCE_MASK].dtype
            )
    reads_sound = _SAMPLES in known or (audio_converter and _FEATURES in known)
    if reads_sound:
        sound = keras.Input((None,), name="sound")
        sources.append(sound)
        if _SAMPLES in known:
            samples, mask = Waveform.like(audio_converter)(sound)
            given[_SAMPLES] = samples
            given[_SOURCE_MASK] = ops.cast(mask, known[_SOURCE_MASK].dtype)
        else:
            given[_FEATURES] = SoundFeatures(audio_converter)(sound)
    elif audio_converter is not None:
        raise ValueError(
            "`audio_converter` turns sound into the features of a model of "
            f"sound. Received: {type(audio_converter).__name__} and a model "
            f"of {sorted(known)}. Leave it out."
        )
    for name, x in known.items():
        if name not in given:
            given[name] = keras.Input(x.shape[1:], dtype=x.dtype, name=name)
            sources.append(given[name])
    logits = task(given)
    if size < logits.shape[-1]:
        logits = logits[..., :size]
    return keras.Model([*sources, target], logits)


def _without_preprocessor(task):
    """Returns a task of the same weights that keeps no vocabulary."""
    if task.preprocessor is None or task.has_task_weights():
        return task
    try:
        return type(task)(backbone=task.backbone, preprocessor=None)
    except TypeError:  # a subclass with arguments of its own
        return task


def _require_decoder(model):
    known = model.input
    if not isinstance(known, dict) or TARGET not in known:
        names = list(known) if isinstance(known, dict) else known
        raise ValueError(
            "`from_keras_hub` needs an encoder-decoder, with an input "
            f"'{TARGET}'. Received: {type(model).__name__} with the inputs "
            f"{names!r:.200}. A language model without an encoder is not "
            "supported."
        )
