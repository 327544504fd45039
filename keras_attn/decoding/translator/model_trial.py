"""Tries models on random inputs before anything is decoded with them."""

from collections.abc import Mapping
from typing import NamedTuple

import keras
import numpy as np

from keras_attn.backend import as_graph
from keras_attn.caller import warn
from keras_attn.decoding.shortlist import Shortlist
from keras_attn.decoding.translator.several import Several
from keras_attn.decoding.translator.sources import FeatureSource
from keras_attn.decoding.translator.sources import LineSource
from keras_attn.graph.probabilities import are_probabilities
from keras_attn.graph.rounding import Rounding
from keras_attn.keras_internals import layers_within
from keras_attn.models.keras_hub import SoundFeatures
from keras_attn.text.text import Text

# Number of target tokens that are compared: the search's maximum, but no more
# than take a second or two.
_SHORTEST, _LONGEST = 16, 100
_NUMBERS = 2_000_000  # most logits of a hypothesis
_PRODUCTS = 500_000_000  # most weights times tokens
_FEW = 3  # target tokens, enough to look at the output
_PADDING = 32, 8, 2  # positions of padding, the first that a model takes
_RANDOM = 24  # random lines, and as many of one token, that are padded
_WEIGHT = 1e-3  # of padding, beyond rounding


def require_texts(source_text, target_text) -> None:
    """Raises `ValueError` unless all texts are `Text`s."""
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
    """Raises `ValueError` unless a text tells how targets end."""
    if text.special.end < 0:
        raise ValueError(
            "Targets begin with a start token and end with an end token. "
            "Received: target_text without an end token. Name both, for "
            'example `Text.from_text_vectorization(layer, start="[start]", '
            'end="[end]")`.'
        )


def _named(source_text, target_text) -> dict:
    """Returns the texts by what they are called in messages."""
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
        return FeatureSource(inputs, [_cut_at(first, x) for x in inputs])
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
    """Returns the number of samples at which a model cuts an input, if any."""
    sizes = [
        getattr(layer, "cut_at", None)
        for layer in model.layers
        if isinstance(layer, SoundFeatures) and layer.input is source
    ]
    return next((x for x in sizes if x is not None), None)


