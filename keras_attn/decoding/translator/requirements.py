"""Checks that a translator's models, texts and options fit together."""

from collections.abc import Mapping

import keras
import tensorflow as tf

from keras_attn.decoding.phrases.glossary import Glossary
from keras_attn.decoding.shortlist import Shortlist
from keras_attn.decoding.translator.several import Several
from keras_attn.decoding.translator.sources import FeatureSource
from keras_attn.decoding.translator.sources import LineSource
from keras_attn.graph.nodes import readers_of
from keras_attn.keras_internals import layers_within
from keras_attn.text.text import Text


def require_texts(source_text, target_text) -> None:
    """Raises `ValueError` unless all texts are suitable `Text`s."""
    for name, text in _named(source_text, target_text).items():
        if isinstance(text, Text) and text.splitter.draws:
            raise ValueError(
                f"`{name}` must split a string the same way each time. "
                "Received: a text of `Text.sampled()`, which is for training. "
                "Pass the text that it was made from."
            )
        if name == "target_text" and getattr(text, "special", None):
            _require_end(text)
        if isinstance(text, Text) or (text is None and name == "source_text"):
            continue
        raise ValueError(
            f"`{name}` must be a `Text`"
            + (
                ", None for arrays, or a dictionary of `Text`s by the names "
                "of inputs"
                if name == "source_text"
                else ""
            )
            + f". Received: {name}={text!r:.80} (of type "
            f"{type(text).__name__}). `Text.from_lines(lines, split=...)` "
            "makes one from lines, `Text(tokens, split=...)` from a list of "
            "tokens; the ids must be those that the model was trained on."
        )


def _require_end(text):
    """Raises `ValueError` unless a text has an end token for targets."""
    if text.special.end < 0:
        raise ValueError(
            "Targets begin with a start token and end with an end token. "
            "Received: target_text without an end token. Name both, for "
            'example `Text.from_text_vectorization(layer, start="[start]", '
            'end="[end]")`.'
        )


def _named(source_text, target_text) -> dict:
    """Returns the texts by their names in error messages."""
    texts = {"source_text": source_text}
    if isinstance(source_text, Mapping):
        texts = {f"source_text[{k!r}]": v for k, v in source_text.items()}
    return texts | {"target_text": target_text}


def sources_of(models, source_text) -> LineSource | FeatureSource | Several:
    """Checks the models' inputs and returns the sources they read."""
    first, *others = models
    *inputs, _ = first.inputs
    for number, other in enumerate(others, start=2):
        *theirs, _ = other.inputs
        if [_spec(x) for x in theirs] != [_spec(x) for x in inputs]:
            raise ValueError(
                "The models of an ensemble must have the same source inputs. "
                f"Received: model 1 with {[_spec(x) for x in inputs]}, model "
                f"{number} with {[_spec(x) for x in theirs]}."
            )
        _require_order(number, inputs, theirs, source_text)
    if source_text is None:
        sizes = [_cut_at(first, x) for x in inputs]
        return FeatureSource(
            inputs, sizes, [_reads_sound(first, x) for x in inputs]
        )
    if isinstance(source_text, Mapping):
        return Several(inputs, _texts_of(inputs, source_text))
    if len(inputs) != 1 or len(inputs[0].shape) != 2:
        raise ValueError(
            "A `Translator` of text needs a model of two inputs, the source's "
            "ids and the target's, each of shape (batch, length), or one-hot "
            "vectors (batch, length, size) as wide as the `Text`. Received: "
            f"inputs of shape {[tuple(x.shape) for x in first.inputs]}. If "
            "the source is not text, pass None as `source_text`, and arrays "
            "when you call the translator. If a model has several source "
            "inputs, pass a dictionary of `Text`s by the names of those that "
            "read text."
        )
    return LineSource(source_text)


def _cut_at(model, source):
    """Returns the number of samples at which a model cuts an input, if any.

    A layer that reads an input and cuts it has an attribute `cut_at`.
    """
    sizes = _of_readers(model, source, "cut_at")
    return next((x for x in sizes if x is not None), None)


def _reads_sound(model, source) -> bool:
    """Returns whether an input is samples of sound.

    A layer that reads them has a true attribute `reads_sound`, or cuts them.
    """
    cut = _cut_at(model, source) is not None
    return cut or any(_of_readers(model, source, "reads_sound"))


def _of_readers(model, source, name):
    """Returns an attribute of the layers that have it and read an input."""
    return [
        getattr(layer, name)
        for layer in model.layers
        if hasattr(layer, name) and layer.input is source
    ]


