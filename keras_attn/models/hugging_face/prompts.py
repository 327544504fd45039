"""`Prompts`: the tokens that select what a speech model writes."""

import re
from typing import Any

from keras_attn.decoding.language_prompt import LanguagePrompt
from keras_attn.models.hugging_face.timestamps import Timestamps

_SEVERAL = 51_865  # ids of the smallest model of several languages
_CODE = re.compile(r"<\|[a-z]{2,3}\|>")
_TASKS = "transcribe", "translate"


class Prompts:
    """The tokens that tell a model of speech what to write.

    They are a language, a task, and the token for texts without timestamps.

    Args:
        generation: Fields of a `generation_config.json`.
        ids: Ids by token, or `None` if texts are ids.
        size: Number of ids of the model.

    Attributes:
        quiet: Id of `<|notimestamps|>`, or `None` if it is not known.
        timestamps: The `Timestamps` that texts have, or `None`.

    Raises:
        ValueError: If texts should have timestamps that the model does not
            know.
    """

    def __init__(self, generation: dict, ids: dict[str, int] | None, size: int):
        self._several = generation.get("is_multilingual")
        if self._several is None:
            self._several = size >= _SEVERAL
        known: dict[str, Any] = {}
        if ids is not None:
            known = {x: i for x, i in ids.items() if i < size}
        known |= generation.get("lang_to_id") or {}
        tasks = generation.get("task_to_id") or {}
        known |= {f"<|{x}|>": i for x, i in tasks.items()}
        quiet = generation.get("no_timestamps_token_id")
        if quiet is not None:
            known["<|notimestamps|>"] = quiet
        self._ids = known
        self.quiet = known.get("<|notimestamps|>")
        # Of the files, by place: a language or `None`, and a task
        forced = [i for _, i in generation.get("forced_decoder_ids") or ()]
        wrong = [i for i in forced if i is not None and i >= size]
        if wrong:
            raise ValueError(
                "The ids of `forced_decoder_ids` must be below `vocab_size`. "
                f"Received: {wrong[0]}, and {size} ids."
            )
        self._finds = not forced or forced[0] is None
        self._forced = tuple(x for x in forced if x not in (None, self.quiet))
        self.timestamps = None
        if generation.get("return_timestamps"):
            if self.quiet is None or self.quiet + 1 >= size:
                raise ValueError(
                    "`return_timestamps` needs a model that knows timestamps. "
                    f"Received: no_timestamps_token_id={self.quiet} and "
                    f"{size} ids of the model. Leave it out."
                )
            latest = generation.get("max_initial_timestamp_index")
            self.timestamps = Timestamps(self.quiet, latest)

    def after_start(self, source, target) -> tuple[int, ...]:
        """Returns the ids that follow the start token of every output.

        Args:
            source: Language of the sound, or `None` for that of
                `forced_decoder_ids`, without which requests give it.
            target: Language of the text, or `None` for that of the sound.

        Raises:
            ValueError: If the model does not know these.
        """
        if not self._several:
            if source is not None or target is not None:
                raise ValueError(
                    "`source` and `target` name languages for models of "
                    f"several. Received: source={source!r}, target={target!r} "
                    "and a model of English alone. Leave them out."
                )
            return self._forced + self._last()
        if source is None:
            if target is not None:
                raise ValueError(
                    "`target` needs the language of the sound too. Received: "
                    f"target={target!r} and source=None. Pass `source=`."
                )
            return () if self._finds else self._forced + self._last()
        if target not in (None, source, "en"):
            raise ValueError(
                "A model of speech writes the language of the sound, or "
                f"English. Received: source={source!r}, target={target!r}."
            )
        language = self._id(f"<|{source}|>", "source", source)
        task = _TASKS[target not in (None, source)]
        return (language, self._id(f"<|{task}|>", "target", target)) + (
            self._last()
        )

    def found(self, source) -> LanguagePrompt | None:
        """Returns the prompt that finds the language in the sound.

        Args:
            source: As for `after_start()`.

        Returns:
            `None` if `source` or `forced_decoder_ids` gives the language, if
            the model has only one, or if its languages are not known.
        """
        transcribe = self._ids.get(f"<|{_TASKS[0]}|>")
        ids = [i for x, i in self._ids.items() if _CODE.fullmatch(x)]
        if not self._several or source is not None or not self._finds:
            return None
        if not ids or transcribe is None:
            return None
        after = self._forced or (transcribe,)
        return LanguagePrompt(sorted(ids), after, self._last())

    def _last(self):
        """Returns the ids that end each prompt."""
        writes = self.timestamps is not None or self.quiet is None
        return () if writes else (self.quiet,)

    def _id(self, token, name, given):
        if token not in self._ids:
            known = sorted(x for x in self._ids if _CODE.fullmatch(x))
            shown = ", ".join(x.strip("<|>") for x in known) or "none"
            raise ValueError(
                f"`{name}` must be a language of the model. Received: "
                f"{name}={given!r}, and no id of {token}. It has {shown}."
            )
        return self._ids[token]
