"""`Trial`: checks that a `Splitter` keeps the rules of its base class."""

import inspect
import os

import tensorflow as tf

from keras_attn import arguments
from keras_attn.caller import warn
from keras_attn.text.special_tokens import SPECIAL_TOKENS
from keras_attn.text.special_tokens import SpecialTokens
from keras_attn.text.splitter import Splitter
from keras_attn.text.vocabulary import require_tokens

_LINES = (
    "",
    "a",
    "to be or not to be",
    "Hello, world!",
    " two  spaces ",
    "1 23.5",
    "été",
    "日本語",
)
_TOKENS = 1000  # number of a splitter's own tokens that are tried one by one
# Operations that call Python functions of the process that made them.
_PYTHON = {"PyFunc", "PyFuncStateless", "EagerPyFunc"}


class Trial:
    """Runs a splitter on a few lines and checks the results.

    Args:
        splitter: `Splitter`.
        normalize: Function by which the `Text` normalizes strings.
    """

    def __init__(self, splitter: Splitter, normalize):
        self._splitter = splitter
        self._normalize = normalize
        self._name = type(splitter).__name__
        self._special = splitter.special or SpecialTokens()

    def run(self) -> None:
        """Raises `ValueError` if the splitter breaks a rule of `Splitter`."""
        self._require_methods()
        require_config(self._splitter)
        if self._splitter.tokens is not None:
            self._require_own_tokens()
        own = self._splitter.tokens is not None
        names = ("ids", "strings") if own else ("split", "join")
        forth, back = ((x, self._function(x)) for x in names)
        lines = self._normalize(tf.constant(_LINES))
        rows = self._rows(*forth, lines)
        self._require_the_same_in_any_batch(forth, lines, rows)
        if own:
            self._require_ids(lines, rows)
        self._require_inverse(forth, back, lines, rows)
        # A splitter may leave out letters of other scripts on purpose.
        plain = [i for i, line in enumerate(_LINES) if line.isascii()]
        self._warn_of_losses(
            back, tf.gather(lines, plain), [rows[i] for i in plain]
        )
        if own:
            self._warn_of_lost_tokens(back)
        if own and self._splitter.writes("split"):
            self._require_pieces_of_ids(lines, rows, back)

    def read(self, lines) -> None:
        """Tries a splitter without its own ids on lines of the data.

        Warns if splitting and joining a line changes its letters or digits.

        Args:
            lines: Strings of the data.

        Raises:
            ValueError: If joined pieces are not split into the same pieces.
        """
        forth = "split", self._splitter.split
        back = "join", self._splitter.join
        lines = self._normalize(tf.constant(list(lines), tf.string))
        rows = self._rows(*forth, lines)
        self._require_inverse(forth, back, lines, rows)
        self._warn_of_losses(back, lines, rows)

    def _require_methods(self):
        part, own = self._splitter, self._splitter.tokens is not None
        if hasattr(part, "normalises"):
            arguments.refuse_old_names(
                {"normalises": part.normalises}, normalises="normalizes"
            )
        if not own and (part.writes("ids") or part.writes("strings")):
            raise ValueError(
                "A splitter with `ids()` and `strings()` needs `tokens` too. "
                f"Received: {self._name} without `tokens`. Set `self.tokens` "
                "to the list of its tokens without the special ones; they "
                "have the ids 4, 5 and so on."
            )
        missing = [
            f"`{name}()`"
            for name in (("ids", "strings") if own else ("split",))
            if not part.writes(name)
        ]
        if not own and not part.joins:
            missing.append("`join()`, or sets `separator`")
        if missing:
            raise ValueError(
                f"A splitter {'with `tokens` ' if own else ''}writes "
                f"{' and '.join(missing)}. Received: {self._name}, which does "
                "not. See `keras_attn.Splitter` for the arguments and results "
                "of these methods."
            )

    def _require_own_tokens(self):
        tokens = self._splitter.tokens
        if isinstance(tokens, str) or not hasattr(tokens, "__iter__"):
            raise ValueError(
                f"`{self._name}.tokens` must be a list of strings, the tokens "
                f"of the ids 4, 5 and so on. Received: {tokens!r:.80}"
            )
        require_tokens(list(tokens), self._splitter)
        special = self._splitter.special
        if special is None:
            return
        if not isinstance(special, SpecialTokens):
            raise ValueError(
                f"`{self._name}.special` must be a `SpecialTokens`, or None. "
                f"Received: {special!r:.80}"
            )
        highest = max(*special.without_text, special.unknown)
        if highest >= len(tokens):
            raise ValueError(
                f"With `special`, `{self._name}.tokens` must list all tokens, "
                f"the special ones too. Received: {len(tokens)} tokens and "
                f"{special}, whose highest id is {highest}."
            )

    def _function(self, name):
        """Traces a splitter's method as a graph for any number of rows."""
        spec = {
            "join": tf.RaggedTensorSpec([None, None], tf.string),
            "strings": tf.RaggedTensorSpec([None, None], tf.int32),
        }.get(name, tf.TensorSpec([None], tf.string))
        function = tf.function(
            getattr(self._splitter, name),
            input_signature=[spec],
            autograph=False,
        )
        try:
            traced = function.get_concrete_function()
        except Exception as error:
            raise ValueError(
                f"`{self._name}.{name}` must run in a graph, by operations of "
                "TensorFlow or tensorflow-text. Received, while tracing it: "
                f"{type(error).__name__}: {error!s:.500}"
            ) from error
        self._require_attributes(name, traced.captured_inputs)
        graph = traced.graph
        found = {node.type for node in graph.get_operations()}
        for other in graph.as_graph_def().library.function:
            found |= {node.op for node in other.node_def}
        if found & _PYTHON:
            raise ValueError(
                f"`{self._name}.{name}` must run without Python, so without "
                "`tf.py_function` and `tf.numpy_function`: servers have no "
                f"Python. Received: a graph with {sorted(found & _PYTHON)}. "
                "Write it with operations of TensorFlow or tensorflow-text."
            )
        return function

    def _require_attributes(self, name, captured):
        """Raises if a graph uses tables that an export would not find."""
        tracked = tf.train.TrackableView(self._splitter).descendants()
        known = {
            id(getattr(x, handle, None))
            for x in tracked
            for handle in ("resource_handle", "handle")
        }
        for tensor in captured:
            if tensor.dtype == tf.resource and id(tensor) not in known:
                raise ValueError(
                    f"The tables, variables and tokenizers of "
                    f"`{self._name}.{name}` must be attributes of the "
                    "splitter, made in its constructor, so an export can find "
                    f"them. Received: {tensor!s:.100}, which is not an "
                    "attribute. Assign it in `__init__`, `self.table = ...`."
                )

    def _run(self, name, function, given):
        try:
            return function(given)
        except tf.errors.OpError as error:
            raise ValueError(
                f"`{self._name}.{name}` must accept any strings or ids, and an "
                f"empty batch too. Received, in a trial with {given!r:.200}: "
                f"{type(error).__name__}: {_said(error):.300}"
            ) from error

    def _rows(self, name, split, lines):
        """Returns the pieces or ids of lines, as lists."""
        found = self._run(name, split, lines)
        integers = name == "ids"
        ragged = isinstance(found, tf.RaggedTensor)
        fits = ragged and found.ragged_rank == 1 and found.shape.rank == 2
        fits = fits and (
            found.dtype.is_integer if integers else found.dtype == tf.string
        )
        if not fits or found.nrows() != len(lines):
            shown = (
                f"{type(found).__name__} of dtype {found.dtype.name}, shape "
                f"{found.shape}"
                if hasattr(found, "shape")
                else repr(found)
            )
            raise ValueError(
                f"`{self._name}.{name}` must return a ragged tensor of "
                f"{'integers' if integers else 'strings'} `(batch, ragged)`, "
                f"a row for each string. Received, for {len(lines)} strings: "
                f"a {shown:.200}. `tf.RaggedTensor.from_tensor(dense, "
                "padding=...)` converts a padded tensor."
            )
        rows = found.to_list()
        for line, row in zip(lines.numpy(), rows, strict=True):
            if not integers and not all(map(_is_text, row)):
                raise ValueError(
                    f"`{self._name}.{name}` must return pieces of valid "
                    "UTF-8, which a vocabulary can hold. Received, for "
                    f"{_shown(line)}: {row!r:.200}. For pieces of single "
                    "bytes use names such as `<0xFF>`, and write `tokens`, "
                    "`ids()` and `strings()`."
                )
            if b"" in row:
                raise ValueError(
                    f"`{self._name}.{name}` may return no empty piece. "
                    f"Received, for {_shown(line)}: {_shown(row)}. Remove "
                    'them: `tf.ragged.boolean_mask(pieces, pieces != "")`.'
                )
        return rows

    def _require_the_same_in_any_batch(self, forth, lines, rows):
        self._rows(*forth, lines[:0])
        for line, row in zip(lines, rows, strict=True):
            (alone,) = self._rows(*forth, line[None])
            if alone != row:
                raise ValueError(
                    f"`{self._name}.{forth[0]}` must split a string the same "
                    "way in any batch. Received, for "
                    f"{_shown(line.numpy())}: {_shown(alone)} alone, "
                    f"{_shown(row)} in a batch. No operation may mix rows."
                )

    def _require_ids(self, lines, rows):
        size, special = self._size, self._special
        silent = {*special.non_text_ids}
        for line, row in zip(lines.numpy(), rows, strict=True):
            outside = [x for x in row if not 0 <= x < size or x in silent]
            if not outside:
                continue
            if self._splitter.special is None:
                needed = (
                    f"from 4 to {size - 1}, since `tokens` has {size - 4}, or "
                    "3 for unknown"
                )
                advice = (
                    "The `Text` adds 0, 1 and 2: padding, start and end. "
                    "Shift the ids of a model that counts from 0, and remove "
                    "its own special tokens."
                )
            else:
                needed = (
                    f"from 0 to {size - 1}, since `tokens` has {size}, and "
                    f"none of {special.non_text_ids}"
                )
                advice = (
                    "The `Text` adds padding, start and end. Remove those "
                    "that the model adds itself."
                )
            raise ValueError(
                f"`{self._name}.ids` must return ids {needed}. Received, for "
                f"{_shown(line)}: {outside[:5]}. {advice}"
            )

    @property
    def _size(self):
        """Number of ids."""
        first = 0 if self._splitter.special else len(SPECIAL_TOKENS)
        return first + len(self._splitter.tokens)

    def _joined(self, name, join, rows):
        """Returns the joined strings of rows, normalized by the `Text`."""
        dtype = tf.int32 if name == "strings" else tf.string
        given = tf.ragged.constant(rows, dtype, ragged_rank=1)
        found = self._run(name, join, given)
        fits = tf.is_tensor(found) and found.dtype == tf.string
        if not fits or isinstance(found, tf.RaggedTensor):
            shown = found
        elif found.shape != (len(rows),):
            shown = f"a tensor of shape {found.shape}"
        else:
            return self._normalize(found)
        raise ValueError(
            f"`{self._name}.{name}` must return strings `(batch,)`, one for "
            f"each row. Received, for {len(rows)} rows: {shown!s:.200}"
        )

    def _require_inverse(self, forth, back, lines, rows):
        """Raises unless joined pieces are split into the same pieces."""
        # Rows with unknown ids cannot be restored, so they are skipped.
        kept = [
            i for i, row in enumerate(rows) if self._special.unknown not in row
        ]
        rows = [rows[i] for i in kept]
        for some in ([], rows):  # an empty batch must work too
            strings = self._joined(*back, some)
        again = self._rows(*forth, strings)
        for i, row, string, found in zip(
            kept, rows, strings.numpy(), again, strict=True
        ):
            if found != row:
                raise ValueError(
                    f"`{self._name}.{back[0]}` must be the inverse of "
                    f"`{forth[0]}`: joined pieces must be split into the same "
                    "pieces again. Received, for "
                    f"{_shown(lines[i].numpy())}: {_shown(row)}, joined to "
                    f"{_shown(string)}, which is split into {_shown(found)}."
                )

    def _warn_of_losses(self, back, lines, rows):
        """Warns if splitting and joining a line changes letters or digits.

        Rows with unknown ids cannot be restored, so they are skipped.
        """
        if not self._splitter.keeps_text:
            return
        kept = [
            i for i, row in enumerate(rows) if self._special.unknown not in row
        ]
        joined = self._joined(*back, [rows[i] for i in kept])
        for i, found in zip(kept, joined.numpy(), strict=True):
            line = lines[i].numpy()
            if _signs(found) != _signs(line):
                self._warn(
                    f"{_shown(line)} comes back as {_shown(found)}, with "
                    "different letters or digits"
                )
                return

    def _warn_of_lost_tokens(self, back):
        """Warns if `strings()` loses all letters and digits of a token."""
        if not self._splitter.keeps_text:
            return
        first = 0 if self._splitter.special else len(SPECIAL_TOKENS)
        ids = self._special.of_text(self._size)
        ids = [i for i in ids if i != self._special.unknown][:_TOKENS]
        tokens = [self._splitter.tokens[i - first] for i in ids]
        written = self._joined(*back, [[i] for i in ids])
        for token, found in zip(tokens, written.numpy(), strict=True):
            named = token.startswith("<") and token.endswith(">")
            # A token may be one byte of a character.
            named |= "\ufffd" in found.decode()
            if _signs(token.encode()) and not named and not _signs(found):
                self._warn(
                    f"`strings()` returns {_shown(found)} for the token "
                    f"{token!r}"
                )
                return

    def _warn(self, what):
        warn(
            f"`{self._name}` loses text: {what}. If this is intended, set "
            f"`keeps_text = False` in `{self._name}`.",
        )

    def _require_pieces_of_ids(self, lines, rows, back):
        """Raises unless `split()` and `join()` agree with the ids."""
        pieces = self._rows("split", self._function("split"), lines)
        for line, row, found in zip(lines.numpy(), rows, pieces, strict=True):
            if len(row) != len(found):
                raise ValueError(
                    f"`{self._name}.split` must return one piece for each id "
                    f"that `ids()` returns. Received, for {_shown(line)}: "
                    f"{_shown(found)} and {row}."
                )
        if not self._splitter.joins:
            return
        known = [
            i for i, row in enumerate(rows) if self._special.unknown not in row
        ]
        joined = self._joined(
            "join", self._function("join"), [pieces[i] for i in known]
        )
        told = self._joined(*back, [rows[i] for i in known])
        for i, one, other in zip(
            known, joined.numpy(), told.numpy(), strict=True
        ):
            if one != other:
                raise ValueError(
                    f"`{self._name}.join` must return the same string for "
                    "pieces as `strings()` for their ids. Received, for "
                    f"{_shown(pieces[i])}: {_shown(one)} and {_shown(other)}."
                )


