"""Functional models with list inputs, around tasks of KerasHub."""

import inspect

import keras
from keras import ops

from keras_attn.models.keras_hub.library import import_keras_hub
from keras_attn.models.keras_hub.sound import SoundFeatures
from keras_attn.models.keras_hub.sound import Waveform

TARGET = "decoder_token_ids"
HIDDEN = "decoder_sequence_output"
SOURCE = "encoder_token_ids"
_TARGET_MASK = "decoder_padding_mask"
_SOURCE_MASK = "encoder_padding_mask"
_SAMPLES = "encoder_input_values"
_FEATURES = "encoder_features"
_PICTURES = "images"
_PLACES = "vision_indices"  # of the pictures among the ids
_NO_ENCODER = (
    "A language model without an encoder is not supported, neither here nor "
    "by `Translator`: use its own `generate`."
)


@keras.saving.register_keras_serializable("keras_attn")
class TiedModel(keras.Model):
    """A backbone of KerasHub whose token embedding also makes the logits.

    It is for backbones without a task, such as `WhisperBackbone`.

    Args:
        backbone: A backbone with `token_embedding`, a `ReversibleEmbedding`.
    """

    def __init__(self, backbone, **kwargs):
        self.backbone = backbone  # first, so that it holds the weights
        hidden = backbone(backbone.input)[HIDDEN]
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
        ValueError: If it is neither, or has no encoder; or if it is a backbone
            that cannot compute logits by itself.
    """
    hub = import_keras_hub("from_keras_hub").models
    if isinstance(model, str):
        raise ValueError(
            "`from_keras_hub` takes a model, not a name. Received: "
            f"model={model!r:.200}. Load it by "
            f"`keras_hub.models.Seq2SeqLM.from_preset({model!r:.200})`, and "
            "pass what that returns."
        )
    if isinstance(model, hub.Seq2SeqLM):
        return _without_preprocessor(model)
    if isinstance(model, hub.CausalLM):
        raise ValueError(
            "`from_keras_hub` takes an encoder-decoder of KerasHub. Received: "
            f"a {type(model).__name__}. {_NO_ENCODER}"
        )
    if not isinstance(model, hub.Backbone) or not isinstance(model.input, dict):
        raise ValueError(
            "`from_keras_hub` takes an encoder-decoder of KerasHub: a "
            "`Seq2SeqLM`, such as `BartSeq2SeqLM` or `MoonshineAudioToText`, "
            f"or the backbone of one. Received: {model!r:.200} (of type "
            f"{type(model).__name__}). Any other functional model of a source "
            "and a target goes to `Translator(model, source_text, "
            "target_text)`, with list inputs."
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
        # Takes the nearest class, if a backbone is a subclass of another.
        order = type(model).__mro__
        kind = min(kinds, key=lambda x: order.index(x.backbone_cls))
        task = kind(backbone=model, preprocessor=None)
        if task.has_task_weights():
            raise ValueError(
                f"A `{kind.__name__}` has weights besides its backbone's, "
                "which make the logits. Received: the backbone, "
                f"{type(model).__name__}. Pass the `{kind.__name__}`."
            )
        return task
    embedding = getattr(model, "token_embedding", None)
    call = getattr(type(embedding), "call", _require_decoder)
    has_hidden = isinstance(model.output, dict) and HIDDEN in model.output
    if "reverse" not in inspect.signature(call).parameters or not has_hidden:
        raise ValueError(
            "A backbone without a task needs a `token_embedding` that also "
            f"makes logits, a `ReversibleEmbedding`, and an output '{HIDDEN}'. "
            f"Received: {type(model).__name__} with {embedding!r:.100} and "
            f"the output {model.output!r:.200}. Build a "
            "functional model with logits and list inputs, and pass it to "
            "`Translator(model, source_text, target_text)`."
        )
    return TiedModel(model)


def list_model(task, pad: int, size: int, audio_converter) -> keras.Model:
    """Returns a model of the source inputs and, last, the target's ids.

    Masks of padding are derived from the sources. A model that looks for
    pictures among the ids of its source reads none.

    Args:
        task: Result of `task_of()`.
        pad: Id of padding.
        size: Number of ids. Further logits are cut off, because they stand for
            no token.
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
        if _PLACES in known:
            given |= _no_pictures(source, known)
    _require_like(audio_converter, task)
    reads_sound = _SAMPLES in known or (audio_converter and _FEATURES in known)
    if reads_sound:
        sound = keras.Input((None,), name="sound")
        sources.append(sound)
        if _SAMPLES in known:
            samples, mask = Waveform.like(audio_converter)(sound)
            given[_SAMPLES] = samples
            given[_SOURCE_MASK] = ops.cast(mask, known[_SOURCE_MASK].dtype)
        else:
            features = SoundFeatures(audio_converter)(sound)
            _require_short(audio_converter, features, task.backbone)
            given[_FEATURES] = features
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
    logits = _logits(task, given, audio_converter)
    if size < logits.shape[-1]:
        logits = logits[..., :size]
    return keras.Model([*sources, target], logits)


def _no_pictures(source, known):
    """Returns no pictures for each row of a source, and no places of them."""
    none = source[:, :0]
    pictures = known[_PICTURES]
    one = ops.ones((1, 1, *pictures.shape[2:]), pictures.dtype)
    each = ops.cast(none, pictures.dtype)[:, :, None, None, None]
    return {_PICTURES: each * one, _PLACES: none}


def _logits(task, given, audio_converter):
    """Calls a task on the tensors of its inputs."""
    try:
        return task(given)
    except ValueError as error:
        if audio_converter is None:
            raise
        raise ValueError(
            "The `audio_converter` must make the features that the backbone "
            f"was trained on. Received: {type(audio_converter).__name__}, "
            f"whose features do not fit {type(task.backbone).__name__}: "
            f"{error!s:.300}. Load both from one preset."
        ) from error


def _require_short(audio_converter, features, backbone):
    """Raises `ValueError` for more frames than a backbone has positions."""
    longest = getattr(backbone, "max_encoder_sequence_length", None)
    if longest is not None and features.shape[1] > longest:
        raise ValueError(
            "The `audio_converter` must make no more frames than the backbone "
            f"reads. Received: {type(audio_converter).__name__}, which makes "
            f"{features.shape[1]}, and a {type(backbone).__name__} of "
            f"{longest}. Load both from one preset."
        )


def _require_like(audio_converter, task):
    """Raises `ValueError` for a converter of another family."""
    kind = getattr(audio_converter, "backbone_cls", None)
    if kind is not None and not isinstance(task.backbone, kind):
        raise ValueError(
            "The `audio_converter` must be that of the model's family. "
            f"Received: {type(audio_converter).__name__}, which is for a "
            f"`{kind.__name__}`, and a {type(task.backbone).__name__}. Leave "
            "it out, or load both from one preset."
        )


def _without_preprocessor(task):
    """Returns a task of the same weights that keeps no vocabulary."""
    kind = type(task)
    is_own = not kind.__module__.startswith("keras_hub.")  # with arguments
    if task.preprocessor is None or task.has_task_weights() or is_own:
        return task
    return kind(backbone=task.backbone, preprocessor=None)


def _require_decoder(model):
    known = model.input
    if not isinstance(known, dict) or TARGET not in known:
        names = list(known) if isinstance(known, dict) else known
        raise ValueError(
            "`from_keras_hub` needs an encoder-decoder, with an input "
            f"'{TARGET}'. Received: {type(model).__name__} with the inputs "
            f"{names!r:.200}. {_NO_ENCODER}"
        )
