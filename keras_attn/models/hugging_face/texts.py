"""`Texts`: the ids around the texts of a model, and how texts are split."""

import dataclasses
from typing import Any

from keras_attn.models.hugging_face.directory import Directory
from keras_attn.models.hugging_face.tokenizer import files
from keras_attn.models.hugging_face.tokenizer import tokens
from keras_attn.models.hugging_face.tokenizer.tokens import Tokens
from keras_attn.text.integer_ids import IntegerIds
from keras_attn.text.special_tokens import SpecialTokens
from keras_attn.text.splitter import Splitter
from keras_attn.text.text import Text

# Ids of unknown tokens, by family. Whisper has none: its last token is a time.
_UNKNOWN_IDS = {"marian": 1, "mt5": 2, "pegasus": 105, "t5": 2, "whisper": -1}
_UNKNOWN_ID = 3  # of other families
_LONGEST = 1000  # of a `Text`, if nothing else limits it


@dataclasses.dataclass(frozen=True)
class Frame:
    """The ids with which the texts of a model begin and end.

    Attributes:
        pad, end: Ids of padding and of the end of a target.
        start: Ids with which the decoder begins.
        source_start, source_end: Ids around a source.
    """

    pad: int
    end: int
    start: tuple[int, ...]
    source_start: tuple[int, ...]
    source_end: tuple[int, ...]

    def special(
        self, unknown: int = -1, prompts=(), spelled=()
    ) -> SpecialTokens:
        """Returns the special tokens of a text.

        Args:
            unknown: Id of unknown tokens.
            prompts: Ids of languages that a text names.
            spelled: Ids of tokens that a text may spell.
        """
        around = {self.pad, self.end, *self.start}
        around |= {*self.source_start, *self.source_end}
        return SpecialTokens(
            pad=self.pad,
            start=self.start,
            end=self.end,
            unknown=unknown,
            source_start=self.source_start,
            source_end=self.source_end,
            prompt_tokens=tuple(x for x in prompts if x not in around),
            spelled_tokens=tuple(x for x in spelled if x not in prompts),
        )


@dataclasses.dataclass(frozen=True)
class Texts:
    """The splitters of sources and targets."""

    source_splitter: Splitter
    target_splitter: Splitter

    @classmethod
    def as_numbers(cls, frame: Frame, family: str, sizes) -> "Texts":
        """Returns texts that are ids, written as numbers.

        Args:
            frame: The `Frame`.
            family: Hugging Face's `model_type`.
            sizes: Numbers of ids of source and target.
        """
        used = frame.special().non_text_ids
        unknown = _UNKNOWN_IDS.get(family, _UNKNOWN_ID)
        if unknown < 0:
            unknown += min(sizes)
        if unknown in used or unknown >= min(sizes):
            unknown = next(i for i in range(min(sizes)) if i not in used)
        special = frame.special(unknown)
        return cls(*(IntegerIds(n, special) for n in sizes))

    @classmethod
    def of(
        cls, sides: tuple[Tokens, Tokens], frame: Frame, told, spelled: bool
    ) -> "Texts":
        """Returns texts split by a tokenizer's files.

        Args:
            sides: The `Tokens` of source and target.
            frame: The `Frame`.
            told: Two booleans: whether the languages of the source and of the
                target are known. If one is not, its texts name it.
            spelled: Whether a source may spell special tokens.
        """
        found: list[Splitter] = []
        made: dict[Any, Splitter] = {}  # a large one takes seconds
        for side, known, may in zip(sides, told, (spelled, False), strict=True):
            unknown = side.ids.get(tokens.UNKNOWN, -1)
            prompts = () if known else side.codes
            special = frame.special(
                unknown,
                [side.ids[x] for x in prompts],
                [side.ids[x] for x in side.special if may]
                + [side.ids[x] for x in side.times],
            )
            key = id(side), special
            if key not in made:
                made[key] = side.splitter(special, side.names)
            found.append(made[key])
        return cls(*found)

    @property
    def special(self) -> SpecialTokens:
        """The special tokens of the target."""
        found: Any = self.target_splitter.special
        return found

    def source_text(self, longest: int | None) -> Text:
        """Returns the text of sources of at most `longest` ids in total."""
        special: Any = self.source_splitter.special
        around = len(special.source_start) + len(special.ends_source)
        return _text(self.source_splitter, longest, around)

    def target_text(self, longest: int | None) -> Text:
        """Returns the text of targets of which `longest` ids are read."""
        # The end token is not read.
        return _text(self.target_splitter, longest, len(self.special.start))


