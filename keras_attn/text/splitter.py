"""`Splitter`: the base class of ways to split text."""

import tensorflow as tf

from keras_attn.text.special_tokens import SpecialTokens


class Splitter(tf.Module):
    """Base class of ways to split text into tokens, and to join them again.

    Pass an instance to a `Text`, `Text(vocabulary, split=MySplitter())`. The
    `Text` normalizes, looks up, cuts and pads. There are two kinds of
    splitters:

    - Its pieces are tokens of the `Text`'s vocabulary. It writes `split()`,
      and sets `separator` or writes `join()`.
    - It has ids of its own, as subword models do. It sets `tokens` and writes
      `ids()` and `strings()`, and the `Text` is made without a vocabulary. It
      may write `split()` and `join()` too: a `Translator` with
      `replace_unknown` needs `split()` of its source text and `join()` of its
      target text.

    The methods run in graphs that go into a SavedModel, so they use only
    operations of TensorFlow or tensorflow-text. A new `Text` tries its
    splitter on a few lines and refuses one that breaks a rule. Make tables
    and tokenizers in the constructor and keep them as attributes: an export
    finds them, and the files that they read, through these.

    To be saved with a `Text` or a `Translator`, a splitter returns the
    arguments of its constructor from `get_config()`. To load it, register its
    class, `@keras.saving.register_keras_serializable()`, or pass it to
    `load()` in `custom_objects`.

    The name is that of `tensorflow_text.Splitter`, which does the same work.
    What Keras and others call a tokenizer is the whole `Text`. This class is
    provisional: it may change until more splitters have used it.

    Attributes:
        separator: String between two pieces, if joining means no more than
            that. `None` if the splitter writes `join()`.
        tokens: For a splitter with ids of its own, the list of its tokens
            without the special ones; they have the ids 4, 5 and so on.
            Otherwise `None`. With `special`, the list of all tokens.
        special: For the ids of a pretrained vocabulary, its `SpecialTokens`.
            `None` if padding, start, end and unknown have the ids 0 to 3.
        splits_alone: Whether splitting a token of the vocabulary returns it
            unchanged. A `Text` then refuses tokens that are split. Set
            it to `False` if pieces depend on their neighbours, as `##ing`
            does.
        keeps_text: Whether splitting and joining keep all letters and digits.
            A `Text` then warns if they do not. Set it to `False` for a
            splitter that leaves some out or replaces them on purpose.
        normalizes: Whether it normalizes text itself. The `Text` then does
            not.
        draws: Whether it draws among several ways to split a string. Such a
            splitter is for training; see `Text.sampled`.
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
    assets: tuple[str, ...] = ()

    def __setattr__(self, name, value):
        if _is_plain(value):
            # TensorFlow would wrap it, to track what it holds. For a large
            # vocabulary this takes seconds.
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
        """Joins pieces into strings that `split()` splits into these pieces.

        Args:
            pieces: Strings `(batch, ragged)`, `<unk>` among them if a model
                wrote it.

        Returns:
            Strings `(batch,)`.
        """
        if self.separator is None:
            raise NotImplementedError
        return tf.strings.reduce_join(pieces, axis=-1, separator=self.separator)

    def ids(self, strings) -> tf.RaggedTensor:
        """Turns strings into ids, for a splitter with ids of its own.

        Args:
            strings: As for `split()`.

        Returns:
            Integers `(batch, ragged)`: 4 and more for `tokens`, 3 for unknown
            pieces, no start and no end token. With `special`, the ids of
            `tokens` as they are.
        """
        raise NotImplementedError

    def strings(self, ids) -> tf.Tensor:
        """Turns ids into strings, for a splitter with ids of its own.

        Args:
            ids: int32 `(batch, ragged)`, such as `ids()` returns.

        Returns:
            Strings `(batch,)`.
        """
        raise NotImplementedError

    def get_config(self) -> dict:
        """Returns the constructor's arguments by name."""
        return {}

    @classmethod
    def from_config(cls, config: dict) -> "Splitter":
        """Returns a splitter made from the result of `get_config()`."""
        return cls(**config)

    def __repr__(self) -> str:
        # Not the arguments: among them are whole vocabularies.
        return f"<{type(self).__name__}>"

    def writes(self, method: str) -> bool:
        """Returns whether the subclass overrides this method."""
        return getattr(type(self), method) is not getattr(Splitter, method)

    @property
    def joins(self) -> bool:
        """Whether the splitter can join pieces."""
        return self.separator is not None or self.writes("join")


def _is_plain(value):
    """Returns whether a value holds strings and numbers, nothing to track."""
    if isinstance(value, dict):
        return _is_plain([*value]) and _is_plain([*value.values()])
    if isinstance(value, (list, tuple)):
        return {*map(type, value)} <= {str, bytes, int, float}
    return False
