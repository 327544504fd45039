"""Tries models on random inputs before anything is decoded with them."""

import dataclasses
from typing import NamedTuple

import keras
import numpy as np

from keras_attn.backend import as_graph
from keras_attn.caller import warn
from keras_attn.decoding.translator.sources import open_axes
from keras_attn.graph.folding import folded
from keras_attn.graph.nodes import numbers_beside
from keras_attn.graph.probabilities import are_probabilities
from keras_attn.graph.rounding import Rounding
from keras_attn.incremental.refuse import in_short
from keras_attn.keras_internals import layers_within

# Bounds on the number of target tokens to compare: the search's maximum length,
# if comparing takes no more than a second or two.
_SHORTEST, _LONGEST = 16, 100
_NUMBERS = 2_000_000  # most logits of a hypothesis
_PRODUCTS = 500_000_000  # most weights times tokens
_FEW = 3  # target tokens, enough to look at the output
_PADDING = 32, 8, 2, 1  # positions of padding to try in turn
_RANDOM = 24  # random lines to pad, and as many that repeat one token
_WEIGHT = 1e-3  # attention to padding above this is more than rounding
_LARGE = 10_000_000  # weights; larger models get `_AT_ONCE` rows at a time
_AT_ONCE = 12


class Examples(NamedTuple):
    """Random inputs of models, without padding."""

    sources: tuple  # arrays, three rows each
    target: np.ndarray  # (3, time) ids

    @classmethod
    def make(cls, models, sources, target_text, search, longest=None):
        """Draws inputs; targets get the search's maximum length, if cheap.

        Args:
            models: The models, in standard form.
            sources: The models' sources, such as a `LineSource`.
            target_text: `Text` of the target.
            search: The `Search`.
            longest: The longest target that the models take, if known.
        """
        random, model = np.random.default_rng(0), models[0]
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
        # The third row begins with ids that a model may treat apart, for
        # example in a mask `ids != 8`.
        near = [
            number + i
            for x in models
            for number in numbers_beside(x.inputs[-1:], x.outputs)
            for i in (-1, 0, 1)
        ]
        apart = np.intersect1d(ids, near)[:length]
        target[2, : len(apart)] = apart
        return cls(arrays, target)

    def padded(self, texts) -> tuple:
        """Returns the sources with rows of different lengths, padded.

        Args:
            texts: Pairs of the index of an input and its `Text`.
        """
        found = list(self.sources)
        for number, text in texts:
            found[number] = found[number].copy()
            for row, ids in enumerate(found[number]):
                ids[max(1, len(ids) - 2 * row) :] = text.special.pad
        return tuple(found)


