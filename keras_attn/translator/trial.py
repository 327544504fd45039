"""Tries models on random inputs before anything is decoded with them."""

import warnings
from typing import NamedTuple

import numpy as np

from keras_attn.text import END
from keras_attn.text import PAD
from keras_attn.text import SPECIAL_TOKENS
from keras_attn.text import START
from keras_attn.text import Text
from keras_attn.translator.sources import Features
from keras_attn.translator.sources import Lines

# How many tokens of a target are compared: as many as the search makes, where
# that takes no more than a second or two.
_SHORTEST, _LONGEST = 16, 100
_NUMBERS = 2_000_000  # logits of a hypothesis
_PRODUCTS = 500_000_000  # weights times tokens


def require_texts(source_text, target_text) -> None:
    """Refuses what is no `Text`."""
    given = {"source_text": source_text, "target_text": target_text}
    for name, text in given.items():
        if isinstance(text, Text) or (text is None and name == "source_text"):
            continue
        raise ValueError(
            f"`{name}` must be a `Text`"
            + (", or None of arrays" if name == "source_text" else "")
            + f". Received: {name}={text!r:.80} (of type "
            f"{type(text).__name__}). `Text.from_lines(lines, split=...)` "
            "makes one of lines, `Text(tokens, split=...)` of a list of "
            "tokens; the ids must be those that the model was trained on."
        )


def sources_of(models, source_text) -> Lines | Features:
    """What the models read, after a look at their inputs."""
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
    if source_text is None:
        return Features(inputs)
    if len(inputs) != 1 or len(inputs[0].shape) != 2:
        raise ValueError(
            "A `Translator` of text needs a model of two inputs, the source's "
            "ids and the target's, each of shape (batch, length). Received "
            f"inputs of shape {[tuple(x.shape) for x in first.inputs]}. If "
            "the source is no text, pass None as `source_text`, and arrays "
            "when you call it."
        )
    return Lines(source_text)


class Examples(NamedTuple):
    """Random inputs of models, none of it padding."""

    sources: tuple  # arrays, three rows each
    target: np.ndarray  # (3, time) ids

    @classmethod
    def make(cls, cut, sources, target_text, search):
        """Draws targets as long as the search makes them, where cheap."""
        model = cut.models[0]
        random = np.random.default_rng(0)
        arrays = sources.examples(random, model)
        size = target_text.size
        affordable = min(
            _NUMBERS // size, _PRODUCTS // max(1, model.count_params())
        )
        length = min(search.max_length, _LONGEST, max(_SHORTEST, affordable))
        length = min(length, cut.longest or length)
        length = model.inputs[-1].shape[1] or length
        target = random.integers(1, size, (3, length), "int32")
        # The special tokens, and the most frequent ones.
        usual = np.arange(1, min(size, length + 1))
        target[0, : len(usual)] = usual
        target[1, 0] = size - 1
        return cls(arrays, target)


def check(models, cut, sources, target_text, examples, replace_unknown=False):
    """Tries the cut, the vocabularies and the padding.

    Returns:
        Whether the alignments have a column for each token of a source text.
    """
    inputs, target = examples
    cut.check(*inputs, target)
    if models[0].inputs[-1].shape[1] is None:
        target = target[:, :3]  # enough for the rest
    for model in models:
        alone = np.asarray(model([*inputs, target], training=False))
        if np.min(alone) >= 0 and np.allclose(np.sum(alone, -1), 1, atol=1e-2):
            raise ValueError(
                "The model's output looks like probabilities: no value is "
                "below 0 and each row sums to 1. A `Translator` needs logits. "
                "Leave the softmax out of the last layer and train with "
                "`SequenceCrossentropy`."
            )
        if isinstance(sources, Lines):
            _check_padding(model, inputs, target, alone)
    encoded = cut.encode(*inputs)
    _, alignments, _ = cut.step(
        target[:, :1], cut.start(encoded, max_length=target.shape[1]), encoded
    )
    reads_text = isinstance(sources, Lines)
    columns_are_tokens = reads_text and (
        alignments is None or alignments.shape[2] == inputs[0].shape[1]
    )
    if replace_unknown and not (columns_are_tokens and alignments is not None):
        raise ValueError(
            "`replace_unknown` takes the source token with most attention, so "
            "a model must read text and attend to each token of it. Received "
            + (
                "a model without attention to the source: to its output lead "
                f"{_between(cut)}."
                if alignments is None
                else f"one that attends to {alignments.shape[2]} positions of "
                f"a text of {inputs[0].shape[1]} tokens."
                if reads_text
                else "one that reads features."
            )
            + " `forbidden=['<unk>']` keeps `<unk>` out of any output."
        )
    return columns_are_tokens


def require_vocabulary(models, target_text):
    """Refuses models whose logits are not as many as the text's ids."""
    for model in models:
        vocabulary = model.outputs[0].shape[-1]
        if vocabulary != target_text.size:
            raise ValueError(
                "The model's logits must be as many as the target text has "
                f"ids. Received: {vocabulary} logits, "
                f"target_text.size={target_text.size}."
            )


def require_joining(source_text, target_text) -> None:
    """Refuses texts of which source tokens cannot stand in target texts."""
    texts = {"source_text": source_text, "target_text": target_text}
    for name, method in (("source_text", "split"), ("target_text", "join")):
        text = texts[name]
        if text is None or text.splitter.tokens is None:
            continue
        part = text.splitter
        if not (part.joins if method == "join" else part.writes(method)):
            raise ValueError(
                "`replace_unknown` writes tokens of the source into the "
                "target's text, so a part with ids of its own needs "
                f"`{method}()` in the `{name}`. Received: "
                f"{type(part).__name__}, which does not write it. "
                "`forbidden=['<unk>']` keeps `<unk>` out of any output."
            )


def _between(cut):
    first, *_ = getattr(cut, "members", [cut])
    return first.between


def forbidden_ids(forbidden, text) -> tuple[int, ...]:
    """Ids of tokens that may not come."""
    if not isinstance(forbidden, (list, tuple)):
        raise ValueError(
            "`forbidden` must be a list of tokens. Received: "
            f"forbidden={forbidden!r}"
        )
    never = SPECIAL_TOKENS[PAD], SPECIAL_TOKENS[START]
    for token in forbidden:
        if token not in text.tokens:
            raise ValueError(
                "`forbidden` must be tokens of the target text. Received: "
                f"{token!r}, which it does not have and never writes."
            )
        if token in never or token == SPECIAL_TOKENS[END]:
            raise ValueError(
                f"`forbidden` may not hold {token!r}: "
                + (
                    "it never comes anyway."
                    if token in never
                    else "no text could end. To have longer ones pass a "
                    "search with a `min_length`."
                )
            )
    return tuple(text.tokens.index(token) for token in forbidden)


def _check_padding(model, inputs, target, alone):
    (ids,) = inputs
    padded = np.pad(ids, [(0, 0), (0, 2)])
    beside = model([padded, target], training=False)
    if not np.allclose(alone, beside, rtol=1e-2, atol=1e-3):
        warnings.warn(
            "Padding changes what this model computes, so a line may "
            "translate differently beside a longer one. Does a mask "
            "reach the decoder? `Embedding(mask_zero=True)` makes one, and "
            "Keras's `MultiHeadAttention` takes it off what it reads: a "
            "second one needs a tensor of its own. `keras_attn.check(model)` "
            "names the layer, and before training.",
            stacklevel=4,
        )


def _spec(x):
    return tuple(x.shape), x.dtype
