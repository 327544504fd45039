"""How a speech model reads sound, and finds when words are spoken."""

from keras_attn.decoding.word_times import WordTimes
from keras_attn.layers.log_mel_spectrogram import LogMelSpectrogram
from keras_attn.models.hugging_face.architecture import attention_name
from keras_attn.models.hugging_face.directory import Directory

_FILE = "preprocessor_config.json"
_FILES = _FILE, "processor_config.json"
# Our names for the fields that define how features are computed
_ARGUMENTS = {
    "feature_size": "num_mels",
    "chunk_length": "seconds",
    "sampling_rate": "sampling_rate",
    "n_fft": "fft_length",
    "hop_length": "stride",
}
# Fields that repeat others, or concern only Hugging Face's call.
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


def word_times_of(fields: dict, configuration, prompts) -> WordTimes:
    """Returns how a model of speech finds when words are spoken.

    Args:
        fields: Those of speech in a `generation_config.json`. Without
            `alignment_heads` all heads of the later half of the decoder count,
            as in OpenAI's code.
        configuration: The `WhisperConfiguration`, its sound known.
        prompts: The `Prompts`.

    Raises:
        ValueError: If the heads are not pairs of a block and a head.
    """
    stack = configuration.decoder
    heads = fields.get("alignment_heads")
    if heads is None:
        later = range(stack.blocks // 2, stack.blocks)
        heads = [(i, n) for i in later for n in range(stack.heads)]
    if not isinstance(heads, list | tuple) or not all(
        isinstance(pair, list | tuple)
        and len(pair) == 2
        and all(type(x) is int for x in pair)
        and pair[0] in range(stack.blocks)
        and pair[1] in range(stack.heads)
        for pair in heads
    ):
        raise ValueError(
            "`alignment_heads`, in `generation_config.json` or `search`, must "
            "be a list of pairs of a block of the decoder, below "
            f"{stack.blocks}, and one of its heads, below {stack.heads}. "
            f"Received: alignment_heads={heads!r:.200}"
        )
    layer = LogMelSpectrogram(**configuration.sound)
    quiet = prompts.quiet
    writes_times = prompts.timestamps is not None
    return WordTimes(
        [(attention_name(i), n) for i, n in heads],
        samples=2 * layer.stride,  # a convolution halves the frames
        sampling_rate=layer.sampling_rate,
        median=configuration.median,
        no_speech=None if quiet is None else quiet - 1,
        before=(quiet,) if writes_times else (),
    )


def _fields(directory):
    for name in _FILES:
        found = directory.json(name)
        if found is not None:
            nested = found.get("feature_extractor")
            return dict(nested if isinstance(nested, dict) else found)
    return {}
