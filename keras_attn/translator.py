"""`Translator`: a trained model, its texts and a search, joined.

Strings in; strings, scores and alignments out. All of it runs in one graph,
the same that an export holds.
"""

import copy
import dataclasses
import json
import pathlib
import threading
import warnings
from collections.abc import Iterator
from collections.abc import Sequence
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf

from keras_attn import search as searches
from keras_attn.incremental import Incremental
from keras_attn.placement import anywhere
from keras_attn.search import BeamSearch
from keras_attn.search import GreedySearch
from keras_attn.search import Hypotheses
from keras_attn.search import Task
from keras_attn.text import END
from keras_attn.text import PAD
from keras_attn.text import SPECIAL_TOKENS
from keras_attn.text import START
from keras_attn.text import Text


@dataclasses.dataclass(frozen=True)
class Translation:
    """One hypothesis for one source."""

    text: str
    score: float
    source_tokens: list[str]  # with the end token
    tokens: list[str]  # with the end token, if it came
    alignment: np.ndarray  # (len(tokens), len(source_tokens)), float32
    finished: bool  # False if cut at the search's maximum length
    alternatives: list["Translation"] = dataclasses.field(
        default_factory=list, repr=False
    )  # the other hypotheses, best first


class Translations(Sequence):
    """What a `Translator` returns: a `Translation` for each line."""

    def __init__(self, rows: list[Translation]):
        self._rows = rows

    def __getitem__(self, index):
        if isinstance(index, slice):
            return Translations(self._rows[index])
        return self._rows[index]

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[Translation]:
        return iter(self._rows)

    def __repr__(self) -> str:
        return f"Translations({self._rows!r})"

    @property
    def text(self) -> list[str]:
        """The best text of each line."""
        return [row.text for row in self._rows]

    @property
    def scores(self) -> np.ndarray:
        """The best score of each line, float32."""
        return np.array([row.score for row in self._rows], "float32")

    @property
    def alternatives(self) -> list[list[Translation]]:
        """The other hypotheses of each line, best first."""
        return [row.alternatives for row in self._rows]

    @property
    def alignments(self) -> list[np.ndarray]:
        """The alignment of each line's best hypothesis."""
        return [row.alignment for row in self._rows]


class Decoded(NamedTuple):
    """Tensors of a batch, `N` hypotheses a source, best first."""

    source_tokens: tf.Tensor  # (batch, source), padded with ""
    source_lengths: tf.Tensor  # (batch,)
    texts: tf.Tensor  # (batch, N)
    tokens: tf.Tensor  # (batch, N, time), padded with ""
    hypotheses: Hypotheses


# One thread traces, the others wait: Keras's layers are not safe to trace
# from two at once, and translators may share a model.
_TRACING = threading.RLock()


