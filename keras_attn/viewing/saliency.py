"""Saliency: how much each source token influences each target token.

Attention shows where a decoder looked. Gradients complement it: they show which
tokens change the output, through every path in the model.
"""

from collections.abc import Iterable
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from keras_attn.decoding.translator import Translation
from keras_attn.decoding.translator import Translator
from keras_attn.decoding.translator.targets import read as targets_of
from keras_attn.graph.flat_graph import Graph

# Target tokens that are differentiated at once, and logits of all of them, to
# limit memory: gradients take several times that of the logits.
_ROWS = 64
_LOGITS = 2**25


def saliency(
    translator: Translator,
    source: Any,
    target: str | Translation | None = None,
) -> np.ndarray:
    """Returns the saliency of source tokens for each target token.

    The saliency of source token `s` for target token `t` is gradient times
    input: the derivative of `t`'s log-probability with respect to the
    embedding of `s`, times that embedding, summed over its axis. It is the
    rate at which the log-probability changes when this embedding is scaled.
    Absolute values are divided by their sum over the source, so a row sums
    to 1, as attention does. A row without any gradient is 0.

    The model scores the whole target once per target token, up to 64 at a time.
    Each token's probability is given the target tokens before it.

    Args:
        translator: `Translator` of a model that reads text.
        source: A string, or several inputs as `Translator.stream` takes them.
            If several inputs are texts, the saliency is that of the text
            whose tokens are the columns of the alignments, or else of the
            first text.
        target: A string, or a result of the translator, whose tokens are
            kept as they are. Defaults to the translator's output for
            `source`. Tokens of a `LanguagePrompt` at its beginning are read
            but have no row.

    Returns:
        Array of shape `(target, source)`, float32, with a row for each token
        of a `Translation`, and a column for each of its source tokens. For a
        string the rows are its tokens and the end token.

    Raises:
        ValueError: If the model reads no text or has no layer that embeds it:
            one whose vectors depend on their own tokens alone. Or if `target`
            is neither a string nor a `Translation`.

    References:
        - [Shrikumar et al., 2017](https://arxiv.org/abs/1605.01713), for
          gradient times input
        - [Jain & Wallace, 2019](https://arxiv.org/abs/1902.10186), for the
          comparison of gradients and attention

    Example:
        >>> text = keras_attn.Text.from_lines(["ab"], split="characters")
        >>> source = keras.Input((None,), dtype="int32")
        >>> target = keras.Input((None,), dtype="int32")
        >>> embed = keras.layers.Embedding(text.size, 8, mask_zero=True)
        >>> hidden = keras_attn.AttentionDecoder(
        ...     keras.layers.GRUCell(8), keras_attn.BahdanauAttention(8))(
        ...     embed(target), embed(source))
        >>> model = keras.Model(
        ...     [source, target], keras.layers.Dense(text.size)(hidden))
        >>> copy = keras_attn.Translator(
        ...     model, text, text, keras_attn.GreedySearch(max_length=5))
        >>> result = copy(["abba"])[0]
        >>> gradients = keras_attn.saliency(copy, "abba", result)
        >>> gradients.shape == result.alignment.shape
        True
    """
    pipeline = translator.pipeline
    sources = pipeline.sources
    if sources.leading is None:
        raise ValueError(
            "`saliency` needs a translator whose source is text, which has "
            "embeddings. Received: one that reads features. To see its "
            "attention, call `plot_attention(result, picture=...)`."
        )
    batch = sources.batch_of_one(source)
    if target is None:
        target = translator(batch)[0]
    elif not isinstance(target, (str, Translation)):
        raise ValueError(
            "`target` must be a string or a `Translation`. Received: "
            f"target={target!r:.200} (of type {type(target).__name__}). Pass "
            "one result of several, as in `results[0]`."
        )
    ids = _ids_of(target, translator.target_text)
    number, text = sources.leading
    if sources.attended is not None:
        number, text = sources.attended, dict(sources.texts)[sources.attended]
    inputs = sources.inputs(sources.take(sources.collect(batch), [0]))
    ids, begun = _prompted(pipeline, inputs, ids)
    length = int(tf.math.count_nonzero(inputs[number] != text.special.pad))
    found = np.zeros((ids.shape[1], length), "float32")
    graphs = [_Embedded(model, number) for model in pipeline.models]
    for graph in graphs:
        graph.require_vectors_of_tokens(inputs[number], text)
    size = max(len(found) * pipeline.models[0].outputs[0].shape[-1], 1)
    count = min(max(_LOGITS // size, 1), _ROWS)
    for first in range(0, len(found), count):
        rows = slice(first, first + count)
        signed = _signed(pipeline, graphs, inputs, (ids, begun), rows)
        found[rows] = signed[:, :length]
    found = np.abs(found)
    total = found.sum(axis=1, keepdims=True)
    return np.divide(found, total, out=np.zeros_like(found), where=total != 0)


def rank_correlation(
    alignments: Iterable[np.ndarray], saliencies: Iterable[np.ndarray]
) -> float:
    """Returns how well two kinds of weights agree on the order of tokens.

    This is Kendall's tau-b between the weights of each target token over the
    source, averaged over all target tokens: 1 if both rank the source tokens
    alike, 0 without relation, -1 in opposite order. Rows in which all weights
    are equal have no order and do not count.

    Args:
        alignments: Arrays of shape `(target, source)`, such as
            `results.alignments`.
        saliencies: As many arrays of the same shapes, such as results of
            `saliency`.

    Returns:
        The mean, or NaN if no row has an order.

    Raises:
        ValueError: If the arrays of a pair are not of the same shape
            `(target, source)`.

    Reference:
        - [Jain & Wallace, 2019](https://arxiv.org/abs/1902.10186), section
          4.1, which reports this number for classifiers

    Example:
        >>> attention, gradients = [[0.7, 0.2, 0.1]], [[0.6, 0.1, 0.3]]
        >>> keras_attn.rank_correlation([attention], [gradients])
        0.3333333333333333
    """
    found: list[float] = []
    for one, other in zip(alignments, saliencies, strict=True):
        one, other = (np.asarray(x, "float64") for x in (one, other))
        if one.shape != other.shape or one.ndim != 2:
            raise ValueError(
                "`rank_correlation` needs arrays of the same shape, (target, "
                f"source). Received: {one.shape} and {other.shape}. Pass the "
                "result itself to `saliency`, not its text, so both have the "
                "same tokens."
            )
        for x, y in zip(one, other, strict=True):
            x, y = (np.sign(w[:, None] - w).ravel() for w in (x, y))
            scale = np.sqrt((x @ x) * (y @ y))
            if scale:
                found.append(float(x @ y / scale))
    return float(np.mean(found)) if found else float("nan")


class _Embedded:
    """A model that can be differentiated with respect to source embeddings.

    Args:
        model: A functional model.
        number: Index of the input with the source's ids.
    """

    def __init__(self, model, number):
        self.inputs = model.inputs
        self._graph = Graph(model)
        self._source = self._graph.inputs[number]
        self._tables = _tables(self._graph, self._source)

    def run(self, inputs, tape):
        """Returns logits, and a list of embeddings, which the tape watches."""
        watched = []

        def watch(key, value):
            if key in self._tables:
                tape.watch(value)
                watched.append(value)

        values = self._graph.run(inputs, watch=watch)
        return values[self._graph.outputs[0]], watched

    def require_vectors_of_tokens(self, ids, text):
        """Raises an error if vectors depend on other tokens than their own.

        Args:
            ids: The source's ids, `(1, source)`.
            text: The source's `Text`.
        """
        ids = ids.numpy()
        usual = text.special.of_text(text.size)
        known = set(usual)
        places = [i for i, x in enumerate(ids[0]) if x in known]
        if not places or len(usual) < 2:
            return
        place = places[0]
        others = ids.copy()
        others[0, place] = next(x for x in usual if x != ids[0, place])
        for key, call in self._tables.items():
            one, other = (
                np.delete(self._vectors(x, key), place, axis=1)
                for x in (ids, others)
            )
            if not np.array_equal(one, other):
                raise ValueError(
                    "`saliency` needs a layer that makes a vector of each "
                    f"token alone. Received: {call}, whose vectors also depend "
                    "on the other tokens. If it has an `Embedding` inside, "
                    "call that layer in the functional model, before the rest."
                )

    def _vectors(self, ids, key):
        dtype = self._graph.symbols[self._source].dtype
        values = {self._source: tf.cast(ids, dtype)}
        for call in self._graph.calls:
            if key in values:
                break
            if values.keys() >= set(call.reads) and call.reads:
                outputs = call.run([values[x] for x in call.reads])
                values.update(zip(call.writes, outputs, strict=True))
        return values[key].numpy()


def _tables(graph, source):
    """Returns the tensors that embed ids: their keys, and the calls.

    These are the vectors, `(batch, source, dim)`, that layers compute from
    these ids alone. Results of plain operations on ids are taken for masks, and
    so are those of layers if they are of shape `(batch, 1, source)`, or if
    their last axis is of no fixed size, as in `(batch, source, source)`.
    """
    length = graph.symbols[source].shape[1]
    of_ids, found = {source}, {}
    for call in graph.calls:
        if not call.reads or not of_ids.issuperset(call.reads):
            continue
        for key in call.writes:
            symbol = graph.symbols[key]
            vectors = len(symbol.shape) == 3 and "float" in symbol.dtype
            vectors = vectors and (symbol.shape[1] != 1 or length == 1)
            vectors = vectors and symbol.shape[2] is not None
            if vectors and isinstance(call.operation, keras.Layer):
                found[key] = call
            else:
                of_ids.add(key)
    if not found:
        raise ValueError(
            "`saliency` needs a model that embeds its source: a layer that "
            "makes a vector of each id, such as `Embedding`. Received: a "
            f"model without one behind its input '{graph.symbols[source].name}'"
            ". Put the operations that make vectors into a layer."
        )
    return found


def _signed(pipeline, graphs, inputs, targets, rows):
    """Returns gradient times input for some target tokens.

    Each target token has its own row of the batch, so one backward pass is
    enough for all of them.

    Args:
        pipeline: The translator's `Pipeline`.
        graphs: An `_Embedded` for each model.
        inputs: The models' inputs but the last.
        targets: The ids `(1, target)`, and those of the prompt or None.
        rows: Slice of the target tokens.

    Returns:
        Array `(rows, source)`.
    """
    ids, begun = targets
    numbers = tf.range(ids.shape[1])[rows]
    count = len(numbers)
    repeated = [tf.repeat(x, count, axis=0) for x in inputs]
    target = tf.repeat(ids, count, axis=0)
    if begun is not None:
        begun = tf.repeat(begun, count, axis=0)
    read = pipeline.scorer.read_for(target, begun)
    outputs, embeddings = [], []
    with tf.GradientTape(watch_accessed_variables=False) as tape:
        for graph in graphs:
            given = [
                tf.cast(x, symbol.dtype)
                for x, symbol in zip(
                    [*repeated, read], graph.inputs, strict=True
                )
            ]
            logits, watched = graph.run(given, tape)
            outputs.append(logits)
            embeddings += watched
        logp = pipeline.scorer.log_probabilities(outputs, target)
        logp = tf.gather(logp, numbers, batch_dims=1)  # (rows,)
    gradients = tape.gradient(
        logp, embeddings, unconnected_gradients=tf.UnconnectedGradients.ZERO
    )
    return sum(
        tf.reduce_sum(
            tf.cast(x, tf.float32) * tf.cast(gradient, tf.float32), axis=2
        ).numpy()
        for x, gradient in zip(embeddings, gradients, strict=True)
    )


def _prompted(pipeline, inputs, ids):
    """Returns target ids without their prompt, and the prompt's ids or None.

    As in `Translator.score`, the model finds the language, unless the target
    begins with it.
    """
    request = pipeline.prompts.completed(inputs, {"prefix": ids})
    begun = request.get("begun")
    if begun is not None:
        removed = pipeline.prompts.lengths_in(ids)[0]
        ids = request["prefix"][:, : tf.shape(ids)[1] - removed]
    return ids, begun


def _ids_of(target, text):
    """Returns the ids of a target, `(1, target)`."""
    given = targets_of([target], 1, text)
    if isinstance(target, str):
        return text.ids(given.take([0]))
    if not target.tokens:
        return tf.zeros([1, 0], tf.int32)
    return given.take([0])[0]
