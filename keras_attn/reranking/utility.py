"""`Utility`: how good a hypothesis is, given a reference."""

from collections.abc import Callable
from collections.abc import Sequence

import numpy as np

from keras_attn import arguments


class Utility:
    """Base class of metrics that compare hypotheses with references.

    A function of `(hypothesis, reference)` is enough for most metrics. Write a
    subclass to compare many pairs at once, for example with a learned metric.
    It implements `matrix`; greater values are better. For a metric of a corpus
    other than the mean it also overrides `counts` and `of_corpus`.

    This interface is provisional: it may change in later versions.

    Example:
        >>> from keras_attn.reranking import Utility
        >>> class SameLength(Utility):
        ...     def matrix(self, hypotheses, references):
        ...         one, other = (
        ...             np.array([len(x) for x in texts])
        ...             for texts in (hypotheses, references))
        ...         return -np.abs(one[:, None] - other)
        >>> SameLength().matrix(["a", "abc"], ["ab", "abc", "b"]).tolist()
        [[-1, -2, 0], [-1, 0, -2]]
    """

    def matrix(
        self, hypotheses: Sequence[str], references: Sequence[str]
    ) -> np.ndarray:
        """Returns the utility of each hypothesis for each reference.

        Args:
            hypotheses: List of strings.
            references: List of strings.

        Returns:
            Array of shape `(hypotheses, references)`.
        """
        raise arguments.lacking(
            self, "matrix", "an array `(hypotheses, references)`"
        )

    def counts(
        self, hypotheses: Sequence[str], references: Sequence[str]
    ) -> np.ndarray:
        """Returns counts whose sums give the value of a corpus.

        Args:
            hypotheses: List of strings for one source.
            references: List of all its references, at least one.

        Returns:
            Array of shape `(hypotheses, counts)`. By default the two counts
            are the utility for the best reference, and 1.
        """
        best = self.matrix(hypotheses, references).max(axis=1)
        return np.stack([best, np.ones(len(best))], axis=-1)

    def of_corpus(self, counts: np.ndarray) -> np.ndarray:
        """Returns the values of corpora from their counts; by default the mean.

        Args:
            counts: Counts summed over sources, an array `(..., counts)`.

        Returns:
            Array of shape `(...)`.
        """
        return counts[..., 0] / np.maximum(counts[..., 1], 1)


class FunctionUtility(Utility):
    """Calls a function for each pair, which is slow for many pairs."""

    def __init__(self, function: Callable[[str, str], float]):
        self._function = function

    def matrix(self, hypotheses, references):
        return np.array(
            [
                [self._value(one, other) for other in references]
                for one in hypotheses
            ],
            float,
        ).reshape(len(hypotheses), len(references))

    def _value(self, hypothesis, reference):
        found = self._function(hypothesis, reference)
        try:
            return float(found)
        except (TypeError, ValueError) as error:
            raise ValueError(
                "`metric` must be a function of two strings, a hypothesis and "
                f"a reference, that returns a number. Received: {found!r:.80} "
                f"for {hypothesis!r:.40} and {reference!r:.40}. For a metric "
                "of lists, such as `keras_attn.metrics.chrf`, pass its "
                'name, "chrf".'
            ) from error