class Translator:
    """Turns source texts into target texts with a trained model.

    The model is cut and the cut compared with the whole at once, on a few
    random ids; that takes a second or so. A translator may be called from
    several threads.

    Args:
        model: The trained functional `keras.Model`: inputs the source's and
            the target's ids, output the logits. See `Incremental`.
        source_text: `Text` of the source.
        target_text: `Text` of the target.
        search: `GreedySearch` or `BeamSearch`. Defaults to `BeamSearch()`.
        jit_compile: Whether XLA compiles the search, once for each shape of
            a batch. It pays for small models that see few shapes.

    Raises:
        ValueError: If the model cannot be cut, or does not fit the texts.
        RuntimeError: If Keras does not run on TensorFlow.

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
    ...     model, text, text, keras_attn.GreedySearch(max_length=5))
    >>> result = copy(["abba", "b"])
    >>> len(result.text), result[0].alignment.shape[1]
    (2, 5)
    """

    def __init__(
        self,
        model: keras.Model,
        source_text: Text,
        target_text: Text,
        search: GreedySearch | BeamSearch | None = None,
        jit_compile: bool = False,
    ):
        if keras.backend.backend() != "tensorflow":
            raise RuntimeError(
                "`Translator` decodes and exports with TensorFlow. Received: "
                f"the Keras backend '{keras.backend.backend()}'. Load the "
                "saved model in a process with KERAS_BACKEND=tensorflow; "
                "weights trained on another backend carry over."
            )
        self.model = model
        self.source_text = source_text
        self.target_text = target_text
        self.search = _search(search)
        self.jit_compile = jit_compile
        self._cut = Incremental(model)
        self._check()
        self._forget_graph()

    def _forget_graph(self):
        self._graph = None
        # One function, so that all that call it share one copy of its graph.
        self.search_ids = tf.function(
            self.decode_ids,
            input_signature=[tf.TensorSpec([None, None], tf.int32)],
            jit_compile=self.jit_compile or None,
            autograph=False,
        )

    def __call__(
        self, lines: Sequence[str], batch_size: int = 64
    ) -> Translations:
        """Translates lines.

        Args:
            lines: List of strings.
            batch_size: How many are decoded together, which changes speed
                and memory and not the results. Like lengths go together.
        """
        if isinstance(lines, (str, bytes)):
            raise ValueError(
                "A `Translator` takes a list of strings. Received the string "
                f"{lines!r}. For one line pass a list of one."
            )
        if batch_size < 1:
            raise ValueError(
                "`batch_size` must be at least 1. Received: "
                f"batch_size={batch_size!r}"
            )
        encoded = [_encode(line) for line in lines]
        order = sorted(range(len(encoded)), key=lambda i: len(encoded[i]))
        rows: list = [None] * len(encoded)
        decode = self._compiled()
        for i in range(0, len(order), batch_size):
            batch = order[i : i + batch_size]
            decoded = decode(tf.constant([encoded[j] for j in batch]))
            for j, row in zip(batch, _rows(decoded), strict=True):
                rows[j] = row
        return Translations(rows)

    def decode(self, strings: tf.Tensor) -> Decoded:
        """Decodes a batch of strings, of shape `(batch,)`, in the graph."""
        found = self.search_ids(self.source_text.ids(strings))
        source_tokens = self.source_text.tokens_of(strings)
        real = tf.sequence_mask(found.lengths, self.search.max_length)
        return Decoded(
            source_tokens=source_tokens.to_tensor(""),
            source_lengths=tf.cast(source_tokens.row_lengths(), tf.int32),
            texts=self.target_text.strings(found.tokens),
            tokens=tf.where(real, self.target_text.lookup(found.tokens), ""),
            hypotheses=found,
        )

    def decode_ids(self, ids: tf.Tensor) -> Hypotheses:
        """Decodes source ids `(batch, source)`, padded with 0."""
        encoded = self._cut.encode(ids)

        def start(beams):
            return self._cut.start(encoded, beams, self.search.max_length)

        def step(tokens, state):
            logits, alignments, state = self._cut.step(tokens, state, encoded)
            if alignments is None:  # a model without attention
                shape = [*tf.unstack(tf.shape(tokens)), tf.shape(ids)[1]]
                alignments = tf.zeros(shape)
            return logits, alignments, state

        return self.search(
            Task(
                step=step,
                start=start,
                batch=tf.shape(ids)[0],
                start_token=START,
                end_token=END,
                forbidden=(PAD, START),
            )
        )

    def _compiled(self):
        with _TRACING:
            if self._graph is None:
                self._graph = tf.function(
                    self.decode,
                    input_signature=[tf.TensorSpec([None], tf.string)],
                    autograph=False,
                ).get_concrete_function()
        return self._graph

    def _check(self):
        """Tries the cut, the vocabularies and the padding on random ids."""
        source, *_ = self.model.inputs
        if len(self.model.inputs) != 2 or len(source.shape) != 2:
            raise ValueError(
                "A `Translator` needs a model of two inputs, the source's "
                "ids and the target's, each of shape (batch, length). "
                "Received inputs of shape "
                f"{[tuple(x.shape) for x in self.model.inputs]}."
            )
        vocabulary = self.model.outputs[0].shape[-1]
        if vocabulary != self.target_text.size:
            raise ValueError(
                "The model's logits must be as many as the target text has "
                f"ids. Received: {vocabulary} logits, "
                f"target_text.size={self.target_text.size}."
            )
        random = np.random.default_rng(0)
        lowest = len(SPECIAL_TOKENS) - 1  # unknown is there in any text
        ids = random.integers(lowest, self.source_text.size, (2, 4), "int32")
        target = random.integers(lowest, vocabulary, (2, 3), "int32")
        ids[0, 0], target[0, 0] = self.source_text.size - 1, vocabulary - 1
        self._cut.check(ids, target)
        padded = np.pad(ids, [(0, 0), (0, 2)])
        alone = self.model([ids, target], training=False)
        beside = self.model([padded, target], training=False)
        if np.min(alone) >= 0 and np.allclose(np.sum(alone, -1), 1, atol=1e-2):
            raise ValueError(
                "The model's output looks like probabilities: no value is "
                "below 0 and each row sums to 1. A `Translator` needs logits. "
                "Leave the softmax out of the last layer and train with "
                "`SequenceCrossentropy`."
            )
        if not np.allclose(alone, beside, rtol=1e-2, atol=1e-3):
            warnings.warn(
                "Padding changes what this model computes, so a line may "
                "translate differently beside a longer one. Does a mask "
                "reach the decoder? `Embedding(mask_zero=True)` makes one.",
                stacklevel=3,
            )

    def for_export(self, source_text: Text, target_text: Text) -> "Translator":
        """A copy without XLA, whose texts read files of the vocabularies."""
        other = copy.copy(self)
        other.source_text, other.target_text = source_text, target_text
        other.jit_compile = False
        other._forget_graph()
        return other

    def save(self, directory) -> None:
        """Writes model, texts and search options, for `load()`."""
        if type(self.search) not in (BeamSearch, GreedySearch):
            raise ValueError(
                "`save` keeps `BeamSearch` and `GreedySearch`. Received a "
                f"search of your own, {type(self.search).__name__}. Save "
                "`translator.model` and the two texts, and join them with "
                "your search in code."
            )
        directory = pathlib.Path(directory)
        directory.mkdir(parents=True, exist_ok=True)
        self.model.save(directory / "model.keras")
        self.source_text.save(directory / "source.txt")
        self.target_text.save(directory / "target.txt")
        options = {
            "search": type(self.search).__name__,
            "search_options": dataclasses.asdict(self.search),
            "jit_compile": self.jit_compile,
        }
        path = directory / "translator.json"
        path.write_text(json.dumps(options, indent=2) + "\n")

    @classmethod
    def load(cls, directory) -> "Translator":
        """Reads what `save()` wrote."""
        directory = pathlib.Path(directory)
        path = directory / "translator.json"
        if not path.exists():
            raise FileNotFoundError(
                f"There is no saved translator in {directory}: {path.name} "
                "is missing. `Translator.save(directory)` writes one."
            )
        options = json.loads(path.read_text())
        search = getattr(searches, options["search"])
        return cls(
            keras.saving.load_model(directory / "model.keras"),
            Text.load(directory / "source.txt"),
            Text.load(directory / "target.txt"),
            search(**options["search_options"]),
            jit_compile=options["jit_compile"],
        )

    def export(self, directory, version: int | None = None) -> pathlib.Path:
        """Writes a SavedModel for TF Serving; see `keras_attn.export`.

        Args:
            directory: Where the versions are, `model_base_path` to a server.
            version: Number of the version. Defaults to the next one.

        Returns:
            The path of the version, `directory/version`.
        """
        from keras_attn.export import export

        with _TRACING, anywhere():
            return export(self, directory, version)


