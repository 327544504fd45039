"""`Chrf`: similarity of texts by their common n-grams of characters."""

import numpy as np

from keras_attn.reranking.ngrams import Ngrams
from keras_attn.reranking.ngrams import numbered
from keras_attn.reranking.utility import Utility

LONGEST = 6  # characters
RECALL = 2**2  # weight of recall relative to precision


class Chrf(Utility):
    """chrF as sacreBLEU computes it, from 0 to 100, for many pairs at once.

    Precision and recall are averaged over the orders of n-grams that both
    texts have. Spaces are ignored.

    Reference:
        - [Popović, 2015](https://aclanthology.org/W15-3049/)
    """

    def matrix(self, hypotheses, references):
        return self.of_corpus(self._counts_of_pairs(hypotheses, references))

    def counts(self, hypotheses, references):
        """Returns numbers of n-grams of hypotheses, references, and both.

        Of several references, that with the best chrF is used.
        """
        counts = self._counts_of_pairs(hypotheses, references)
        best = self.of_corpus(counts).argmax(axis=1)
        return counts[np.arange(len(best)), best]

    def of_corpus(self, counts):
        said, right, common = np.split(counts, 3, axis=-1)
        both = (said > 0) & (right > 0)
        lengths = np.maximum(both.sum(axis=-1), 1)
        precision, recall = (
            np.sum(common / np.maximum(x, 1), axis=-1, where=both) / lengths
            for x in (said, right)
        )
        above = (1 + RECALL) * precision * recall
        below = RECALL * precision + recall
        return 100 * above / np.where(below > 0, below, 1)

    def _counts_of_pairs(self, hypotheses, references):
        """Returns an array `(hypotheses, references, 3 * LONGEST)`."""
        texts, rows, columns = numbered(hypotheses, references)
        ngrams = Ngrams([_characters(x) for x in texts], LONGEST)
        common = ngrams.common(rows, columns)
        right = np.broadcast_to(ngrams.totals[columns], common.shape)
        said = ngrams.totals[rows][:, None]
        # As in sacreBLEU: orders for which the reference is too short.
        said = np.where(right > 0, said, 0)
        return np.concatenate([said, right, common], axis=-1).astype(float)


def _characters(text):
    """Returns the code points of a text without its spaces."""
    text = "".join(text.split())
    encoded = text.encode("utf-32-le", "surrogatepass")
    return np.frombuffer(encoded, "<u4")