def _require_order(number, inputs, theirs, source_text):
    """Raises `ValueError` if a model names its inputs in another order."""
    names, others = ([x.name for x in some] for some in (inputs, theirs))
    moved = names != others and sorted(names) == sorted(others)
    if moved or (names != others and isinstance(source_text, Mapping)):
        raise ValueError(
            "The models of an ensemble must have the same source inputs, in "
            f"one order. Received: model 1 with {names}, model {number} with "
            f"{others}. Make it again with its inputs in the order of model "
            "1, `keras.Model([...], model.outputs)`, or name them alike."
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


class Examples(NamedTuple):
    """Random inputs of models, without padding."""

    sources: tuple  # arrays, three rows each
    target: np.ndarray  # (3, time) ids

    @classmethod
    def make(cls, model, sources, target_text, search, longest=None):
        """Draws inputs; targets get the search's maximum length, if cheap.

        Args:
            model: One of the models, in standard form.
            sources: Their sources.
            target_text: `Text` of their target.
            search: The `Search`.
            longest: The longest target that the models take, if known.
        """
        random = np.random.default_rng(0)
        arrays = sources.examples(random, model)
        size = target_text.size
        affordable = min(
            _NUMBERS // size, _PRODUCTS // max(1, model.count_params())
        )
        length = min(search.max_length, _LONGEST, max(_SHORTEST, affordable))
        length = min(length, longest or length)
        length = model.inputs[-1].shape[1] or length
        ids = np.delete(np.arange(size, dtype="int32"), target_text.special.pad)
        target = ids[random.integers(0, len(ids), (3, length))]
        # The first row holds the special tokens and the most frequent ones.
        usual = ids[:length]
        target[0, : len(usual)] = usual
        target[1, 0] = ids[-1]
        return cls(arrays, target)


def check(models, cut, sources, target_text, examples, replace_unknown=False):
    """Tries the padding, and the alignments.

    Returns:
        The sources, which know whether the alignments have a column for each
        token of a text; and whether padding changes what a model computes.
    """
    padding_matters = False
    inputs, target = examples
    if models[0].inputs[-1].shape[1] is None:
        target = target[:, :_FEW]
    many, targets = _many(inputs, sources.texts, target)
    for model in models if sources.texts else ():
        alone = _numbers(model([*many, targets], training=False))
        for number, text in sources.texts:
            padded = _with_padding(model, many, number, text, targets)
            if _padding_changes(model, padded, targets, alone):
                _warn_of_padding(cut, padded, targets)
                padding_matters = True
    width = _width(cut, inputs, target)
    sources = sources.with_columns(inputs, width)
    if width is not None and sources.attended is not None:
        # A width of the model's own may be that of these texts by chance.
        other = _of_other_length(inputs, sources.texts)
        if _width(cut, other, target) != other[sources.attended].shape[1]:
            sources = sources.with_columns(inputs, -1)
    if replace_unknown and (sources.attended is None or width is None):
        raise ValueError(
            "`replace_unknown` takes the source token with most attention, so "
            "the model must read text and attend to each token of it. "
            "Received: "
            + (
                "a model without attention to the source, whose output "
                f"depends on {_between(cut)}."
                if width is None
                else f"a model that attends to {width} positions of a text of "
                f"{inputs[sources.texts[0][0]].shape[1]} tokens."
                if sources.texts
                else "a model that reads features."
            )
            + " `forbidden=['<unk>']` keeps `<unk>` out of any output."
        )
    return sources, padding_matters


def _many(inputs, texts, target):
    """Returns more inputs, and targets, among them lines of one token.

    Padding may change a few lines alone, such as where it wins a maximum.
    """
    random, rows = np.random.default_rng(0), 2 * _RANDOM
    many = [np.resize(np.asarray(x), (rows, *x.shape[1:])) for x in inputs]
    for number, text in texts:
        usual = np.array(text.special.of_text(text.size), "int32")
        shape = rows, many[number].shape[1]
        many[number] = usual[random.integers(0, len(usual), shape)]
        chosen = np.linspace(0, len(usual) - 1, _RANDOM).astype("int32")
        many[number][_RANDOM:] = usual[chosen][:, None]
    return many, np.resize(target, (rows, target.shape[1]))


def returns_probabilities(model, examples) -> bool:
    """Whether a model returns probabilities instead of logits."""
    output = _output(model, examples)
    return output is not None and are_probabilities(output)


def is_shorter(model, examples) -> bool:
    """Whether the output has a position less than the target."""
    output, length = (
        _output(model, examples),
        examples.target[:, :_FEW].shape[1],
    )
    return output is not None and output.shape[1:2] == (length - 1,)


def require_like_author(model, ask, examples) -> None:
    """Compares a model in standard form with that which it was made from.

    On short targets and sources, too, since a `call` may decide by Python on
    their lengths, and is traced but once.

    Raises:
        ValueError: If they compute different numbers.
    """
    if ask is None:
        return
    run = as_graph(lambda *x: model(list(x), training=False), model.inputs)
    for length, columns in ((1, None), (2, None), (_FEW, 1), (_FEW, None)):
        sources = [
            x[:, :columns] if x.ndim == 2 and x.dtype.kind == "i" else x
            for x in examples.sources
        ]
        arrays = [*sources, examples.target[:, :length]]
        try:
            author = _numbers(ask(arrays))
            found = _numbers(run(*map(keras.ops.convert_to_tensor, arrays)))
        except Exception:  # a comparison of the cut will name the layer
            continue
        if are_probabilities(author):
            author = np.log(np.maximum(author, 1e-37))
        # Below this a probability may be 0 in float32.
        one, other = (
            np.maximum(_log_softmax(x), -60.0) for x in (author, found)
        )
        fits = one.shape == other.shape
        if fits and not np.allclose(one, other, rtol=1e-2, atol=1e-2):
            raise ValueError(
                "A model must compute the same in a graph as when it is "
                f"called. Received: the model '{model.name}', which gives "
                f"other numbers for a target of {length} token(s) when it is "
                "called. Does its `call` draw at random, or decide by Python, "
                "for example on a length? A graph is made once for all "
                "lengths: decide by `keras.ops.where` or `keras.ops.cond`."
            )


def runs(model, examples) -> bool:
    """Whether a model runs on examples."""
    try:
        model([*examples.sources, examples.target], training=False)
    except Exception:  # any layer may raise anything
        return False
    return True


def _output(model, examples):
    """Returns the output for short targets; None if the model fails."""
    target = examples.target
    if model.inputs[-1].shape[1] is None:
        target = target[:, :_FEW]
    try:
        return _numbers(model([*examples.sources, target], training=False))
    except Exception:  # a comparison will name the layer
        return None


def _of_other_length(inputs, texts):
    """Returns inputs whose texts are a token shorter, or longer if they must.

    A model may have weights for so many tokens, and then takes no more.
    """
    other = list(inputs)
    for number, _ in texts:
        ids = inputs[number]
        one = ids.shape[1] == 1
        other[number] = np.repeat(ids, 2, axis=1) if one else ids[:, 1:]
    return other


def _width(cut, inputs, target):
    """Returns the number of columns of the alignments, if there are any."""
    encoded = cut.encode(*inputs)
    state = cut.start(encoded, max_length=target.shape[1])
    _, alignments, _ = cut.step(target[:, :1], state, encoded)
    return None if alignments is None else alignments.shape[2]


def require_compilable(models) -> None:
    """Raises `ValueError` if XLA cannot compile a layer of the models."""
    for layer in (x for model in models for x in layers_within(model)):
        # Recurrent layers say so of cuDNN, which decoding does without.
        if not layer.supports_jit and not hasattr(layer, "use_cudnn"):
            raise ValueError(
                "XLA compiles a search only if it can compile the whole "
                f"model. Received: jit_compile=True, and '{layer.name}' "
                f"({type(layer).__name__}), which has `supports_jit=False`. "
                "Leave `jit_compile` out."
            )


def require_vocabulary(models, target_text):
    """Raises `ValueError` unless there is a logit for each of the ids."""
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
            "number of tokens varies, and so do their places. Received: "
            f"search={search!r:.80}, jit_compile={jit_compile}. Of your own "
            "searches it takes those that set `ids_are_interchangeable`."
        )
    _, source_text = sources.leading
    shortlist.require_fits(source_text, target_text)


