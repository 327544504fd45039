"""`LanguagePrompt`: a text begins with the language that is heard."""

import dataclasses
from collections.abc import Sequence

import tensorflow as tf


@dataclasses.dataclass(frozen=True)
class LanguagePrompt:
    """What the decoder reads after the start, if no prefix tells.

    It is the language whose token the model finds the most probable, and then
    further tokens, such as that of a task. So Whisper finds the language of a
    sound ([Radford et al., 2022](https://arxiv.org/abs/2212.04356), section
    2.3). A prefix may begin with such tokens instead: with all of them, or with
    the first ones.

    Args:
        languages: Ids of the tokens of all languages.
        after: Ids that follow, at least one.

    Raises:
        ValueError: If one of them is empty.

    Example:
        >>> prompt = keras_attn.LanguagePrompt([5, 6, 7], after=[9])
        >>> prompt.length
        2
    """

    languages: Sequence[int]
    after: Sequence[int]

    def __post_init__(self):
        for name in ("languages", "after"):
            object.__setattr__(self, name, tuple(map(int, getattr(self, name))))
            if not getattr(self, name):
                raise ValueError(
                    f"`{name}` of a `LanguagePrompt` must be a list of ids, at "
                    "least one. Received: none."
                )

    @property
    def length(self) -> int:
        """Number of tokens of a prompt."""
        return 1 + len(self.after)

    def best(self, logits) -> tf.Tensor:
        """Returns the most probable language of each row, int32 `(batch,)`.

        Args:
            logits: Those of the first token, `(batch, vocabulary)`.
        """
        among = tf.gather(logits, self.languages, axis=1)
        return tf.gather(self.languages, tf.argmax(among, axis=1))

    def told(self, prefix, tokens: tuple[int, ...], pad: int) -> tuple:
        """Returns how many tokens of a prompt each prefix begins with.

        Args:
            prefix: Ids `(batch, columns)`, padded.
            tokens: Ids of all tokens of prompts.
            pad: The id that pads.

        Returns:
            int32 `(batch,)`, the last token of a prompt not counted; and the
            prefix, padded by as many columns as a prompt may have.
        """
        prefix = tf.pad(prefix, [[0, 0], [0, self.length]], constant_values=pad)
        known = tf.constant([*tokens, *self.languages, *self.after])
        leads = prefix[:, : self.length - 1]
        is_known = tf.reduce_any(leads[..., None] == known, axis=-1)
        lead = tf.math.cumprod(tf.cast(is_known, tf.int32), axis=1)
        return tf.reduce_sum(lead, axis=1), prefix

    def completed(self, prefix, count, languages) -> tuple:
        """Returns prompts but for their last token, and what follows them.

        Args:
            prefix, count: The results of `told()`.
            languages: Ids `(batch,)` for the prefixes that tell none.
        """
        rows, width = tf.unstack(tf.shape(prefix))
        after = tf.tile([self.after[:-1]], [rows, 1])
        usual = tf.concat(
            [languages[:, None], tf.cast(after, tf.int32)], axis=1
        )
        places = tf.range(self.length - 1)
        told = places < count[:, None]
        prompt = tf.where(told, prefix[:, : self.length - 1], usual)
        following = tf.gather(prefix, count, batch_dims=1)
        is_last = (count > 0) & (following == self.after[-1])
        first = count + tf.cast(is_last, tf.int32)
        columns = first[:, None] + tf.range(width - self.length)
        return prompt, tf.gather(prefix, columns, batch_dims=1)
