"""The `Text`s of a model of KerasHub, with the ids of its tokenizer."""

import copy
import dataclasses
import functools
from typing import Any

from keras_attn.models.keras_hub import special as around_texts
from keras_attn.models.keras_hub.models import SOURCE
from keras_attn.models.keras_hub.tokenizer_adapters import TokenizerAdapter
from keras_attn.text.integer_ids import IntegerIds
from keras_attn.text.special_tokens import SpecialTokens
from keras_attn.text.splitter import Splitter
from keras_attn.text.text import Text

_LONGEST = 1000  # of a `Text`, if nothing else limits it


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
            special = around_texts.prompted(preprocessor, prompt, named)
            return cls(IntegerIds(size, special), special, {})
        tokenizer, maker = preprocessor, getattr(task, "preprocessor_cls", None)
        lengths: dict = {}
        if hasattr(preprocessor, "generate_preprocess"):
            tokenizer = preprocessor.tokenizer
        elif maker is not None and SOURCE in task.input:
            preprocessor = maker(tokenizer)
        adapter = TokenizerAdapter.of(tokenizer)
        around = around_texts.by_tokenizer(tokenizer)
        if preprocessor is not tokenizer:
            found, lengths = around_texts.by_preprocessor(
                preprocessor, tokenizer
            )
            around |= found
        special = around_texts.special_tokens(tokenizer, adapter, around)
        special = around_texts.prompted(special, prompt, adapter.ids)
        return cls(
            adapter.splitter(special), special, adapter.options, **lengths
        )

    @property
    def size(self) -> int:
        """Number of ids."""
        return len(self.splitter.tokens or ())

    def for_lengths(self, source, target) -> "Texts":
        """Returns texts that are cut to what a model reads.

        Args:
            source: Most ids of a source, or `None` for any number.
            target: Most ids that the decoder reads, or `None`.

        Raises:
            ValueError: If the decoder cannot read all start tokens.
        """
        found = dataclasses.replace(
            self,
            source_length=min(source or _LONGEST, self.source_length),
            target_length=min(target or _LONGEST, self.target_length),
        )
        count = len(self.special.start)
        if count > found.target_length:
            raise ValueError(
                "A decoder reads the start tokens and those of `prompt` before "
                f"it writes. Received: {count} of them, and a decoder for "
                f"{found.target_length}. Pass a shorter `prompt`."
            )
        return found

    def steps(self, wanted: int) -> int:
        """Returns the number of steps of a search that a decoder can make."""
        return min(wanted, self.target_length - len(self.special.start) + 1)

    @property
    def source(self) -> Text:
        special = self.special
        around = len(special.source_start) + len(special.ends_source)
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
