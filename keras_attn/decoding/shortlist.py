"""`Shortlist`: the target tokens that a source could mean.

With a vocabulary of thousands, the output layer takes half of a translator's
multiplications, though most tokens cannot be part of a translation of the
source. With a shortlist, a search considers only the target tokens that were
seen with the source's tokens, and the most frequent ones. Jean et al. (2015,
section 3.3) call this a candidate list.
"""

import collections
import pathlib
from collections.abc import Iterable
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

import numpy as np
import tensorflow as tf

from keras_attn import arguments
from keras_attn.arguments import Former
from keras_attn.decoding import NEVER
from keras_attn.decoding import SearchInput
from keras_attn.text.text import Text

_MISSING = -1  # fills the rows of the table


class Shortlist:
    """The target tokens that each source token could mean.

    A `Translator` with a shortlist decodes each source only with the tokens of
    the source's own list, so its result does not depend on other sources in the
    batch. The scores are log-probabilities normalized over the tokens of the
    list. The list always includes the end token, the unknown token, and the
    tokens of the row's prefix and required terms. `Translator.score` and the
    signature `step` of an export use the whole vocabulary.

    `from_alignments` makes a shortlist with a translator, `from_tokens` from a
    dictionary or the output of another aligner.

    Args:
        table: Integers `(source ids, best)`: the ids of the target tokens for
            each source id, padded with -1.
        always: Ids of target tokens that are in every list.

    Reference:
        - [Jean et al., 2015](https://arxiv.org/abs/1412.2007), section 3.3

    Example:
        >>> source = keras_attn.Text(["un", "deux"], split="whitespace")
        >>> target = keras_attn.Text(["one", "two"], split="whitespace")
        >>> short = keras_attn.Shortlist.from_tokens(
        ...     source, target, {"un": ["one"], "deux": ["two"]})
        >>> short.tokens_of(source, target, "deux deux")
        ['</s>', '<unk>', 'two']
    """

    def __init__(self, table, always=()):
        self.table = np.array(table, "int32")
        self.always = np.unique(np.array(always, "int32").reshape([-1]))
        lowest = min(self.table.min(initial=0) + 1, self.always.min(initial=0))
        whole = np.array_equal(self.table, table) and np.array_equal(
            self.always, np.unique(np.array(always).reshape([-1]))
        )
        if self.table.ndim != 2 or lowest < 0 or not whole:
            raise ValueError(
                "`table` must be integers (source ids, best), at least -1, "
                "and `always` must be ids. Received: a table of shape "
                f"{self.table.shape} with values from "
                f"{self.table.min(initial=0)} and always={always!r:.80}. "
                "`Shortlist.from_tokens` makes them from tokens."
            )

    def __repr__(self) -> str:
        sources, best = self.table.shape
        return (
            f"<Shortlist of up to {best} target tokens for each of {sources} "
            f"source tokens, and {len(self.always)} always>"
        )

    @classmethod
    def from_tokens(
        cls,
        source_text: Text,
        target_text: Text,
        meanings: Mapping[str, Iterable[str]],
        always: Iterable[str] = (),
    ) -> "Shortlist":
        """Makes a shortlist from tokens.

        Args:
            source_text: `Text` of the sources.
            target_text: `Text` of the targets.
            meanings: Dictionary from source tokens to the target tokens that
                they could mean.
            always: Target tokens that are in every list.

        Raises:
            ValueError: If a text does not have one of the tokens.
        """
        source = {x: i for i, x in enumerate(source_text.tokens)}
        target = {x: i for i, x in enumerate(target_text.tokens)}

        def known(ids, tokens, name):
            lacking = [x for x in tokens if x not in ids]
            if lacking:
                raise ValueError(
                    f"The {name} text must have all tokens of a shortlist. "
                    f"Received: {lacking[:5]}, which it does not have. Leave "
                    "them out."
                )
            return [ids[x] for x in tokens]

        known(source, meanings, "source")
        rows = {
            source[x]: known(target, y, "target") for x, y in meanings.items()
        }
        return cls(
            _table(rows, source_text.size), known(target, always, "target")
        )

    @classmethod
    def from_alignments(
        cls,
        translator,
        sources: Sequence[str],
        targets: Sequence[str],
        best: int = 20,
        always: int = 100,
        batch_size: int = 64,
    ) -> "Shortlist":
        """Makes a shortlist from a model's attention on training pairs.

        The attention of a target token to a source token counts as evidence
        that the source token means the target token. For each source token,
        the `best` target tokens with the most attention, summed over all
        pairs, are kept.

        Args:
            translator: A `Translator` of text whose model attends to each
                token of the source.
            sources: Source lines, of the training data.
            targets: Target lines, one for each source.
            best: Number of target tokens for each source token.
            always: Number of the most frequent target tokens, which are in
                every list.
            batch_size: Number of pairs that are aligned together.
        """
        arguments.positive(best, "best")
        arguments.index(always, "always")
        source_text = translator.attended_text
        target_text = translator.target_text
        size = target_text.size
        evidence = _Sums()
        counts = np.zeros(size, "int64")
        for source, target, weights in translator.alignments_of(
            sources, targets, batch_size
        ):
            counts += np.bincount(target, minlength=size)
            keys = source[None] * np.int64(size) + target[:, None]
            evidence.add(keys.ravel(), weights.ravel())
        if not counts.any():
            raise ValueError(
                "A shortlist from alignments needs pairs. Received: no pairs. "
                "Pass sources and targets of the training data."
            )
        rows: Any = collections.defaultdict(list)
        silent = {*source_text.special.non_text_ids}
        for key in evidence.by_falling_sum():
            source, target = divmod(int(key), size)
            if len(rows[source]) < best and source not in silent:
                rows[source].append(target)
        frequent = np.lexsort((np.arange(size), -counts))[:always]
        frequent = frequent[counts[frequent] > 0]
        return cls(_table(rows, source_text.size), frequent)

    def tokens_of(
        self, source_text: Text, target_text: Text, line: str
    ) -> list[str]:
        """Returns the target tokens in the list of a source line, by id."""
        ids = source_text.source_ids([line])
        columns = self.subset(ids, source_text, target_text)
        kept = {*tf.boolean_mask(columns.ids, columns.allowed[0]).numpy()}
        never = {*target_text.special.never_written}
        return [target_text.tokens[i] for i in sorted(kept - never)]

    def require_fits(self, source_text: Text, target_text: Text) -> None:
        """Raises `ValueError` unless the shortlist fits two texts' ids."""
        highest = max(self.table.max(initial=0), self.always.max(initial=0))
        if len(self.table) != source_text.size or highest >= target_text.size:
            raise ValueError(
                "A shortlist needs a row for each id of the source text, and "
                "ids of the target text. Received: "
                f"{len(self.table)} rows with ids up to {highest}, "
                f"source_text.size={source_text.size}, "
                f"target_text.size={target_text.size}. Make the shortlist "
                "with the texts of the translator."
            )

    def allowed(
        self, source_ids, source_text, target_text, forbidden=(), prefix=None
    ) -> tf.Tensor:
        """Returns which target tokens are in each row's list.

        Forbidden and special tokens are included: as without a shortlist, they
        take part in the softmax, and the search forbids them.

        Args:
            source_ids: int32 `(batch, length)`, padded.
            source_text: `Text` of the sources.
            target_text: `Text` of the targets.
            forbidden: Ids of tokens that the search forbids.
            prefix: int32 `(batch, length)`, padded ids of tokens to add to the
                row's list; or `None`.

        Returns:
            Boolean `(batch, vocabulary)`.
        """
        size, batch = target_text.size, tf.shape(source_ids)[0]
        found = tf.gather(tf.constant(self.table), source_ids)
        real = source_ids != source_text.special.pad
        # Missing ids go to one extra column, which is dropped.
        found = tf.where((found != _MISSING) & real[..., None], found, size)
        ids = tf.reshape(found, [batch, -1])
        if prefix is not None:
            ids = tf.concat([ids, prefix], axis=1)
        rows = tf.broadcast_to(tf.range(batch)[:, None], tf.shape(ids))
        known = tf.scatter_nd(
            tf.stack([rows, ids], axis=-1),
            tf.ones_like(ids),
            tf.stack([batch, size + 1]),
        )
        common = np.zeros(size, bool)
        common[[*self.always, *_first(target_text, forbidden)]] = True
        found = (known[:, :size] > 0) | common
        return tf.ensure_shape(found, [source_ids.shape[0], size])

    columns = Former("subset")

    def subset(
        self, source_ids, source_text, target_text, forbidden=(), prefix=None
    ) -> "VocabularySubset":
        """Returns the tokens that a batch needs; arguments as in `allowed`."""
        given = source_ids, source_text, target_text, forbidden, prefix
        allowed = self.allowed(*given)
        # The special tokens come first, so their columns are known in advance.
        first = _first(target_text, forbidden)
        others = np.ones(target_text.size, bool)
        others[first] = False
        more = tf.where(tf.reduce_any(allowed, axis=0) & others)[:, 0]
        more = tf.cast(more, tf.int32)
        ids = tf.concat([tf.constant(first, tf.int32), more], axis=0)
        places = tf.tensor_scatter_nd_update(
            tf.zeros([target_text.size], tf.int32),
            ids[:, None],
            tf.range(tf.shape(ids)[0]),
        )
        return VocabularySubset(
            ids=ids,
            allowed=tf.gather(allowed, ids, axis=1),
            places=places,
            place_of={x: i for i, x in enumerate(first)},
        )

    def save(self, path) -> None:
        """Writes the shortlist to a file."""
        with open(path, "wb") as file:
            np.savez_compressed(file, table=self.table, always=self.always)

    @classmethod
    def load(cls, path) -> "Shortlist":
        """Reads what `save()` wrote."""
        with np.load(pathlib.Path(path)) as found:
            return cls(found["table"], found["always"])


