"""`arguments_of`: the arguments of a `Translator`, from a KerasHub model."""

from typing import Any

from keras_attn.decoding import BeamSearch
from keras_attn.decoding import Search
from keras_attn.incremental import Incremental
from keras_attn.models.keras_hub import models
from keras_attn.models.keras_hub.texts import Texts


def arguments_of(
    model,
    search: Search | None,
    preprocessor,
    audio_converter,
    prompt,
) -> dict[str, Any]:
    """Returns arguments of `Translator`; see `Translator.from_keras_hub`."""
    task = models.task_of(model)
    if preprocessor is None:
        preprocessor = getattr(model, "preprocessor", None)
    if preprocessor is None:
        raise ValueError(
            "`from_keras_hub` needs to know how text becomes ids. Received: "
            f"{type(model).__name__} without a preprocessor. Pass "
            "`preprocessor=`: a preprocessor or a tokenizer of KerasHub, or "
            "the model's `SpecialTokens` to read and write ids as numbers."
        )
    if audio_converter is None:
        audio_converter = getattr(preprocessor, "audio_converter", None)
    texts = Texts.of(preprocessor, task, prompt)
    found = models.list_model(
        task, texts.special.pad, texts.size, audio_converter
    )
    longest = Incremental(found).longest
    texts = texts.for_lengths(
        getattr(task.backbone, "max_sequence_length", None), longest
    )
    if search is None:
        search = BeamSearch(max_length=texts.steps(BeamSearch().max_length))
    return {
        "model": found,
        "source_text": texts.sources(found),
        "target_text": texts.target,
        "search": search,
    }
