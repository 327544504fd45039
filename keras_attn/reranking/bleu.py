"""`Bleu`: similarity of texts by their common n-grams of words."""

import numpy as np

from keras_attn.reranking.ngrams import Ngrams
from keras_attn.reranking.ngrams import numbered
from keras_attn.reranking.utility import Utility

LONGEST = 4  # words


class Bleu(Utility):
    """BLEU as sacreBLEU computes it, from 0 to 100, for many pairs at once.

    Sentences are scored with the smoothing and effective order of sacreBLEU's
    `sentence_bleu`, corpora with those of its `corpus_bleu`. Texts are split
    by sacreBLEU's tokenizer `13a`.

    Raises:
        ImportError: If sacreBLEU is not installed.

    References:
        - [Papineni et al., 2002](https://aclanthology.org/P02-1040/)
        - [Post, 2018](https://arxiv.org/abs/1804.08771)
    """

    def __init__(self):
        try:
            import sacrebleu
        except ImportError as error:
            raise ImportError(
                '`metric="bleu"` splits texts with sacreBLEU, which is not '
                "installed. Install it with `pip install sacrebleu`; it is "
                'also part of keras-attn\'s extra `metrics`. `metric="chrf"` '
                "works without it."
            ) from error
        self._split = sacrebleu.BLEU().tokenizer

    def matrix(self, hypotheses, references):
        ngrams, rows, columns = self._ngrams(hypotheses, references)
        common = ngrams.common(rows, columns)
        said = np.broadcast_to(ngrams.totals[rows][:, None], common.shape)
        right = ngrams.totals[columns, 0][:, None]  # words
        right = np.broadcast_to(right, (*common.shape[:2], 1))
        counts = np.concatenate([said, common, right], axis=-1)
        return _bleu(counts, of_sentences=True)

    def counts(self, hypotheses, references):
        """Returns the counts that BLEU is computed from.

        For each hypothesis these are its numbers of n-grams, the numbers of
        those that are in any reference, and the number of words of the
        reference that is nearest in length.
        """
        ngrams, rows, columns = self._ngrams(hypotheses, references)
        said = ngrams.totals[rows]
        common = ngrams.common_with_all(rows, columns)
        lengths = np.sort(ngrams.totals[columns, 0])  # the shorter one first
        nearest = np.abs(lengths - said[:, :1]).argmin(axis=1)
        return np.concatenate(
            [said, common, lengths[nearest][:, None]], axis=-1
        ).astype(float)

    def of_corpus(self, counts):
        return _bleu(counts, of_sentences=False)

    def _ngrams(self, hypotheses, references):
        texts, rows, columns = numbered(hypotheses, references)
        numbers: dict[str, int] = {}
        words = [
            [
                numbers.setdefault(word, len(numbers))
                for word in self._split(text.rstrip()).split()
            ]
            for text in texts
        ]
        return Ngrams(words, LONGEST), rows, columns


def _bleu(counts, of_sentences):
    """Returns BLEU from counts `(..., 2 * LONGEST + 1)`.

    The `k`-th order of n-grams with no common n-gram gets the precision
    `1 / (2 ** k * n-grams)`. A sentence is scored by the orders of n-grams
    that it has, a corpus by all orders.
    """
    counts = np.asarray(counts, float)
    said = counts[..., :LONGEST]
    common = counts[..., LONGEST:-1]
    words, right = counts[..., 0], counts[..., -1]
    there = said > 0
    none = there & (common == 0)
    smooth = 0.5 ** np.cumsum(none, axis=-1)
    precision = np.where(none, smooth, common) / np.maximum(said, 1)
    logs = np.log(np.where(there, precision, 1)).sum(axis=-1)
    lengths = np.maximum(there.sum(axis=-1), 1)
    if not of_sentences:
        logs = np.where(lengths == LONGEST, logs, -np.inf)
    brevity = np.minimum(1 - right / np.maximum(words, 1), 0)
    found = 100 * np.exp(logs / lengths + brevity)
    return np.where((common > 0).any(axis=-1), found, 0.0)