def _require_order(number, inputs, theirs, source_text):
    """Raises `ValueError` if a model names its inputs in another order."""
    names, others = ([x.name for x in some] for some in (inputs, theirs))
    moved = names != others and sorted(names) == sorted(others)
    if moved or (names != others and isinstance(source_text, Mapping)):
        raise ValueError(
            "The models of an ensemble must have the same source inputs, in "
            f"one order. Received: model 1 with {names}, model {number} with "
            f"{others}. Rebuild it with its inputs in the order of model 1, "
            "`keras.Model([...], model.outputs)`, or use the same names."
        )


def _texts_of(inputs, source_text):
    """Checks the names of a caller's texts, and the shapes of their inputs."""
    known = {x.name: x for x in inputs}
    if not source_text or set(source_text) - set(known):
        raise ValueError(
            "`source_text` must have a `Text` by the name of each source "
            f"input that reads text, some of {list(known)}. Received: "
            f"{list(source_text)}. `keras.Input(..., name=...)` names an "
            "input; without texts pass None."
        )
    for name in source_text:
        if len(known[name].shape) != 2 or known[name].shape[1] is not None:
            raise ValueError(
                "An input that reads text takes ids of shape (batch, length), "
                "of any length. "
                f"Received: a `Text` for '{name}', whose shape is "
                f"{tuple(known[name].shape)}. Without a `Text` it takes "
                "arrays."
            )
    return dict(source_text)


def require_compilable(models) -> None:
    """Raises `ValueError` if XLA cannot compile a layer of the models."""
    for layer in (x for model in models for x in layers_within(model)):
        # Recurrent layers set it to false because of cuDNN, which decoding
        # does not use.
        if not layer.supports_jit and not hasattr(layer, "use_cudnn"):
            raise ValueError(
                "XLA compiles a search only if it can compile the whole "
                f"model. Received: jit_compile=True, and '{layer.name}' "
                f"({type(layer).__name__}), which has `supports_jit=False`. "
                "Leave `jit_compile` out."
            )


def require_vocabulary(models, target_text):
    """Raises `ValueError` unless each target id has exactly one logit."""
    for model in models:
        vocabulary = model.outputs[0].shape[-1]
        if vocabulary != target_text.size:
            raise ValueError(
                "The model must have one logit for each id of the target "
                f"text. Received: {vocabulary} logits, "
                f"target_text.size={target_text.size}. Pass the text that "
                "the model was trained with."
                + (
                    " If the model has logits without a token, cut them off: "
                    f"`logits[..., :{target_text.size}]`."
                    if vocabulary > target_text.size
                    and target_text.splitter.special is not None
                    else ""
                )
            )


def require_source_vocabulary(models, texts) -> None:
    """Raises `ValueError` if a text has ids that an embedding does not."""
    for model in models:
        for number, text in texts:
            for layer in readers_of(model, model.inputs[number]):
                if (
                    isinstance(layer, keras.layers.Embedding)
                    and layer.input_dim < text.size
                ):
                    raise ValueError(
                        "The model must have an embedding for each id of the "
                        f"source text. Received: '{layer.name}' of "
                        f"{layer.input_dim} ids, and a text of {text.size}. "
                        "Pass the text that the model was trained with."
                    )


def require_listable(shortlist, sources, target_text, search, jit_compile):
    """Raises `ValueError` unless a translator can use a shortlist."""
    if not isinstance(shortlist, Shortlist):
        raise ValueError(
            "`shortlist` must be a `Shortlist`, or None. Received: "
            f"shortlist={shortlist!r:.80}. "
            "`Shortlist.from_alignments(translator, sources, targets)` makes "
            "one."
        )
    if not sources.texts:
        raise ValueError(
            "A shortlist has target tokens for source tokens, so the source "
            "must be text. Received: a model that reads features. Leave "
            "`shortlist` out."
        )
    vouches = search.vouches_for("ids_are_interchangeable")
    if jit_compile or not vouches or search.rules:
        raise ValueError(
            "A shortlist needs a search without rules and without XLA, as the "
            "number of tokens varies, and so do their ids. Received: "
            f"search={search!r:.80}, jit_compile={jit_compile}. A custom "
            "search must set `ids_are_interchangeable`."
        )
    _, source_text = sources.leading
    shortlist.require_fits(source_text, target_text)