def _search(search):
    if search is None:
        return BeamSearch()
    if not isinstance(search, (BeamSearch, GreedySearch)):
        raise ValueError(
            "`search` must be a `BeamSearch` or a `GreedySearch`. Received: "
            f"search={search!r}. Pass for example `BeamSearch(5)`."
        )
    return search


def _encode(line) -> bytes:
    if isinstance(line, bytes):
        return line
    if not isinstance(line, str):
        raise ValueError(
            "A `Translator` takes a list of strings. Received in it: "
            f"{line!r} (of type {type(line).__name__})."
        )
    return line.encode("utf-8", "surrogatepass")


def _rows(decoded: Decoded) -> Iterator[Translation]:
    """Translations of a batch, trimmed of padding."""
    arrays = tf.nest.map_structure(lambda x: x.numpy(), decoded)
    found = arrays.hypotheses
    for i, source_length in enumerate(arrays.source_lengths):
        source_tokens = _strings(arrays.source_tokens[i, :source_length])
        hypotheses = []
        for n, length in enumerate(found.lengths[i]):
            if length:
                hypotheses.append(
                    Translation(
                        text=arrays.texts[i, n].decode("utf-8", "replace"),
                        score=float(found.scores[i, n]),
                        source_tokens=source_tokens,
                        tokens=_strings(arrays.tokens[i, n, :length]),
                        alignment=found.alignments[
                            i, n, :length, :source_length
                        ],
                        finished=bool(found.finished[i, n]),
                    )
                )
        if not hypotheses:
            raise ValueError(
                "The search found no hypothesis for a line. Are the model's "
                "logits finite? Weights that became NaN do this."
            )
        best, *others = hypotheses
        yield dataclasses.replace(best, alternatives=others)


def _strings(array) -> list[str]:
    return [x.decode("utf-8", "replace") for x in array]