class VocabularySubset(NamedTuple):
    """The tokens that a batch needs; each is a column of the logits."""

    ids: Any  # (columns,), the token id of each column
    allowed: Any  # (batch, columns): whether a token is in a row's list
    places: Any  # (vocabulary,): the column of each id, 0 if it has none
    place_of: dict  # special or forbidden id -> its column

    @property
    def costs(self) -> tf.Tensor:
        """Penalties for tokens outside of a row's list, `(batch, columns)`."""
        return tf.where(self.allowed, 0.0, NEVER)

    def restrict(self, search_input: SearchInput) -> SearchInput:
        """Converts the ids of a search input to columns.

        The input's model must already return logits for these columns only.
        """
        prefix, padding = search_input.prefix, search_input.padding
        if prefix is not None:
            prefix = tf.where(
                prefix == padding,
                self.place_of[padding],
                tf.gather(self.places, prefix),
            )
        return search_input._replace(
            start_token=self.place_of[search_input.start_token],
            end_token=self.place_of[search_input.end_token],
            forbidden=tuple(self.place_of[x] for x in search_input.forbidden),
            prefix=prefix,
            padding=self.place_of[padding],
            rules=tuple(x.renumbered(self) for x in search_input.rules),
        )

    def columns_of(self, ids, instead) -> tf.Tensor:
        """Returns the columns of ids; `instead` for those without one."""
        columns = tf.gather(self.places, tf.maximum(ids, 0))
        listed = tf.gather(self.ids, columns) == ids
        return tf.where(listed, columns, instead)

    def ids_of(self, tokens, real) -> tf.Tensor:
        """Returns the ids of columns, 0 where `real` is false."""
        ids = tf.gather(self.ids, tf.where(real, tokens, 0))
        return tf.where(real, ids, 0)


