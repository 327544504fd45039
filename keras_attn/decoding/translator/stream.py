"""Streams the tokens of one source as they are decoded.

A Python loop runs the traced step of the search, the same step that the
search's own loop runs.
"""

from collections.abc import Iterator

import numpy as np
import tensorflow as tf

from keras_attn import structures
from keras_attn.backend import without_gradients
from keras_attn.caller import warn
from keras_attn.decoding import CUT
from keras_attn.decoding.translator.results import Token
from keras_attn.decoding.translator.results import nothing_found
from keras_attn.decoding.translator.results import strings
from keras_attn.text.incremental_detokenizer import IncrementalDetokenizer


class Stream:
    """The two traced functions of a stream: `first`, then `step`.

    Args:
        pipeline: `Pipeline` of a translator.
        request_specs: The `TensorSpec`s of a request.
    """

    def __init__(self, pipeline, request_specs):
        self._pipeline = pipeline
        self._carried = None  # structure of the tensors passed between steps
        self.first = tf.function(
            self._first,
            input_signature=[pipeline.sources.specs, request_specs],
            autograph=False,
        )
        *_, carried = self.first.get_concrete_function().structured_outputs
        self.step = tf.function(
            self._step,
            input_signature=[tf.TensorSpec(x.shape, x.dtype) for x in carried],
            autograph=False,
        )
        self.step.get_concrete_function()

    @without_gradients()
    def _first(self, given, request):
        """Encodes a source.

        Returns:
            The names of the alignment's columns, their number, the `Report` of
            the source, and the flat list of tensors for the first step.
        """
        pipeline = self._pipeline
        inputs = pipeline.sources.inputs(given)
        request = pipeline.prompts.completed(inputs, pipeline.with_ids(request))
        encoded = pipeline.cut.encode(*inputs)
        width = pipeline.width(inputs, encoded)
        columns = pipeline.columns(inputs, encoded, width)
        search_input, _ = pipeline.search_input(inputs, encoded, request)
        run = pipeline.search.begin(search_input)
        known, cache = run.first(), search_input.model.start(run.beams)
        self._carried = inputs, encoded, request, known, cache
        return (
            *pipeline.sources.tokens(given, columns, width),
            pipeline.sources.report(given, inputs),
            structures.flatten(self._carried),
        )

    @without_gradients()
    def _step(self, *carried):
        inputs, encoded, request, known, cache = structures.pack(
            self._carried, carried
        )
        search_input, subset = self._pipeline.search_input(
            inputs, encoded, request
        )
        run, before = self._pipeline.search.begin(search_input), known.scores
        logits, alignments, cache = search_input.model.step(known.last, cache)
        known, _, (token, alignments) = run.advance(known, logits, alignments)
        carried = structures.flatten((inputs, encoded, request, known, cache))
        token = token[0, 0]
        if subset is not None:
            id_ = tf.gather(subset.ids, tf.maximum(token, 0))
            token = tf.where(token == CUT, CUT, id_)
        return (
            token,
            known.scores[0, 0] - before[0, 0],
            alignments[0, 0],
            known.done,
            carried,
        )


def require_streamable(search) -> None:
    """Raises `ValueError` if a search's tokens are final only at the end."""
    if not search.streams:
        raise ValueError(
            "`stream` yields only final tokens, so it needs a search that "
            "follows one hypothesis. Received: "
            f"search={search!r}. Use `GreedySearch`, or `Sampling` with "
            "num_hypotheses=1; or call the translator, which returns whole "
            "texts."
        )


def run(stream, pipeline, given, request) -> Iterator[Token]:
    """Yields the tokens of a stream for one source."""
    source_tokens, (length,), report, carried = stream.first(given, request)
    if report.empty[0]:
        warn("The source is empty, so the model makes up the text.")
    if report.truncated[0]:
        limits = {text.max_length for _, text in pipeline.sources.texts}
        warn(
            "The source has more tokens than its Text's max_length of "
            f"{' or '.join(map(str, sorted(limits)))} and was cut to it.",
        )
    source_tokens = strings(source_tokens[0, :length].numpy())
    text, longest = pipeline.target_text, pipeline.search.max_length
    growing = IncrementalDetokenizer(text, by_tokens=pipeline.replace_unknown)
    special = text.special
    first, last = pipeline.sources.first, pipeline.sources.last
    for n in range(1, longest + 1):
        token, logp, alignment, done, carried = stream.step(*carried)
        token, alignment = int(token), alignment.numpy()[:length]
        if np.isnan(logp) or (n == 1 and token == CUT):
            raise nothing_found()
        if token == CUT:
            return
        name = text.tokens[token]
        is_replaced = token == special.unknown and pipeline.replace_unknown
        if is_replaced and length > first + last:
            best = int(np.argmax(alignment[first : length - last]))
            name = source_tokens[first + best]
        if token == special.end:
            yield Token(growing.end(), name, float(logp), alignment)
            return
        is_over = bool(done[0, 0]) or n == longest
        added = growing.add(token, name, is_over)
        yield Token(added, name, float(logp), alignment)
        if is_over:
            return
