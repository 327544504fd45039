"""`Splitter`: the base class of ways to split text."""

import tensorflow as tf


class Splitter(tf.Module):
    """Base class of ways to split text into tokens, and to join them again.

    An instance is passed to a `Text`, `Text(vocabulary, split=MySplitter())`,
    which normalises, looks up, cuts and pads. A subclass is of one of two
    kinds:

    - Its pieces are tokens of the `Text`'s vocabulary. It writes `split()`,
      and sets `separator` or writes `join()`.
    - It has ids of its own, as subword models do. It sets `tokens` and writes
      `ids()` and `strings()`; the `Text` is made without a vocabulary. It may
      write `split()` and `join()` too: `replace_unknown` of a `Translator`
      needs `split()` of its source text and `join()` of its target text.

    The methods run in graphs that go into a SavedModel, so they are made of
    operations of TensorFlow or tensorflow-text. A `Text` tries a part on a
    few lines when it is made, and refuses one that breaks a rule. Tables and
    tokenizers are made in the constructor and kept as attributes, by which
    an export finds them; so does it find the files that tables read.

    To be saved with a `Text` or a `Translator`, a part returns the arguments
    of its constructor from `get_config()`. Its class is registered,
    `@keras.saving.register_keras_serializable()`, or passed as
    `custom_objects` to `load()`.

    The name is that of `tensorflow_text.Splitter`, which does the same work;
    a tokenizer, in Keras's and others' sense, is the whole `Text`. This class
    is provisional: subwords, which come next, may change what a part writes.

    Attributes:
        separator: String between two pieces, where that is all there is to
            joining them. `None` where a part writes `join()`.
        tokens: List of tokens without the special ones, of a part with ids of
            its own: the ids 4, 5 and so on. `None` of any other.
        splits_alone: Whether any token of a vocabulary, alone in a line, is
            split into just itself. A `Text` then refuses tokens that are
            not. `False` of pieces that depend on what is around them, such
            as `##ing`.
        assets: Names of the constructor's arguments that are paths of files.
            Wherever the part is saved, copies of these go along, and the
            part that is loaded gets their paths.

    Example:

    >>> import tensorflow as tf
    >>> class Sentences(keras_attn.Splitter):
    ...     separator = "."
    ...     def split(self, strings):
    ...         strings = tf.strings.regex_replace(strings, r"[.]+", ".")
    ...         strings = tf.strings.regex_replace(strings, r"^[.]|[.]$", "")
    ...         pieces = tf.strings.split(strings, ".")
    ...         return tf.ragged.boolean_mask(pieces, pieces != "")
    >>> text = keras_attn.Text(["so it is", "no"], split=Sentences())
    >>> text.ids(["so it is.no.", "no. so"]).numpy().tolist()
    [[4, 5, 2], [5, 3, 2]]
    >>> text.strings([[5, 4, 2]]).numpy().tolist()
    [b'no.so it is']
    """

    separator: str | None = None
    tokens: list[str] | None = None
    splits_alone = True
    assets: tuple[str, ...] = ()

    def split(self, strings) -> tf.RaggedTensor:
        """Splits strings into pieces.

        Args:
            strings: Strings `(batch,)`, valid UTF-8, as the `Text` normalises
                them.

        Returns:
            Strings `(batch, ragged)`. None is empty; an empty string has no
            pieces.
        """
        raise NotImplementedError

    def join(self, pieces) -> tf.Tensor:
        """Joins pieces into strings, which are split into the same pieces.

        Args:
            pieces: Strings `(batch, ragged)`; `<unk>` stands where a model
                wrote that.

        Returns:
            Strings `(batch,)`.
        """
        if self.separator is None:
            raise NotImplementedError
        return tf.strings.reduce_join(pieces, axis=-1, separator=self.separator)

    def ids(self, strings) -> tf.RaggedTensor:
        """Turns strings into ids, in a part with ids of its own.

        Args:
            strings: As for `split()`.

        Returns:
            Integers `(batch, ragged)`: 4 and more for `tokens`, 3 for what is
            unknown. There is no start and no end token among them.
        """
        raise NotImplementedError

    def strings(self, ids) -> tf.Tensor:
        """Turns ids into strings, in a part with ids of its own.

        Args:
            ids: int32 `(batch, ragged)`, such as `ids()` returns.

        Returns:
            Strings `(batch,)`.
        """
        raise NotImplementedError

    def get_config(self) -> dict:
        """Returns the arguments that make the same part again."""
        return {}

    @classmethod
    def from_config(cls, config: dict) -> "Splitter":
        """Makes a part of what `get_config()` returned."""
        return cls(**config)

    def writes(self, method: str) -> bool:
        """Returns whether the subclass has a method of its own."""
        return getattr(type(self), method) is not getattr(Splitter, method)

    @property
    def joins(self) -> bool:
        """Whether pieces can be joined."""
        return self.separator is not None or self.writes("join")