def check(models, cut, sources, target_text, examples, replace_unknown=False):
    """Finds whether padding changes the output, and what alignments show.

    Returns:
        The sources, with `attended` set if the alignments have a column for
        each token of a text; and whether padding changes what a model computes.
    """
    padding_matters = False
    inputs, target = examples.sources, _short_target(models[0], examples)
    many, targets = _many(inputs, sources.texts, target)
    # The lines are short enough to leave room for padding.
    room = [text.longest_source // 2 or 1 for _, text in sources.texts]
    for number, _ in sources.texts:
        many[number] = many[number][:, : min(room)]
    members = getattr(cut, "members", [cut])
    for model, member in zip(models, members, strict=True):
        if not sources.texts:
            break
        alone = _scores(model, [*many, targets])
        for number, text in sources.texts:
            padded, beside = _with_padding(model, many, number, text, targets)
            if padded and _padding_changes(
                model, padded, targets, alone, beside
            ):
                _warn_of_padding(cut, padded, targets)
                padding_matters = True
            elif padded:
                _require_same_steps(model, member, padded, targets, beside)
    width = _width(cut, inputs, target)
    sources = sources.with_columns(inputs, width)
    if width is not None and sources.attended is not None:
        # A fixed width may equal the length of these texts by chance.
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


def xla_sizes(sizes, models, cut, search, sources, examples, padding_matters):
    """Returns the sizes for XLA, with the defaults filled in.

    Raises:
        ValueError: If padding to these sizes changes what the models compute,
            or if the sizes do not fit the sources.
    """
    axes = open_axes(sources.input_specs)
    longest = [text.longest_source for _, text in sources.texts]
    numbers = {number for number, _ in sources.texts}
    of_features = [x for x in axes if x[0] not in numbers]
    if of_features and not sizes.source:
        cut_sizes = getattr(sources, "cut_sizes", ())
        sizes = dataclasses.replace(sizes, source=cut_sizes)
    found = sizes.for_model(
        # With several hypotheses, XLA never runs a single row.
        cut.slow_alone and search.streams,
        None if of_features else max(longest, default=None),
        bool(axes),
    )
    if axes and padding_matters:
        raise ValueError(
            "XLA compiles a search for a few sizes, to which sources are "
            "padded, so padding must not change the output. Received: "
            "jit_compile, and a model whose output it changes. Does a mask "
            "reach the decoder? `Embedding(mask_zero=True)` makes one. Else "
            "leave `jit_compile` out."
        )
    if of_features and not found.exact:
        largest = found.source[-1]
        examples = _short(examples, of_features, max(1, largest // 2))
        try:
            matter = zeros_matter(models, of_features, examples, largest)
        except Exception as error:  # any layer may raise anything
            raise ValueError(
                "XLA pads features to the sizes it compiles for, up to "
                f"{largest}, which the model does not take. Received: "
                f"{found}. Pass smaller sizes. The error was: {error}"
            ) from error
        if not matter:
            return found
        raise ValueError(
            "XLA compiles a search for a few sizes, to which features are "
            "padded with zeros, so these must not change the output. "
            "Received: jit_compile, and a model whose output they change. "
            "Does a mask reach the decoder? `Masking()` makes one. Else "
            "compile for the exact sizes of requests, "
            "`XLASizes(source=(100, 200), exact=True)`."
        )
    return found


def _short(examples, axes, size):
    """Returns examples whose axes have at most this size."""
    arrays, target = examples
    arrays = list(arrays)
    for i, axis in axes:
        arrays[i] = np.take(
            arrays[i], range(min(size, arrays[i].shape[axis])), axis
        )
    return Examples(arrays, target)


def zeros_matter(models, axes, examples, size=None) -> bool:
    """Returns whether zeros after the features change a model's output.

    Args:
        models: The models.
        axes: Pairs (input, axis) of the features' axes of any size.
        examples: `Examples` of all inputs.
        size: Size to which axes are padded. Defaults to two more.
    """
    if not axes:
        return False
    arrays, target = examples
    padded = list(arrays)
    for i, axis in axes:
        more = 2 if size is None else size - padded[i].shape[axis]
        sizes = [(0, more * (n == axis)) for n in range(padded[i].ndim)]
        padded[i] = np.pad(padded[i], sizes)
    return not all(
        np.allclose(
            _logits(model, [*arrays, target]),
            _logits(model, [*padded, target]),
            rtol=1e-2,
            atol=1e-3,
        )
        for model in models
    )


def _many(inputs, texts, target):
    """Returns more inputs and targets; some lines repeat one token.

    Padding may change only a few lines, such as those in which it has the
    maximum of a pooling layer.
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


def is_shorter(model, examples, output) -> bool:
    """Returns whether an output has one position fewer than the target."""
    length = _short_target(model, examples).shape[1]
    return output is not None and output.shape[1:2] == (length - 1,)


def require_like_author(model, ask, examples) -> None:
    """Compares a model in standard form with the model it was made from.

    Short targets and sources are compared too, since a `call` may branch in
    Python on lengths, but is traced only once.

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
        except Exception:  # a `call` may refuse such a short text
            continue
        try:
            found = _numbers(run(*map(keras.ops.convert_to_tensor, arrays)))
        except Exception as error:
            differs = f"fails there with {in_short(error):.300}"
        else:
            differs = _difference(author, found)
        if differs:
            raise ValueError(
                "A model must compute the same in a graph of unknown sizes "
                f"as when it is called. Received: the model '{model.name}', "
                f"which for a target of {length} token(s) {differs} Does its "
                "`call` draw at random, or decide by Python, for example on "
                "a length? A graph is made once for all lengths: decide by "
                "`keras.ops.where` or `keras.ops.cond`."
            )


def _difference(author, found):
    """Returns in words how two models' outputs differ, "" if they agree."""
    if author.shape != found.shape:
        return f"returns {found.shape} there, and {author.shape} when called."
    if are_probabilities(author):
        author = np.log(np.maximum(author, 1e-37))
    # Below this a probability may be 0 in float32.
    one, other = (np.maximum(_log_softmax(x), -60.0) for x in (author, found))
    if np.allclose(one, other, rtol=1e-2, atol=1e-2):
        return ""
    return "gives other numbers there than when called."


def require_alike(models, cut, inputs) -> None:
    """Raises `ValueError` if models compute other results than the cut ones.

    The cut models are different objects only if custom layers were opened.
    """
    members = getattr(cut, "members", [cut])
    for model, member in zip(models, members, strict=True):
        if member.model is not model and not computes_alike(
            model, member.model, inputs, 1e-3
        ):
            raise ValueError(
                "A translator of opened layers must compute the same as its "
                f"model. Received: the model '{model.name}', which was "
                "changed since the translator was made, not only in its "
                "weights: an attribute of a layer, for example. Make "
                "another `Translator` of it."
            )


def computes_alike(model, other, inputs, tolerance=1e-4) -> bool:
    """Returns whether two models agree, also on short targets."""
    *sources, target = inputs
    for length in dict.fromkeys((1, _FEW, target.shape[1])):
        some = target[:, :length]
        try:
            one = _logits(model, [*sources, some])
            two = _logits(other, [*sources, some])
        except Exception:  # any layer may raise anything
            return False
        if one.shape != two.shape or not (
            np.allclose(one, two, rtol=tolerance, atol=tolerance)
            or _is_rounding(model, [*sources, some], two, one, _logits)
        ):
            return False
    return True


def runs(model, examples) -> bool:
    """Returns whether a model runs on examples without an error."""
    return _tried(model, [*examples.sources, examples.target]) is not None


def output_of(model, examples) -> np.ndarray | None:
    """Returns the output for short targets; None if the model fails."""
    target = _short_target(model, examples)
    found = _tried(model, [*examples.sources, target])
    return None if found is None else _numbers(found)


def _short_target(model, examples):
    """Returns a short target, if the model takes targets of any length."""
    if model.inputs[-1].shape[1] is None:
        return examples.target[:, :_FEW]
    return examples.target


def _tried(model, inputs):
    """Returns the output of a model; None if it fails."""
    try:
        return model(inputs, training=False)
    except Exception:  # any layer may raise anything
        return None


def _of_other_length(inputs, texts):
    """Returns inputs with texts one token shorter; one longer if they have one.

    Shorter is preferred, since a model may limit the number of tokens.
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


def _between(cut):
    first, *_ = getattr(cut, "members", [cut])
    return first.between


def _misled(cut, padded, target):
    """Returns whether the alignments give weight to masked padding."""
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
    """Returns inputs with one of them padded, and a model's scores for them.

    Returns None twice if the model runs with no amount of padding.
    """
    for more in _PADDING:
        padded = list(inputs)
        padded[number] = np.pad(
            inputs[number],
            [(0, 0), (0, more)],
            constant_values=text.special.pad,
        )
        try:
            return padded, _scores(model, [*padded, target])
        except Exception:  # any layer may raise anything
            continue
    return None, None


def _require_same_steps(model, cut, padded, targets, expected):
    """Raises `ValueError` if steps differ from the whole model with padding.

    Args:
        model: A model.
        cut: The `Incremental` of the model.
        padded: The model's sources, padded.
        targets: Ids `(rows, time)`.
        expected: The model's scores for these.
    """
    rows = _AT_ONCE if model.count_params() > _LARGE else len(targets)
    sources, targets = [x[:rows] for x in padded], targets[:rows]
    encoded = cut.encode(*sources)
    state = cut.start(encoded, max_length=targets.shape[1])
    found = []
    for tokens in np.split(targets, targets.shape[1], axis=1):
        logits, _, state = cut.step(tokens, state, encoded)
        logits = keras.ops.cast(logits, "float32")
        found.append(_numbers(folded(keras.ops.log_softmax(logits))))
    found, expected = np.concatenate(found, axis=1), expected[:rows]
    if not np.allclose(found, expected, rtol=1e-2, atol=1e-2) and (
        _padding_changes(model, sources, targets, found, expected)
    ):
        raise ValueError(
            "With padding in a source, decoding step by step must give the "
            "numbers of the whole model. Received: the model "
            f"'{model.name}', where it does not: a layer sees another mask "
            "in a step. Does a `Stepper` of yours leave the source's mask out? "
            "Or does a layer read a tensor after Keras's `MultiHeadAttention`, "
            "which removes its mask? Then give it the mask as an argument, "
            "`value_mask=ids != 0`."
        )


def _padding_changes(model, padded, target, alone, beside):
    return not np.allclose(alone, beside, rtol=1e-3, atol=5e-4) and not (
        _is_rounding(model, [*padded, target], alone, beside, _scores)
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
            "length, `pad_to=...`. If not, does a mask reach the decoder? "
            "`Embedding(mask_zero=True)` makes one, and Keras's "
            "`MultiHeadAttention` removes it from the tensor that it "
            "reads, so a second such layer needs another tensor. "
            "`keras_attn.check(model)` names the layer, before training "
            "too."
        ),
    )


def _is_rounding(model, inputs, one, other, ask):
    """Returns whether results differ only by the rounding of 16 bits.

    Args:
        model: The model.
        inputs: All its inputs.
        one, other: The results to compare; `other` is that for these inputs.
        ask: Function from a model and inputs to the result.
    """
    rounding = Rounding(layers_within(model))
    if rounding.half is None:
        return False
    for seed in range(rounding.disturbances):
        with rounding.disturbed(model.variables, seed):
            disturbed = ask(model, inputs)
        if rounding.is_close(one, other, rounding.noise(other, disturbed)):
            return True
    return False


def _scores(model, inputs):
    """Returns log-probabilities, which do not change with a constant logit.

    Large models get few rows at a time, since Keras keeps the output of each
    layer.
    """
    rows = len(inputs[-1])
    some = _AT_ONCE if model.count_params() > _LARGE else rows
    found = []
    for first in range(0, rows, some):
        part = [x[first : first + some] for x in inputs]
        logits = keras.ops.cast(model(part, training=False), "float32")
        found.append(_numbers(folded(keras.ops.log_softmax(logits))))
    return np.concatenate(found)


def _logits(model, inputs):
    return _numbers(model(inputs, training=False))


def _numbers(x):
    return keras.ops.convert_to_numpy(keras.ops.cast(x, "float32"))