def _text(splitter, longest, around):
    most = _LONGEST if longest is None else longest
    return Text(
        split=splitter, normalization=None, max_length=max(1, most - around)
    )


class Framing:
    """Finds the tokens around the texts of each family.

    Args:
        directory: The `Directory`.
        family: Hugging Face's `model_type`.
        sides: The `Tokens` of source and target, or `None` if texts are
            ids.
    """

    def __init__(self, directory: Directory, family: str, sides):
        self._settings = files.settings_of(directory)
        self._family, self._sides = family, sides

    def frame(self, configuration, source_end, forced, source, target) -> Frame:
        """Returns the ids around texts.

        Args:
            configuration: The configuration of the model.
            source_end: Id with which a source ends.
            forced: Id that follows the start in every output, or `None`.
            source, target: Names of the languages, or `None`.

        Raises:
            ValueError: If a language is unknown, has no effect, or is missing.
        """
        if source is None:
            source = self._usual_source()
        given = {"source": source, "target": target}
        codes = {
            name: None if x is None else self._code(name, x)
            for name, x in given.items()
        }
        start, end = configuration.start, configuration.end
        first, last = self._around(codes["source"], codes["target"], source_end)
        begins = () if start is None else (start,)
        if self._family == "bart":
            first = (configuration.begin,)
            forced = configuration.begin if forced is None else forced
        elif codes["target"] is not None and self._family != "marian":
            forced = codes["target"]
            if not self._has_start:
                begins, forced = (forced,), None
        if not begins:
            raise ValueError(
                "The decoder of this model begins with the language of the "
                "output. Received: target=None. Pass `target=`, one of "
                f"{self._shown()}."
            )
        after = () if forced is None else (forced,)
        return Frame(configuration.pad, end, begins + after, first, last)

    @property
    def _has_start(self):
        """Whether the language follows a start token, as in most models."""
        return self._family != "mbart" or files.is_mbart_50(self._settings)

    def _usual_source(self):
        """Returns the default language of the source, without `source=`.

        The model was trained with a language in each source.
        """
        if self._family == "marian" or not (
            self._sides and self._sides[0].codes
        ):
            return None
        found = self._settings.get("src_lang")
        if found is None:
            raise ValueError(
                "Each source of this model names its language. Received: "
                "source=None, and no `src_lang` in `tokenizer_config.json`. "
                f"Pass `source=`, one of {self._shown()}."
            )
        return found

    def _around(self, source, target, end):
        """Returns the ids with which a source begins and ends."""
        if self._family == "marian":
            return (() if target is None else (target,)), (end,)
        if source is None:
            return (), (end,)
        legacy = self._settings.get("legacy_behaviour", False)
        if not self._has_start or legacy:
            return (), (end, source)
        return (source,), (end,)

    def _code(self, name, given):
        """Returns the id of a language."""
        ids = self._sides[0].ids if self._sides else {}
        codes = self._sides[0].codes if self._sides else []
        if self._family == "marian" and name == "source":
            codes = []
        if not codes:
            raise ValueError(
                f"`{name}` names a language for models of several. Received: "
                f"{name}={given!r} and a model of {self._family}, which does "
                f"not take the {name} language. Leave it out."
            )
        for code in (given, f"__{given}__", f">>{given}<<"):
            if code in codes:
                return ids[code]
        raise ValueError(
            f"`{name}` must be a language of the model. Received: "
            f"{name}={given!r}. It has {self._shown()}."
        )

    def _shown(self):
        codes = self._sides[0].codes if self._sides else []
        names = [x.strip("_><") for x in codes]
        more = f" and {len(names) - 30} more" if len(names) > 30 else ""
        return ", ".join(names[:30]) + more
