"""Tries a custom search on random logits."""

import copy

import numpy as np
import tensorflow as tf

from keras_attn.decoding.search import Search
from keras_attn.decoding.search_input import SearchInput
from keras_attn.decoding.step_model import StepModel

_STEPS = 4  # longest output of the trial
_SOURCE = 3  # positions
_ROWS = 16  # at most
_KINDS = 5  # the logits depend on the last token modulo this
_START, _END = 1, 2


def try_search(search: Search, vocabulary: int) -> None:
    """Raises `ValueError` if a search breaks a rule of `Search`.

    A source must get the same hypotheses alone as in a batch, also if each row
    of a request sets its own options. The trial uses as many sources as
    hypotheses, so a search that confuses the two axes runs, and the comparison
    detects it. The trial is skipped if the class sets `rows_are_independent`
    and the search has no rules.

    Args:
        search: The search.
        vocabulary: Number of ids.
    """
    if search.vouches_for("rows_are_independent") and not search.rules:
        return
    try:
        _Trial(search, vocabulary).run()
    except Exception as error:
        error.add_note(
            "A `Translator` tries a search or rules of your own on random "
            "logits: this came from the trial."
        )
        raise


class _Trial:
    """Decodes rows together and alone.

    Args:
        search: The search.
        vocabulary: Number of ids.
    """

    def __init__(self, search: Search, vocabulary: int):
        self._search = _shorter(search)
        # With more hypotheses than rows, TensorFlow notices confused axes.
        self._rows = max(2, min(search.num_hypotheses, _ROWS))
        size = self._rows, _STEPS, _KINDS, vocabulary
        random = np.random.default_rng(0)
        self._logits = 3 * random.standard_normal(size, dtype="float32")

    def run(self) -> None:
        """Raises `ValueError` if a row depends on others."""
        self._compare({})
        if options := self._options():
            self._compare(options)

    def _compare(self, options):
        every = np.arange(self._rows)
        together, again = (self._decoded(every, options) for _ in range(2))
        if not _same(together, again):
            return  # it draws its own random numbers: nothing to compare
        for row in range(self._rows):
            alone = self._decoded(np.array([row]), options)
            if not _same(alone, [x[row : row + 1] for x in together]):
                raise ValueError(
                    f"`{type(self._search).__name__}` must decode each row of "
                    "a batch by itself. Received: other hypotheses for a "
                    "source in a batch than alone"
                    + (
                        ", where each row of the request sets "
                        f"{', '.join(options)}. An option of a request is a "
                        "tensor (batch, 1): write "
                        "`step.for_all_tokens(self.option)` to combine it "
                        "with tensors (batch, N, vocabulary)."
                        if options
                        else ". No operation may mix rows along the first axis."
                    )
                )

    def _decoded(self, rows, options):
        given = SearchInput(
            model=_Model(self._logits, rows),
            start_token=_START,
            end_token=_END,
            forbidden=(0, _START),
            source_lengths=tf.fill([len(rows)], _SOURCE),
            source_mask=tf.ones([len(rows), _SOURCE], tf.bool),
            seed=tf.constant(rows + 1, tf.int32),
            options={name: tf.constant(x[rows]) for name, x in options.items()}
            or None,
        )
        return self._search(given)

    def _options(self):
        """Returns a value per row for the search's own request options."""
        found, search = {}, self._search
        for name, dtype in search.request_options.items():
            if name in Search.__annotations__:
                continue
            own = getattr(search, name)
            allowed = search.request_options.range_of(name)
            as_number = dtype.as_numpy_dtype
            # Neighbouring rows get very different values, so that few draws
            # are enough to tell them apart.
            values = [
                as_number(x) for x in (own / 4, 4 * own + 1, own, own + 1)
            ]
            values = [x for x in values if allowed.holds(x)]
            found[name] = np.resize(values or [as_number(own)], self._rows)
        return found


def _shorter(search):
    """Returns a copy of the search with fewer steps, after its own check."""
    most = min(_STEPS, search.max_length)
    shorter = copy.copy(search)
    for name, value in {
        "max_length": most,
        "min_length": min(search.min_length, most),
        "max_per_source": None,
        "min_per_source": None,
    }.items():
        object.__setattr__(shorter, name, value)
    shorter.check()  # it may also set attributes
    return shorter


class _Model(StepModel):
    """Returns given logits, selected by row, time and last token."""

    def __init__(self, logits, numbers):
        self._logits, self._numbers = logits, numbers
        self.rows = len(numbers)

    def start(self, beams, places=None):
        numbers = np.repeat(self._numbers[:, None], beams, axis=1)
        return (
            tf.constant(numbers, tf.int32),
            tf.zeros([self.rows, beams], tf.int32),
        )

    def step(self, tokens, state):
        row, time = state
        at = tf.stack([row, time, tokens % _KINDS], axis=-1)
        weights = tf.one_hot(tokens % _SOURCE, _SOURCE)
        return tf.gather_nd(self._logits, at), weights, (row, time + 1)


def _same(one, other):
    return all(
        np.allclose(x, y, rtol=1e-4, atol=1e-4)
        for x, y in zip(one, other, strict=True)
    )
