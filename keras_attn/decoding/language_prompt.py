"""`LanguagePrompt`: targets begin with the language that the model finds."""

import dataclasses
from collections.abc import Sequence

import tensorflow as tf


@dataclasses.dataclass(frozen=True)
class LanguagePrompt:
    """A prompt before each target: its language, as found, and a task.

    The language is the one whose token the model finds most probable, as
    Whisper detects the language of audio ([Radford et al.,
    2022](https://arxiv.org/abs/2212.04356), section 2.3). The decoder reads
    the prompt after the start tokens. A request's prefix may set the language,
    the tokens after it, or the whole prompt.

    Args:
        languages: Ids of the tokens of all languages.
        after: Ids that follow the language, at least one, such as the id of a
            task. A prefix may replace them.
        last: Ids that end every prompt.

    Raises:
        ValueError: If one of them is empty.

    Example:
        >>> prompt = keras_attn.LanguagePrompt([5, 6, 7], after=[9])
        >>> prompt.length
        2
    """

    languages: Sequence[int]
    after: Sequence[int]
    last: Sequence[int] = ()

    def __post_init__(self):
        for name in ("languages", "after", "last"):
            object.__setattr__(self, name, tuple(map(int, getattr(self, name))))
            if name != "last" and not getattr(self, name):
                raise ValueError(
                    f"`{name}` of a `LanguagePrompt` must be a list of ids, at "
                    "least one. Received: none. Pass the ids of the target "
                    "text's tokens."
                )

    @property
    def length(self) -> int:
        """Number of tokens in a prompt."""
        return 1 + len(self.after) + len(self.last)

    def best(self, logits) -> tf.Tensor:
        """Returns the most probable language of each row, int32 `(batch,)`.

        Args:
            logits: Logits of the first token, `(batch, vocabulary)`.
        """
        among = tf.gather(logits, self.languages, axis=1)
        return tf.gather(self.languages, tf.argmax(among, axis=1))

    def told(self, prefix, tokens: tuple[int, ...], pad: int) -> tuple:
        """Finds the parts of a prompt with which each prefix begins.

        Args:
            prefix: Ids `(batch, columns)`, padded.
            tokens: Ids of all tokens of prompts.
            pad: The id that pads.

        Returns:
            Whether a prefix begins with a language, `(batch,)`; how many other
            tokens of a prompt follow, not counting `last`, `(batch,)`; and the
            prefix, padded with `length` more columns.
        """
        prefix = tf.pad(prefix, [[0, 0], [0, self.length]], constant_values=pad)
        names = _among(prefix[:, 0], self.languages)
        tasks = {*tokens, *self.after} - {*self.languages, *self.last}
        after = tf.range(len(self.after)) + tf.cast(names, tf.int32)[:, None]
        known = _among(tf.gather(prefix, after, batch_dims=1), sorted(tasks))
        follow = tf.math.cumprod(tf.cast(known, tf.int32), axis=1)
        return names, tf.reduce_sum(follow, axis=1), prefix

    def lengths_in(self, prefix, names, follow) -> tf.Tensor:
        """Counts the prompt tokens with which prefixes begin, `(batch,)`.

        Args:
            prefix, names, follow: The results of `told()`.
        """
        found = tf.cast(names, tf.int32) + follow
        for token in self.last:
            is_it = tf.gather(prefix, found, batch_dims=1) == token
            found += tf.cast(is_it, tf.int32)
        return found

    def completed(self, prefix, names, follow, languages) -> tuple:
        """Returns complete prompts, and the prefixes without their prompts.

        Args:
            prefix, names, follow: The results of `told()`.
            languages: Ids `(batch,)`, used if a prefix names no language.

        Returns:
            Ids `(batch, length)` and `(batch, columns)`.
        """
        rows, width = tf.unstack(tf.shape(prefix))
        first = tf.cast(names, tf.int32)
        languages = tf.where(names, prefix[:, 0], languages)
        places = tf.range(len(self.after))
        given = tf.gather(prefix, first[:, None] + places, batch_dims=1)
        after = tf.where(places < follow[:, None], given, [self.after])
        last = tf.tile(tf.constant([self.last], tf.int32), [rows, 1])
        prompt = tf.concat([languages[:, None], after, last], axis=1)
        first = self.lengths_in(prefix, names, follow)
        columns = first[:, None] + tf.range(width - self.length)
        return prompt, tf.gather(prefix, columns, batch_dims=1)


def _among(ids, these):
    """Returns whether each id is one of these."""
    found = ids[..., None] == tf.constant(these, tf.int32)
    return tf.reduce_any(found, axis=-1)
