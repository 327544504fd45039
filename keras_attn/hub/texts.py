"""The `Text`s of a model of KerasHub, with the ids of its tokenizer."""

import copy
import dataclasses
import functools
from collections.abc import Iterable
from typing import Any

import keras
import numpy as np

from keras_attn.hub.models import SOURCE
from keras_attn.hub.models import TARGET
from keras_attn.special_tokens import SpecialTokens
from keras_attn.text import BytePair
from keras_attn.text import Ids
from keras_attn.text import SentencePiece
from keras_attn.text import Splitter
from keras_attn.text import Text
from keras_attn.text import WordPiece

_LONGEST = 1000  # of a `Text`, if nothing else limits it
_PROBE = "a"
_NO_TOKEN = "\ue000"  # no vocabulary has it


@dataclasses.dataclass(frozen=True)
class Texts:
    """How a model's sources and targets are split, and how long they may be."""

    splitter: Splitter
    special: SpecialTokens
    options: dict  # of a `Text`
    source_length: int = _LONGEST  # most ids of a source, all counted
    target_length: int = _LONGEST  # most ids that a decoder reads

    @classmethod
    def of(cls, preprocessor, task, prompt) -> "Texts":
        """Reads a preprocessor, a tokenizer, or `SpecialTokens`.

        Args:
            preprocessor: One of these.
            task: The model, for the number of its ids and its own class of
                preprocessor.
            prompt: Tokens with which each target begins, after its start.
        """
        if isinstance(preprocessor, SpecialTokens):
            size = task.output.shape[-1]
            named = {str(i): i for i in range(size)}
            special = _prompted(preprocessor, prompt, named)
            return cls(Ids(size, special), special, {})
        tokenizer, maker = preprocessor, getattr(task, "preprocessor_cls", None)
        lengths: dict = {}
        if hasattr(preprocessor, "generate_preprocess"):
            tokenizer = preprocessor.tokenizer
        elif maker is not None and SOURCE in task.input:
            preprocessor = maker(tokenizer)
        kind = _Kind.of(tokenizer)
        around = _around_by_tokenizer(tokenizer)
        if preprocessor is not tokenizer:
            found, lengths = _around_by_preprocessor(preprocessor, tokenizer)
            around |= found
        special = _special(tokenizer, kind, around)
        special = _prompted(special, prompt, kind.ids)
        return cls(kind.splitter(special), special, kind.options, **lengths)

    @property
    def size(self) -> int:
        """Number of ids."""
        return len(self.splitter.tokens or ())

    def for_lengths(self, source, target) -> "Texts":
        """Returns texts that are cut to what a model reads.

        Args:
            source: Most ids of a source, or `None` for any number.
            target: Most ids that the decoder reads, or `None`.
        """
        return dataclasses.replace(
            self,
            source_length=min(source or _LONGEST, self.source_length),
            target_length=min(target or _LONGEST, self.target_length),
        )

    def steps(self, wanted: int) -> int:
        """Returns the number of steps of a search that a decoder can make."""
        return min(wanted, self.target_length - len(self.special.start) + 1)

    @property
    def source(self) -> Text:
        special = self.special
        around = len(special.source_start) + len(special.source_end)
        return self._text(self.source_length - around)

    @property
    def target(self) -> Text:
        # The end token is not read.
        return self._text(self.target_length - len(self.special.start))

    def sources(self, model) -> Any:
        """Returns the `source_text` of a `Translator`."""
        names = [x.name for x in model.inputs[:-1]]
        if "source" not in names:
            return None
        return self.source if len(names) == 1 else {"source": self.source}

    def _text(self, max_length):
        text = copy.copy(self._any_length)
        text.max_length = max(1, max_length)
        return text

    @functools.cached_property
    def _any_length(self):
        # One for both sides, since a new text tries its splitter.
        return Text(split=self.splitter, normalization=None, **self.options)


@dataclasses.dataclass(frozen=True)
class _Kind:
    """A kind of tokenizer: its splitter, and the ids of its tokens."""

    make: Any  # function of `SpecialTokens`
    ids: dict[str, int]
    unknown: int
    options: dict = dataclasses.field(default_factory=dict)

    def splitter(self, special) -> Splitter:
        return self.make(special)

    @classmethod
    def of(cls, tokenizer) -> "_Kind":
        import keras_hub

        hub = keras_hub.tokenizers
        if isinstance(tokenizer, hub.BytePairTokenizer):
            return cls._of_bytes(tokenizer)
        if isinstance(tokenizer, hub.SentencePieceTokenizer):
            proto = tokenizer.proto
            names = tokenizer.get_vocabulary()
            return cls(
                lambda special: SentencePiece(proto, special=special),
                {name: i for i, name in enumerate(names)},
                int(tokenizer.token_to_id(_NO_TOKEN)),
            )
        if isinstance(tokenizer, hub.WordPieceTokenizer):
            names = list(tokenizer.get_vocabulary())
            return cls(
                lambda special: WordPiece(names, special),
                {name: i for i, name in enumerate(names)},
                names.index(tokenizer.oov_token),
                {"lowercase": tokenizer.lowercase},
            )
        raise ValueError(
            "`from_keras_hub` reads tokenizers of bytes, SentencePiece or "
            f"word pieces. Received: {tokenizer!r:.100} (of type "
            f"{type(tokenizer).__name__}). Pass a preprocessor, a "
            "`BytePairTokenizer`, `SentencePieceTokenizer` or "
            "`WordPieceTokenizer`; or pass `SpecialTokens`, to read and "
            "write ids."
        )

    @classmethod
    def _of_bytes(cls, tokenizer):
        if tokenizer.add_prefix_space:
            raise ValueError(
                "A text begins as it is written. Received: "
                f"{type(tokenizer).__name__} with `add_prefix_space=True`. "
                "Make it without, and let sources begin with a space."
            )
        ids = dict(tokenizer.vocabulary)
        return cls(
            lambda special: BytePair(ids, tokenizer.merges, special),
            ids,
            ids.get("<unk>", -1),
        )


