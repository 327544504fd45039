"""What is known of a model of speech: its sound, and its prompts."""

import re
from typing import Any

from keras_attn.layers.log_mel_spectrogram import LogMelSpectrogram
from keras_attn.models.hugging_face.directory import Directory

_FILE = "preprocessor_config.json"
_FILES = _FILE, "processor_config.json"
# Our names of the fields that say how features are computed
_ARGUMENTS = {
    "feature_size": "num_mels",
    "chunk_length": "seconds",
    "sampling_rate": "sampling_rate",
    "n_fft": "fft_length",
    "hop_length": "stride",
}
# Fields that say the same again, or what only their call does.
_WITHOUT_EFFECT = {
    "feature_extractor_type",
    "mel_filters",
    "n_samples",
    "nb_max_frames",
    "padding_side",
    "processor_class",
    "return_attention_mask",
}
_USUAL = {"dither": 0.0, "padding_value": 0.0}
_SEVERAL = 51_865  # ids of the smallest model of several languages
_CODE = re.compile(r"<\|[a-z]{2,3}\|>")
_TASKS = "transcribe", "translate"


def sound_of(directory: Directory, configuration) -> dict:
    """Returns arguments of the `LogMelSpectrogram` of a model.

    Args:
        directory: The `Directory`. Without a file for it, the features are
            those of all models of OpenAI.
        configuration: The `WhisperConfiguration`.

    Raises:
        ValueError: If the features do not fit the model, or a field that
            could change them is not known.
    """
    fields = _fields(directory)
    found = {
        ours: fields.pop(theirs)
        for theirs, ours in _ARGUMENTS.items()
        if fields.get(theirs) is not None
    }
    found.setdefault("num_mels", configuration.mels)
    left = {
        x: y
        for x, y in fields.items()
        if x not in _WITHOUT_EFFECT and y not in (None, _USUAL.get(x, False))
    }
    if left:
        raise ValueError(
            f"A field of `{_FILE}` may change the features of sound, so all "
            f"must be known. Received: {left!r:.200}. If a field has no "
            "effect, delete it."
        )
    layer = LogMelSpectrogram(**found)
    frames = layer.cut_at // layer.stride
    expected = configuration.frames, configuration.mels
    if (frames, layer.num_mels) != expected:
        raise ValueError(
            "The features of sound must be those that the model reads. "
            f"Received: {frames} frames of {layer.num_mels} by `{_FILE}`, and "
            f"{expected[0]} of {expected[1]} by `config.json`. Both files must "
            "be of the same model."
        )
    return found


def _fields(directory):
    for name in _FILES:
        found = directory.json(name)
        if found is not None:
            nested = found.get("feature_extractor")
            return dict(nested if isinstance(nested, dict) else found)
    return {}


class Prompts:
    """The tokens that tell a model of speech its language and its task.

    Args:
        generation: Fields of a `generation_config.json`.
        ids: Ids by token, or `None` if texts are ids.
        size: Number of ids of the model.
    """

    def __init__(self, generation: dict, ids: dict[str, int] | None, size: int):
        self._several = generation.get("is_multilingual")
        if self._several is None:
            self._several = size >= _SEVERAL
        known: dict[str, Any] = {}
        if ids is not None:
            known = {x: i for x, i in ids.items() if i < size}
        known |= generation.get("lang_to_id") or {}
        tasks = generation.get("task_to_id") or {}
        known |= {f"<|{x}|>": i for x, i in tasks.items()}
        quiet = generation.get("no_timestamps_token_id")
        if quiet is not None:
            known["<|notimestamps|>"] = quiet
        self._ids = known

    def after_start(self, source, target) -> tuple[int, ...]:
        """Returns the ids that follow the start token of every output.

        Args:
            source: Language of the sound, or `None` if requests tell it.
            target: Language of the text, or `None` for that of the sound.

        Raises:
            ValueError: If the model does not know these.
        """
        if not self._several:
            if source is not None or target is not None:
                raise ValueError(
                    "`source` and `target` name languages for models of "
                    f"several. Received: source={source!r}, target={target!r} "
                    "and a model of English alone. Leave them out."
                )
            return self._quiet()
        if source is None:
            if target is not None:
                raise ValueError(
                    "`target` needs the language of the sound too. Received: "
                    f"target={target!r} and source=None. Pass `source=`."
                )
            return ()
        if target not in (None, source, "en"):
            raise ValueError(
                "A model of speech writes the language of the sound, or "
                f"English. Received: source={source!r}, target={target!r}."
            )
        language = self._id(f"<|{source}|>", "source", source)
        task = _TASKS[target not in (None, source)]
        return (language, self._id(f"<|{task}|>", "target", target)) + (
            self._quiet()
        )

    def _quiet(self):
        found = self._ids.get("<|notimestamps|>")
        return () if found is None else (found,)

    def _id(self, token, name, given):
        if token not in self._ids:
            known = sorted(x for x in self._ids if _CODE.fullmatch(x))
            shown = ", ".join(x.strip("<|>") for x in known) or "none"
            raise ValueError(
                f"`{name}` must be a language of the model. Received: "
                f"{name}={given!r}, and no id of {token}. It has {shown}."
            )
        return self._ids[token]