def require_config(splitter: Splitter) -> None:
    """Raises `ValueError` if a splitter's config does not fit its class.

    Only the names of arguments and the paths of assets are checked here.
    Saving also makes a splitter from the config and compares it.
    """
    name, config = type(splitter).__name__, splitter.get_config()
    made_by = inspect.getattr_static(type(splitter), "from_config")
    if made_by is vars(Splitter)["from_config"]:
        try:
            inspect.signature(type(splitter)).bind(**config)
        except TypeError as error:
            raise ValueError(
                f"`{name}.get_config` must return the arguments of the "
                "constructor, since loading passes them to it. Received: "
                f"{list(config)}: {error}. Override `get_config()`, or "
                "`from_config()` too."
            ) from error
    for argument in splitter.assets:
        if argument not in config:
            raise ValueError(
                f"`{name}.assets` must name arguments that `get_config()` "
                f"returns. Received: {argument!r}, which is not among "
                f"{list(config)}."
            )
        path = config[argument]
        is_file = isinstance(path, str) and os.path.isfile(path)
        if path is not None and not is_file:
            raise ValueError(
                f"`{argument}` is one of the `assets` of `{name}`, so "
                "`get_config()` must return the path of a file for it, as a "
                f"string. Received: {argument}={path!r}"
            )


def _said(error: tf.errors.OpError) -> str:
    """Returns an error's own message, without the stack before it."""
    *_, said = error.message.partition("\n\t [[")[0].splitlines()
    return said


def _signs(line: bytes) -> str:
    """Returns the letters and digits of a line, case-folded."""
    return "".join(filter(str.isalnum, line.decode().casefold()))


def _is_text(piece: bytes) -> bool:
    try:
        piece.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _shown(value) -> str:
    """Returns bytes, or a list of bytes, as text for a message."""
    if isinstance(value, list):
        return f"[{', '.join(map(_shown, value[:12]))}]"
    if isinstance(value, bytes):
        value = value.decode("utf-8", "replace")
    return f"{value!r:.80}"