def require_joining(source_text, target_text) -> None:
    """Raises `ValueError` if texts cannot hold tokens of the source."""
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
                f"{type(part).__name__}, which does not write it. Write it; "
                "or keep `<unk>` out of any output, `forbidden=['<unk>']`."
            )


def _between(cut):
    first, *_ = getattr(cut, "members", [cut])
    return first.between


def forbidden_ids(forbidden, text) -> tuple[int, ...]:
    """Returns the ids of forbidden tokens."""
    if not isinstance(forbidden, (list, tuple)):
        raise ValueError(
            "`forbidden` must be a list of tokens. Received: "
            f"forbidden={forbidden!r}. For one token pass a list of one."
        )
    never = [text.tokens[i] for i in text.special.never_written]
    end = text.tokens[text.special.end]
    for token in forbidden:
        if token not in text.tokens:
            raise ValueError(
                "`forbidden` must be tokens of the target text. Received: "
                f"{token!r}, which it does not have. Leave it out: no output "
                "contains it."
            )
        if token in never or token == end:
            raise ValueError(
                "`forbidden` must be tokens that outputs may contain and can "
                f"do without. Received: {token!r}. "
                + (
                    "Leave it out: no output contains it."
                    if token in never
                    else "Without it no text could end. For longer texts use "
                    "a search with a `min_length`."
                )
            )
    return tuple(text.tokens.index(token) for token in forbidden)


def _misled(cut, padded, target):
    """Whether the alignments give weight to padding that the mask shows."""
    encoded = cut.encode(*padded)
    mask = cut.source_mask(encoded)
    _, alignments, _ = cut.step(
        target[:, :1],
        cut.start(encoded, max_length=target.shape[1]),
        encoded,
    )
    if mask is None or alignments is None:
        return False
    weights = np.asarray(alignments)[:, 0]
    return bool(np.max(np.where(mask, 0, weights), initial=0) > _WEIGHT)


def _with_padding(model, inputs, number, text, target):
    """Returns inputs of which one is padded, as far as the model takes it."""
    for more in _PADDING:
        padded = list(inputs)
        padded[number] = np.pad(
            inputs[number],
            [(0, 0), (0, more)],
            constant_values=text.special.pad,
        )
        if runs(model, Examples(tuple(padded), target)):
            return padded
    return padded


def _padding_changes(model, padded, target, alone):
    beside = _numbers(model([*padded, target], training=False))
    # Of what searches add up; a constant in all logits means nothing.
    one, other = _log_softmax(alone), _log_softmax(beside)
    return not np.allclose(one, other, rtol=1e-3, atol=5e-4) and not (
        _is_rounding(model, padded, target, alone, beside)
    )


def _log_softmax(logits):
    logits = logits - logits.max(-1, keepdims=True)
    return logits - np.log(np.exp(logits).sum(-1, keepdims=True))


def _warn_of_padding(cut, padded, target):
    warn(
        "Padding changes the output of this model, so only lines of one "
        "length are decoded together, which takes more time. "
        + (
            "The mask reaches the attention, but its alignment gives "
            "weight to padding: an `Alignment` must give none where "
            "`allowed` is False."
            if _misled(cut, padded, target)
            else "Was it trained with padding to one length? Then pass this "
            "length, `pad_to=...`. Else, does a mask reach the decoder? "
            "`Embedding(mask_zero=True)` makes one, and Keras's "
            "`MultiHeadAttention` removes it from the tensor that it "
            "reads, so a second such layer needs another tensor. "
            "`keras_attn.check(model)` names the layer, before training "
            "too."
        ),
    )


def _is_rounding(model, padded, target, alone, beside):
    """Whether outputs of a model differ by no more than 16 bits round."""
    rounding = Rounding(layers_within(model))
    if rounding.half is None:
        return False
    with rounding.disturbed(model.variables):
        disturbed = _numbers(model([*padded, target], training=False))
    return rounding.is_close(alone, beside, rounding.noise(beside, disturbed))


def _numbers(x):
    return keras.ops.convert_to_numpy(keras.ops.cast(x, "float32"))


def _spec(x):
    return tuple(x.shape), x.dtype
