"""`MinimumRisk`: minimum Bayes risk decoding."""

import collections
import dataclasses
from collections.abc import Callable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_attn.decoding import Search
from keras_attn.decoding.translator import Translation
from keras_attn.decoding.translator import Translations
from keras_attn.decoding.translator import Translator
from keras_attn.progress import Bar
from keras_attn.reranking import rows
from keras_attn.reranking.checks import require_integer
from keras_attn.reranking.metrics import utility_of
from keras_attn.reranking.nbest import all_of
from keras_attn.reranking.requested import Requested
from keras_attn.reranking.sampling_of import sampling_of
from keras_attn.reranking.utility import Utility

# Number of hypotheses to decode together. More are hardly faster, and their
# logits take memory.
_AT_ONCE = 512
_DIGITS = 12  # utilities are rounded, so rounding errors do not break ties


class MinimumRisk:
    """Chooses hypotheses by their similarity to samples, not by probability.

    The likeliest translation of a model may be a poor one: too short, or
    unlike all the others, which together are far more probable. Minimum Bayes
    risk decoding draws samples from the model and returns the candidate that
    is most similar to them on average:

    `argmax over candidates c: mean over samples s of metric(c, s)`

    Call it like a `Translator`. Of candidates with the same text, only the one
    with the best score is kept. A sample that is drawn twice counts twice. Of
    candidates with equal utility, the one with the better score in its search
    is returned, and of equal scores the first.

    Cost: for each source all samples are decoded, and each candidate is
    compared with each distinct sample.

    Samples are drawn without the translator's glossary and without `terms`,
    because only a `BeamSearch` supports these. With a glossary or `terms`, the
    candidates must come from beam searches. A `Translator` in `candidates`
    uses its own glossary, if any.

    Args:
        translator: `Translator` that draws the samples. If its search draws,
            such as `Sampling`, its options are used. Otherwise its model is
            sampled at temperature 1, with the length limits and the rules of
            its search.
        samples: Number of samples for each source. Or a `Search` for the same
            model, or another `Translator`, whose hypotheses are the samples.
        metric: `"chrf"`, `"bleu"`, or for a negative error rate `"wer"`,
            `"cer"` or `"ser"`, as in `keras_attn.metrics`. Or a function of
            (hypothesis, reference) that returns a number, greater for better
            hypotheses. Or a `keras_attn.reranking.Utility`, which compares
            many pairs at once.
        candidates: A `Search` for the same model, or another `Translator`,
            whose hypotheses are compared with the samples; or a list of these.
            A search that also draws the samples runs only once. Defaults to
            the samples.
        num_hypotheses: Number of results for each source, or `None` for all
            candidates. Each result has its alignment, so keeping all takes
            much memory.

    Attributes:
        samples: The `Translator` that draws samples.
        candidates: Tuple of the `Translator`s whose hypotheses are compared.

    Raises:
        ValueError: If an argument is invalid, or if the translator has a
            glossary and candidates do not come from beam searches.
        ImportError: If the metric needs a package that is not installed.

    References:
        - [Eikema and Aziz, 2020](https://arxiv.org/abs/2005.10283)
        - [Kumar and Byrne, 2004](https://aclanthology.org/N04-1022/)

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
        ...     model, text, text, keras_attn.BeamSearch(3, max_length=5))
        >>> safest = keras_attn.MinimumRisk(copy, samples=8, metric="chrf")
        >>> result = safest(["abba", "b"], seed=1)
        >>> len(result.text), result.scores.shape  # of the best of each source
        (2, (2,))
    """

    def __init__(
        self,
        translator: Translator,
        samples: int | Search | Translator = 32,
        metric: str | Callable[[str, str], float] | Utility = "chrf",
        candidates: (
            Search | Translator | Sequence[Search | Translator] | None
        ) = None,
        num_hypotheses: int | None = 1,
    ):
        if not isinstance(translator, Translator):
            raise ValueError(
                "`MinimumRisk` needs a `Translator`, which draws samples. "
                f"Received: translator={translator!r:.200}. Make one: "
                "`Translator(model, source_text, target_text, search)`."
            )
        self.metric = metric
        self._utility = utility_of(metric)
        require_integer("num_hypotheses", num_hypotheses, or_none=True)
        self.num_hypotheses = num_hypotheses
        self._given = translator
        self._made = [(translator.search, translator)]
        if not isinstance(samples, (Search, Translator)):
            require_integer("samples", samples)
            samples = sampling_of(translator.search, int(samples))
        listed = [samples] if candidates is None else _listed(candidates)
        self.samples = self._translator(samples, keeps_glossary=False)
        if translator.glossary is not None:
            self._require_steered("A translator with a glossary", listed)
        self.candidates = tuple(map(self._translator, listed))
        # Each decodes once; the one for the samples comes first.
        self._translators = list(
            dict.fromkeys([self.samples, *self.candidates])
        )

    def __repr__(self) -> str:
        shown = {
            "samples": self.samples.search,
            "metric": self.metric,
            "candidates": [x.search for x in self.candidates],
            "num_hypotheses": self.num_hypotheses,
        }
        lines = [f"  {name}={value!r}" for name, value in shown.items()]
        return "\n".join([f"<{type(self).__name__}", *lines]) + ">"

    def __call__(
        self,
        sources: Any,
        batch_size: int | None = None,
        prefixes: Sequence[str | None] | None = None,
        seed: int | None = None,
        options: Mapping[str, Any] | None = None,
        terms: Sequence[Sequence[str] | None] | None = None,
        avoid: Sequence[Sequence[str] | None] | None = None,
        verbose: str | int = "auto",
    ) -> Translations:
        """Translates sources.

        Args:
            sources: As in a call of the translator.
            batch_size: Maximum number of sources that are decoded together. It
                does not change the results. Defaults to so many that they
                have at most 512 hypotheses together.
            prefixes: As in a call of the translator, for samples and
                candidates.
            seed: Integer that makes the samples of a call reproducible.
                Defaults to new samples in each call.
            options: As in a call of the translator, such as `{"top_p": 0.9}`.
                Each search gets the options that it has.
            terms: As in a call of the translator, for the candidates, which
                must come from beam searches. Candidates with fewer missing
                terms come first.
            avoid: As in a call of the translator, for samples and candidates.
            verbose: Whether to show a progress bar: 0, 1, or `"auto"`, which
                shows it on a terminal.

        Returns:
            `Translations`, as from a translator, with the best candidates of
            each source. The `score` of each is its expected utility, the mean
            of the metric over the samples. For the model's score, call
            `translator.score(sources, result)`.
        """
        if batch_size is None:
            most = max(x.search.num_hypotheses for x in self._translators)
            batch_size = max(1, _AT_ONCE // most)
        require_integer("batch_size", batch_size)
        sources = rows.listed(sources)
        reader = self.samples.pipeline.sources
        lengths = np.array(reader.lengths(reader.collect(sources)))
        if terms is not None:
            self._require_steered("`terms`", self.candidates)
        requested = Requested(
            self._translators,
            len(lengths),
            prefixes=prefixes,
            seed=seed,
            options=options,
            terms=terms,
            avoid=avoid,
        )
        bar = Bar(verbose, len(lengths), "source")
        found: list = [None] * len(lengths)
        # Sources of similar length share a batch.
        order = np.argsort(-lengths, kind="stable")
        for first in range(0, len(order), batch_size):
            batch = order[first : first + batch_size].tolist()
            some = rows.take(sources, batch)
            results = {
                translator: translator(
                    some, batch_size, **requested.of(translator, batch)
                )
                for translator in self._translators
            }
            for n, i in enumerate(batch):
                found[i] = self._best(
                    {x: all_of(y[n]) for x, y in results.items()}
                )
            bar.add(len(batch))
        return Translations(found)

    def _best(self, hypotheses):
        """Returns the best candidates of a source.

        Args:
            hypotheses: Dictionary from translators to lists of hypotheses.
        """
        drawn = collections.Counter(x.text for x in hypotheses[self.samples])
        candidates: dict[str, Translation] = {}
        for translator in self.candidates:
            for one in hypotheses[translator]:
                other = candidates.setdefault(one.text, one)
                if one.score > other.score:
                    candidates[one.text] = one
        matrix = np.asarray(
            self._utility.matrix(list(candidates), list(drawn)), float
        )
        _require_matrix(matrix, (len(candidates), len(drawn)))
        times = np.array(list(drawn.values()))
        utilities = _rounded(matrix @ (times / times.sum()))
        listed = list(candidates.values())
        order = sorted(
            range(len(listed)),
            key=lambda i: (
                len(listed[i].missing),
                -utilities[i],
                -listed[i].score,
            ),
        )
        kept = [
            # A copy of the alignment, which is a view of that of all samples.
            dataclasses.replace(
                listed[i],
                score=float(utilities[i]),
                alignment=listed[i].alignment.copy(),
                alternatives=[],
            )
            for i in order[: self.num_hypotheses]
        ]
        return dataclasses.replace(kept[0], alternatives=kept[1:])

    def _translator(self, given, keeps_glossary=True):
        """Returns a translator with a search; equal searches share one."""
        if isinstance(given, Translator):
            return given
        for search, made in self._made:
            if search == given:
                return made
        changes: dict[str, Any] = {"search": given}
        if not (keeps_glossary or given.takes_steering):
            changes["glossary"] = None
        self._made.append((given, self._given.replace(**changes)))
        return self._made[-1][1]

    def _require_steered(self, what, candidates):
        """Raises `ValueError` for candidates of searches without terms."""
        for one in candidates:
            search = one.search if isinstance(one, Translator) else one
            if not search.takes_steering:
                raise ValueError(
                    f"{what} of `MinimumRisk` needs candidates of beam "
                    "searches, as others do not support terms. Received: "
                    f"candidates of {search!r:.80}. Pass for example "
                    "`candidates=keras_attn.BeamSearch(5, num_hypotheses=5)`."
                )


def _listed(candidates):
    kinds = Search, Translator
    listed = [candidates] if isinstance(candidates, kinds) else candidates
    if (
        not isinstance(listed, Sequence)
        or not listed
        or not all(isinstance(x, kinds) for x in listed)
    ):
        raise ValueError(
            "`candidates` must be a `Search` for the translator's model, "
            "another `Translator`, or a list of these. Received: candidates="
            f"{candidates!r:.200}. Pass for example `keras_attn.BeamSearch(5, "
            "num_hypotheses=5)`, or leave it out to choose among the samples."
        )
    return list(listed)


def _rounded(utilities):
    """Rounds each number to `_DIGITS` digits of its own."""
    return np.array([float(f"{x:.{_DIGITS - 1}e}") for x in utilities])


def _require_matrix(matrix, shape):
    if matrix.shape != shape or np.isnan(matrix).any():
        raise ValueError(
            "`metric` must give a number for each hypothesis and reference. "
            f"Received: an array of shape {matrix.shape} for {shape[0]} "
            f"hypotheses and {shape[1]} references, with "
            f"{np.isnan(matrix).sum()} values that are NaN."
        )