def require_joining(source_text, target_text) -> None:
    """Raises `ValueError` if `replace_unknown` cannot work with the texts."""
    if target_text.special.unknown < 0:
        raise ValueError(
            "`replace_unknown` needs a target text with an unknown token. "
            "Received: a target text without one. Leave `replace_unknown` "
            "out."
        )
    for name, text in _named(source_text, target_text).items():
        method = "join" if name == "target_text" else "split"
        if text is None or text.splitter.tokens is None:
            continue
        part = text.splitter
        if not (part.joins if method == "join" else part.writes(method)):
            raise ValueError(
                "`replace_unknown` writes tokens of the source into the "
                "target's text, so a splitter with ids of its own needs "
                f"`{method}()` in the `{name}`. Received: "
                f"{type(part).__name__}, which does not write it. Write the "
                "method, or keep `<unk>` out of all outputs with "
                "`forbidden=['<unk>']`."
            )


def forbidden_ids(forbidden, text) -> tuple[int, ...]:
    """Returns the ids of forbidden tokens."""
    if not isinstance(forbidden, (list, tuple)):
        raise ValueError(
            "`forbidden` must be a list of tokens. Received: "
            f"forbidden={forbidden!r}. For one token pass a list of one."
        )
    never = [text.tokens[i] for i in text.special.never_written]
    end = text.tokens[text.special.end]
    ids = {*text.special.without_text, text.special.unknown} - {-1}
    special = ", ".join(repr(text.tokens[i]) for i in sorted(ids))
    for token in forbidden:
        if token not in text.tokens:
            raise ValueError(
                "`forbidden` must be tokens of the target text. Received: "
                f"{token!r}, which it does not have. Leave it out: no output "
                f"contains it. The special tokens are named {special} here."
            )
        if token in never or token == end:
            raise ValueError(
                "`forbidden` must be tokens that outputs may contain but do "
                f"not need. Received: {token!r}. "
                + (
                    "Leave it out: no output contains it."
                    if token in never
                    else "Without it no text could end. For longer texts use "
                    "a search with a `min_length`."
                )
            )
    return tuple(text.tokens.index(token) for token in forbidden)


def _spec(x):
    return tuple(x.shape), x.dtype


def require_promptable(prompt, cut, target_text, search, shortlist) -> None:
    """Raises `ValueError` unless targets can begin with a `LanguagePrompt`."""
    if shortlist is not None:
        raise ValueError(
            "`language_prompt` and `shortlist` cannot be used together, since "
            "a shortlist has no columns for the tokens of prompts. Received: "
            f"both, language_prompt={prompt!r:.80}. Leave one out."
        )
    if not hasattr(cut, "heads_at_once"):
        raise ValueError(
            "`language_prompt` needs a translator of one model. Received: "
            f"{len(cut.models)} models. Leave `language_prompt` out, or pass "
            "one model."
        )
    ids = (*prompt.languages, *prompt.after, *prompt.last)
    if min(ids) < 0 or max(ids) >= target_text.size:
        raise ValueError(
            "`language_prompt` must have ids of the target text, from 0 to "
            f"{target_text.size - 1}. Received: {prompt}"
        )
    more = len(target_text.special.start) + prompt.length - 1
    if cut.longest is not None and search.max_length + more > cut.longest:
        raise ValueError(
            "`language_prompt` counts towards the model's longest target. "
            f"Received: a search with max_length={search.max_length}, {more} "
            f"tokens before its output, and a model for {cut.longest} tokens. "
            f"Use a search with max_length={cut.longest - more}."
        )


def require_glossary(glossary, sources, search, pipeline, jit_compile) -> None:
    """Raises `ValueError` unless a translator can use a `Glossary`."""
    if not isinstance(glossary, Glossary):
        raise ValueError(
            "`glossary` must be a `Glossary`, or None. Received: "
            f"glossary={glossary!r:.80}. `Glossary({{phrase: term}})` makes "
            "one."
        )
    if not sources.texts:
        raise ValueError(
            "A glossary is for words of the source, so the source must be "
            "text. Received: a model that reads features. Leave `glossary` "
            "out, and pass `terms` with a request."
        )
    if not search.takes_steering or jit_compile:
        raise ValueError(
            "A glossary needs a `BeamSearch` without XLA, as the number of "
            f"terms varies. Received: search={search!r:.80}, "
            f"jit_compile={jit_compile}. Pass a `BeamSearch`, and leave "
            "`jit_compile` out."
        )
    ids = pipeline.phrases.spellings(tf.constant(glossary.terms))
    known = pipeline.phrases.spellings.are_known(ids).numpy()
    if not known.all():
        term = glossary.terms[int(known.argmin())]
        raise ValueError(
            "A term of a glossary must be made of tokens that the target text "
            f"knows. Received: {term!r}. Leave it out, or write it as in the "
            "training texts."
        )
