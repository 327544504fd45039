"""`Splitter`: the base class of objects that split and join text."""

import tensorflow as tf

from keras_attn.text.special_tokens import SpecialTokens


class Splitter(tf.Module):
    """Base class of splitters, which split text into tokens and join them.

    Pass an instance to a `Text`, `Text(vocabulary, split=MySplitter())`. The
    `Text` normalizes, looks up, cuts and pads. There are two kinds of
    splitters:

    - A splitter whose pieces are looked up in the `Text`'s vocabulary. It
      implements `split()`, and sets `separator` or implements `join()`.
    - A splitter with its own ids, such as a subword model. It sets `tokens`
      and implements `ids()` and `strings()`, and the `Text` is made without a
      vocabulary. It may implement `split()` and `join()` too: a `Translator`
      with `replace_unknown` needs `split()` of its source text and `join()` of
      its target text.

    The methods run in graphs that go into a SavedModel, so they use only
    operations of TensorFlow or tensorflow-text. A new `Text` tries its
    splitter on a few lines and refuses one that breaks a rule. Make tables
    and tokenizers in the constructor and keep them as attributes: through
    these an export finds them, and the files that they read.

    To be saved with a `Text` or a `Translator`, a splitter returns the
    arguments of its constructor from `get_config()`. To load it, register its
    class, `@keras.saving.register_keras_serializable()`, or pass it to
    `load()` in `custom_objects`.

    The class is named after `tensorflow_text.Splitter`, which does the same
    work. A tokenizer of Keras and other libraries corresponds to the whole
    `Text`. This class is provisional: it may change in later versions.

    Attributes:
        separator: String to put between pieces, if this is all that joining
            does. `None` if the splitter implements `join()`.
        tokens: For a splitter with its own ids, the list of its tokens
            without the special ones; they have the ids 4, 5 and so on. If
            `special` is set, the list of all tokens. `None` if the splitter
            has no ids.
        special: For the ids of a pretrained vocabulary, its `SpecialTokens`.
            `None` if padding, start, end and unknown have the ids 0 to 3.
        splits_alone: Whether splitting a token of the vocabulary returns it
            unchanged. A `Text` then refuses tokens that are split. Set
            it to `False` if pieces depend on their neighbours, as `##ing`
            does.
        keeps_text: Whether splitting and joining keep all letters and digits.
            A `Text` then warns if they do not. Set it to `False` for a
            splitter that leaves some out or replaces them on purpose.
        normalizes: Whether the splitter normalizes text itself. If so, the
            `Text` does not.
        draws: Whether the splitter samples among several ways to split a
            string. Such a splitter is for training; see `Text.sampled`.
        finds_special: Whether `ids()` and `split()` find the prompt tokens and
            spelled tokens of `special` themselves. Otherwise the `Text` finds
            them before, wherever the text has their letters.
        assets: Names of the constructor's arguments that are paths of files.
            Saving copies these files, and loading passes the paths of the
            copies.

    Example:
        >>> import tensorflow as tf
        >>> class Sentences(keras_attn.Splitter):
        ...     separator = "."
        ...     def split(self, strings):
        ...         strings = tf.strings.regex_replace(strings, r"[.]+", ".")
        ...         strings = tf.strings.regex_replace(
        ...             strings, r"^[.]|[.]$", "")
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
    special: SpecialTokens | None = None
    splits_alone = True
    keeps_text = True
    normalizes = False
    draws = False
    finds_special = False
    assets: tuple[str, ...] = ()

    def __setattr__(self, name, value):
        if _is_plain(value):
            # TensorFlow would wrap it to track its items, which takes
            # seconds for a large vocabulary.
            object.__setattr__(self, name, value)
        else:
            super().__setattr__(name, value)

    def split(self, strings) -> tf.RaggedTensor:
        """Splits strings into pieces.

        Args:
            strings: Strings `(batch,)`, valid UTF-8, normalized by the
                `Text`.

        Returns:
            Strings `(batch, ragged)`. No piece is empty; an empty string has
            no pieces.
        """
        raise NotImplementedError

    def join(self, pieces) -> tf.Tensor:
        """Joins pieces into strings; the inverse of `split()`.

        Args:
            pieces: Strings `(batch, ragged)`. A model may also have generated
                `<unk>`.

        Returns:
            Strings `(batch,)`.
        """
        if self.separator is None:
            raise NotImplementedError
        return tf.strings.reduce_join(pieces, axis=-1, separator=self.separator)

    def ids(self, strings) -> tf.RaggedTensor:
        """Turns strings into ids, for a splitter with its own ids.

        Args:
            strings: As for `split()`.

        Returns:
            Integers `(batch, ragged)`: 4 and more for `tokens`, 3 for unknown
            pieces, without start and end tokens. If `special` is set, indices
            of `tokens`.
        """
        raise NotImplementedError

    def marked_ids(self, strings) -> tf.RaggedTensor:
        """Like `ids()`, but with -1 for each piece that `ids()` leaves out.

        Only a splitter without an unknown token may leave out pieces. By this
        method the `Text` knows of them and refuses them in prefixes, terms
        and other phrases. By default it is `ids()`.
        """
        return self.ids(strings)

    def strings(self, ids) -> tf.Tensor:
        """Turns ids into strings, for a splitter with its own ids.

        Args:
            ids: int32 `(batch, ragged)`, as returned by `ids()`.

        Returns:
            Strings `(batch,)`.
        """
        raise NotImplementedError

    def get_config(self) -> dict:
        """Returns the constructor's arguments by name."""
        return {}

    @classmethod
    def from_config(cls, config: dict) -> "Splitter":
        """Makes a splitter from the result of `get_config()`."""
        return cls(**config)

    def __repr__(self) -> str:
        # Without the arguments, which may be whole vocabularies.
        return f"<{type(self).__name__}>"

    def writes(self, method: str) -> bool:
        """Returns whether the subclass overrides this method."""
        return getattr(type(self), method) is not getattr(Splitter, method)

    @property
    def joins(self) -> bool:
        """Whether the splitter can join pieces."""
        return self.separator is not None or self.writes("join")


def _is_plain(value):
    """Returns whether a value holds only strings and numbers."""
    if isinstance(value, dict):
        return _is_plain([*value]) and _is_plain([*value.values()])
    if isinstance(value, (list, tuple)):
        return {*map(type, value)} <= {str, bytes, int, float}
    return False