def _special(tokenizer, kind, around) -> SpecialTokens:
    """Returns the special tokens.

    Args:
        tokenizer: KerasHub's tokenizer.
        kind: Its `_Kind`.
        around: Dictionary of `start`, `end` and `pad`, and of `source_start`
            and `source_end` of a model that reads text.
    """
    end, unknown = around["end"], kind.unknown
    framing = {*around["start"], *around.get("source_start", ())}
    framing |= {*around.get("source_end", ())}
    # Special tokens that are nowhere in a text or around it.
    named = {*getattr(tokenizer, "special_token_ids", ())}
    named |= {*(getattr(tokenizer, "language_tokens", None) or {}).values()}
    named &= {*kind.ids.values()}
    named -= {*framing, around["pad"], end, unknown}
    # Some tokenizers pad with the end token or the unknown one, but padding
    # needs an id of its own. The start token of a target is as good, since
    # nothing reads it as a text.
    not_padding = {end, unknown, *around.get("source_start", ())}
    not_padding |= {*around.get("source_end", ())}
    ids = (around["pad"], *around["start"], *sorted(named))
    pad = next((x for x in ids if x not in not_padding), None)
    if pad is None:
        raise ValueError(
            "`from_keras_hub` needs an id for padding that neither ends a "
            f"text nor is unknown. Received: {type(tokenizer).__name__} with "
            f"{around}, whose unknown token is {unknown}. Pass "
            "`SpecialTokens` to read and write ids."
        )
    if unknown in {pad, end, *framing}:
        unknown = -1
    prompt = tuple(sorted(named - {pad}))
    return SpecialTokens(
        **around | {"pad": pad}, unknown=unknown, prompt=prompt
    )


def _around_by_tokenizer(tokenizer) -> dict[str, Any]:
    """Returns the ids of start, end and padding that a tokenizer names."""
    found: dict[str, Any] = {}
    for name, known in {
        "start": ("start_token_id", "bos_token_id"),
        "end": ("end_token_id", "eos_token_id"),
        "pad": ("pad_token_id",),
    }.items():
        ids = [getattr(tokenizer, x, None) for x in known]
        found[name] = next((x for x in ids if x is not None), None)
        if found[name] is None:
            raise ValueError(
                f"`from_keras_hub` needs the id of the {name} token. "
                f"Received: {type(tokenizer).__name__}, which has none of "
                f"{list(known)}. Pass a preprocessor of KerasHub, or "
                "`SpecialTokens` to read and write ids."
            )
    return found | {"start": (found["start"],)}


def _around_by_preprocessor(preprocessor, tokenizer) -> tuple[dict, dict]:
    """Returns what a preprocessor puts around texts, and its lengths.

    A short text is preprocessed, as each preprocessor has code of its own.
    """
    probe = [_PROBE]
    reads_sound = getattr(preprocessor, "audio_converter", None) is not None
    given: dict = {"encoder_text": probe, "decoder_text": probe}
    if reads_sound:
        sound = np.zeros((1, 16_000, 1), "float32")
        given = {"audio": sound, "text": probe}
    found = preprocessor.generate_preprocess(given)
    tokens = _row(tokenizer(probe))
    start, _ = _around(tokens, found, TARGET, "decoder_padding_mask")
    around = {"start": start}
    lengths = {"target_length": preprocessor.decoder_sequence_length}
    if not reads_sound:
        before, after = _around(tokens, found, SOURCE, "encoder_padding_mask")
        around |= {"source_start": before, "source_end": after}
        lengths["source_length"] = preprocessor.encoder_sequence_length
    return around, lengths


def _around(tokens, found, name, mask) -> tuple[tuple, tuple]:
    """Returns the ids before and after the tokens of a text."""
    pairs = zip(_row(found[name]), _row(found[mask]), strict=True)
    ids = [x for x, is_real in pairs if is_real]
    size = len(tokens)
    for i in range(len(ids) - size + 1):
        if ids[i : i + size] == tokens:
            return tuple(ids[:i]), tuple(ids[i + size :])
    raise ValueError(
        "A preprocessor puts special tokens around the tokens of a text. "
        f"Received: one that turns the tokens {tokens} into {ids}. Pass the "
        "tokenizer, or `SpecialTokens` to read and write ids."
    )


def _row(batch) -> list[int]:
    """Returns the only row of a batch, which may be ragged."""
    if hasattr(batch, "to_list"):
        return [int(x) for x in batch.to_list()[0]]
    (row,) = keras.ops.convert_to_numpy(batch)
    return [int(x) for x in row]


def _prompted(special, prompt, ids) -> SpecialTokens:
    """Returns special tokens with a prompt after the start."""
    if isinstance(prompt, str) or not isinstance(prompt, Iterable):
        raise ValueError(
            "`prompt` must be a list of tokens. Received: "
            f"prompt={prompt!r}. For one token pass a list of one."
        )
    prompt = list(prompt)
    missing = [x for x in prompt if x not in ids]
    if missing:
        raise ValueError(
            "`prompt` must be tokens of the vocabulary. Received: "
            f"{missing}, which it lacks. Names of special tokens are written "
            "as in the tokenizer, such as '<|en|>'."
        )
    start = (*special.start, *(ids[x] for x in prompt))
    rest = tuple(x for x in special.prompt if x not in start)
    return dataclasses.replace(special, start=start, prompt=rest)
