"""`IntegerIds`: texts of ids, for models with a tokenizer elsewhere."""

import dataclasses

import keras
import tensorflow as tf

from keras_attn import arguments
from keras_attn.text.special_tokens import SpecialTokens
from keras_attn.text.splitter import Splitter


# Registered under its name in version 0.3, which saved files have.
@keras.saving.register_keras_serializable("keras_attn", name="Ids")
class IntegerIds(Splitter):
    """Reads and writes ids as decimal numbers with spaces between them.

    It is for a model whose clients turn text into ids themselves:
    `"17 4 230"`. Anything else than an id of the vocabulary is unknown, and so
    are the ids of padding, start and end, since the `Text` adds these.

    Args:
        size: Number of ids.
        special: `SpecialTokens` of the model, with an unknown token. If the
            model has none, set `unknown` to any id that it does not use.

    Raises:
        ValueError: If `special` has no unknown token.

    Example:
        >>> special = keras_attn.SpecialTokens(0, start=(0,), end=1, unknown=2)
        >>> text = keras_attn.Text(split=keras_attn.IntegerIds(50, special))
        >>> text.ids(["17 4 23", "99"]).numpy().tolist()
        [[17, 4, 23, 1], [2, 1, 0, 0]]
        >>> text.strings([[17, 4, 1]]).numpy().tolist()
        [b'17 4']
    """

    splits_alone = False
    keeps_text = False  # only of ids
    finds_special = True  # a number may contain the digits of another

    def __init__(self, size: int, special: SpecialTokens):
        super().__init__()
        arguments.positive(size, "size")
        self.special = SpecialTokens.of(special)
        if self.special is None or self.special.unknown < 0:
            raise ValueError(
                "`IntegerIds` needs special tokens with an unknown one, which "
                "stands for anything that is not an id. Received: "
                f"special={special!r}. If the model has no unknown token, set "
                "`unknown` to an id that it does not use."
            )
        self._size = size
        self.tokens = [str(i) for i in range(size)]

    def ids(self, strings):
        pieces = tf.strings.split(strings)
        flat = pieces.flat_values
        # A number of more digits may not fit int32, and no id is so large.
        number = tf.strings.regex_full_match(flat, "0*[0-9]{1,9}")
        ids = tf.strings.to_number(tf.where(number, flat, "-1"), tf.int32)
        known = (ids >= 0) & (ids < self._size)
        for special in self.special.non_text_ids:
            if special not in self.special.spelled_tokens:
                known &= ids != special
        return pieces.with_flat_values(
            tf.where(known, ids, self.special.unknown)
        )

    def split(self, strings):
        return tf.strings.split(strings)

    def join(self, pieces):
        return tf.strings.reduce_join(pieces, axis=-1, separator=" ")

    def strings(self, ids):
        return self.join(ids.with_flat_values(tf.as_string(ids.flat_values)))

    def get_config(self):
        special = dataclasses.asdict(self.special)
        return {"size": self._size, "special": special}