class _Sums:
    """Sums of weights by key, for too many possible keys for a table."""

    _MOST = 5_000_000  # entries to collect before they are summed

    def __init__(self):
        self._keys, self._weights, self._count = [], [], 0

    def add(self, keys, weights):
        self._keys.append(keys)
        self._weights.append(weights.astype("float64"))
        self._count += len(keys)
        if self._count > self._MOST:
            self._sum()

    def by_falling_sum(self) -> np.ndarray:
        """Returns the keys by falling sum, ties in ascending key order."""
        keys, sums = self._sum()
        return keys[np.lexsort((keys, -sums))]

    def _sum(self):
        if not self._keys:
            return np.zeros(0, "int64"), np.zeros(0)
        keys, at = np.unique(np.concatenate(self._keys), return_inverse=True)
        sums = np.bincount(at, np.concatenate(self._weights))
        self._keys, self._weights = [keys], [sums]
        self._count = 0
        return keys, sums


def _first(target_text, forbidden):
    """Returns the ids whose columns come first, in ascending order."""
    special = target_text.special
    return sorted({*special.non_text_ids, special.unknown, *forbidden} - {-1})


def _table(rows: dict, size: int) -> np.ndarray:
    """Returns a dictionary of id lists as an array `(size, best)`, with -1."""
    width = max(map(len, rows.values()), default=0)
    table = np.full([size, max(width, 1)], _MISSING, "int32")
    for i, ids in rows.items():
        table[i, : len(ids)] = ids
    return table
