"""`Generation`: the search that a `generation_config.json` describes."""

import math
from collections.abc import Mapping
from typing import Any

from keras_attn.caller import warn
from keras_attn.decoding import BeamSearch
from keras_attn.decoding import ForbiddenSequences
from keras_attn.decoding import ForcedToken
from keras_attn.decoding import GreedySearch
from keras_attn.decoding import Renormalized
from keras_attn.decoding import Sampling
from keras_attn.decoding import Search
from keras_attn.models.hugging_face.architecture.fields import GENERATION
from keras_attn.models.hugging_face.timestamps import Timestamps

_FILE = "generation_config.json"
# Fields that change no result of a search
_WITHOUT_EFFECT = {
    "_from_model_config",
    "assistant_confidence_threshold",
    "bos_token_id",
    "cache_config",
    "cache_implementation",
    "compile_config",
    "disable_compile",
    "is_assistant",
    "low_memory",
    "max_matching_ngram_size",
    "num_assistant_tokens",
    "num_assistant_tokens_schedule",
    "output_attentions",
    "output_hidden_states",
    "output_logits",
    "output_scores",
    "pad_token_id",
    "prefill_chunk_size",
    "prev_sot_token_id",
    "prompt_lookup_num_tokens",
    "return_dict_in_generate",
    "return_legacy_cache",
    "target_lookbehind",
    "transformers_version",
    "use_cache",
}
_OF_BEAMS = "length_penalty", "early_stopping"
_OF_SAMPLING = {"temperature", "top_k", "top_p"}
# Fields of speech models, which give their prompts and their times
_OF_SPEECH = (
    "alignment_heads",
    "forced_decoder_ids",
    "is_multilingual",
    "lang_to_id",
    "max_initial_timestamp_index",
    "no_timestamps_token_id",
    "return_timestamps",
    "task_to_id",
)
# Two names of one limit, of which the second takes precedence
_INSTEAD = {"max_length": "max_new_tokens", "min_length": "min_new_tokens"}


def _is_id(x):
    return isinstance(x, int) and not isinstance(x, bool) and x >= 0


def _is_number(x):
    is_real = isinstance(x, (int, float)) and not isinstance(x, bool)
    return is_real and math.isfinite(x)


def _are_ids(x):
    return isinstance(x, list) and all(map(_is_id, x))


def _are_placed(x):
    """Returns whether ids, or `None`, have the places 1, 2 and so on."""
    return isinstance(x, list) and all(
        isinstance(pair, list)
        and len(pair) == 2
        and pair[0] == place
        and (pair[1] is None or _is_id(pair[1]))
        for place, pair in enumerate(x, 1)
    )


_COUNT = lambda x: _is_id(x) and x > 0, "an integer of at least 1"
_SIZE = _is_id, "an integer of at least 0"
_ID = _is_id, "an id, an integer of at least 0"
_IDS = _are_ids, "a list of ids"
_SOME = lambda x: _is_id(x) or _are_ids(x), "an id, or a list of ids"
_TRUTH = lambda x: isinstance(x, bool), "true or false"
_NUMBER = _is_number, "a number"
_ABOVE = lambda x: _is_number(x) and x > 0, "a number above 0"
_KINDS: dict[str, Any] = {
    "bad_words_ids": (
        lambda x: isinstance(x, list) and all(y and _are_ids(y) for y in x),
        "a list of lists of ids",
    ),
    "begin_suppress_tokens": _IDS,
    "decoder_start_token_id": _ID,
    "do_sample": _TRUTH,
    "early_stopping": (
        lambda x: isinstance(x, bool) or x == "never",
        'true, false or "never"',
    ),
    "eos_token_id": _SOME,
    "force_bos_token_to_be_generated": _TRUTH,
    "forced_bos_token_id": _ID,
    "forced_decoder_ids": (
        _are_placed,
        "a list of pairs [place, id], with the places 1, 2 and so on",
    ),
    "forced_eos_token_id": _SOME,
    "length_penalty": _NUMBER,
    "max_initial_timestamp_index": _SIZE,
    "max_length": _COUNT,
    "max_new_tokens": _COUNT,
    "min_length": _SIZE,
    "min_new_tokens": _SIZE,
    "no_repeat_ngram_size": _SIZE,
    "no_timestamps_token_id": _ID,
    "num_beams": _COUNT,
    "num_return_sequences": _COUNT,
    "renormalize_logits": _TRUTH,
    "repetition_penalty": _ABOVE,
    "return_timestamps": _TRUTH,
    "suppress_tokens": _IDS,
    "temperature": _ABOVE,
    "top_k": _SIZE,
    "top_p": _ABOVE,
}
# Values with which a field does nothing
_IDLE = {
    "diversity_penalty": 0.0,
    "encoder_repetition_penalty": 1.0,
    "num_beam_groups": 1,
    "penalty_alpha": 0.0,
    "typical_p": 1.0,
}


class Generation:
    """The options of a search that Hugging Face's `generate` would use.

    Args:
        fields: Of a `generation_config.json`, or the fields of generation in
            an older `config.json`.
        given: Fields that a user gave, which replace these. `None` removes a
            field.

    Attributes:
        start: Id with which the decoder begins, or `None`.
        forced_start: Id that comes after it in every output, or `None`.
    """

    def __init__(self, fields: dict, given: Mapping | None = None):
        given = {x: _plain(y) for x, y in (given or {}).items()}
        self._given = given
        _require_known(given)
        fields = fields | given
        for name, other in _INSTEAD.items():
            if given.get(name) is not None and other not in given:
                fields.pop(other, None)
        _require_values(_used(fields, given))
        self._left = {x: y for x, y in fields.items() if y is not None}
        self._samples = self._left.pop("do_sample", False)
        self.start = self._pop("decoder_start_token_id")
        self.forced_start = self._pop("forced_bos_token_id")
        self._end = self._pop("eos_token_id")
        if self._pop("force_bos_token_to_be_generated"):
            if self.forced_start is None:  # the name of older files
                self.forced_start = fields.get("bos_token_id")

    @classmethod
    def of(cls, directory, given: Mapping | None = None) -> "Generation":
        """Reads the files of a `Directory`."""
        fields = directory.json(_FILE)
        if fields is None:
            known = {*GENERATION, "bos_token_id"}
            old = directory.configuration
            fields = {x: y for x, y in old.items() if x in known}
        return cls(fields, given)

    def of_speech(self) -> dict:
        """Removes and returns the fields that only models of speech have."""
        return {x: self._pop(x) for x in _OF_SPEECH}

    def end(self, default: int) -> int:
        """Returns the id of the end.

        Args:
            default: That of `config.json`.

        Raises:
            ValueError: If there are several.
        """
        found = self._end
        if isinstance(found, list) and len(found) == 1:
            (found,) = found
        if isinstance(found, list):
            raise ValueError(
                "A search needs one id that ends a text. Received: "
                f"eos_token_id={found!r} in `{_FILE}`. Leave one of them there."
            )
        return default if found is None else found

    def search(
        self,
        begun: tuple[int, ...],
        end: int,
        longest: int | None,
        prompt_length: int | None = None,
        timestamps: Timestamps | None = None,
    ) -> Search:
        """Returns the search, and warns of the fields that it does not use.

        Args:
            begun: Ids with which the decoder begins.
            end: Id of the end.
            longest: Largest number of tokens that the model can write, or
                `None`.
            prompt_length: For models of speech the number of tokens in a
                prompt, the start token too, whether they are `begun` or found
                by the model. The longest output counts none of them.
            timestamps: The `Timestamps` that outputs have, or `None`.

        Raises:
            ValueError: If a field that was given has no effect.
        """
        # A forced first token of text is new, the prompt of speech is not.
        start, given, counted = len(begun), 1, len(begun)
        if prompt_length is not None:
            start, given, counted = prompt_length, prompt_length, 0
        options, ends = self._lengths(start, given, counted, longest)
        options["no_repeat_ngram"] = self._pop("no_repeat_ngram_size") or 0
        options["repetition_penalty"] = self._pop("repetition_penalty") or 1.0
        options["rules"] = self._rules(
            options["max_length"], begun, end, ends, timestamps
        )
        beams, count = self._pop("num_beams") or 1, self._count()
        penalty = self._pop("length_penalty")
        early = self._pop("early_stopping") or False
        notes = self._notes(options, end in begun)
        if beams > 1:
            notes += self._notes_on_beams(penalty)
            made: Search = BeamSearch(
                beams,
                num_hypotheses=min(count, beams),
                length_penalty=max(0.0, 1.0 if penalty is None else penalty),
                penalty="power",
                early_stopping=early,
                cut="by_score",
                length_offset=max(0, counted - 1),
                **options,
            )
        elif self._samples:
            drawn = {x: self._pop(x) for x in sorted(_OF_SAMPLING)}
            drawn = {x: y for x, y in drawn.items() if y is not None}
            drawn = {"top_k": 50} | drawn  # their default
            made = Sampling(**drawn, num_hypotheses=count, **options)
        else:
            made = GreedySearch(**options)
        self._require_effect(beams, count)
        self._warn(notes)
        return made

    def _pop(self, name) -> Any:
        return self._left.pop(name, None)

    def _count(self):
        return self._pop("num_return_sequences") or 1

    def _lengths(self, start, given, counted, longest):
        """Returns the limits of an output, and whether it may end.

        The limits of Hugging Face count all `start` tokens, or (of new tokens)
        all but those `given`. The longest output of speech counts none.
        """
        most, new = self._pop("max_length"), self._pop("max_new_tokens")
        if new is not None:
            most = new + min(1, counted)
        most = BeamSearch().max_length if most is None else most - counted
        if longest is not None:
            most = min(most, longest)
        most = max(1, most)
        fewest, new = self._pop("min_length") or 0, self._pop("min_new_tokens")
        if new:  # it replaces the other
            fewest = new + given
        fewest = max(1, fewest - start + 1)
        return {
            "max_length": most,
            "min_length": min(fewest, most),
        }, fewest <= most

    def _rules(self, max_length, begun, end, ends, timestamps):
        rules: list[Any] = []
        forced = self._forced_end()
        if forced is not None:
            rules.append(ForcedToken(max_length - 1, forced))
        # Theirs leaves out the end alone. A start token is never written here,
        # so that opus-mt, which forbids it, needs no rule for it.
        given = self._pop("bad_words_ids") or ()
        left_out = [[x] for x in (end, *begun)]
        sequences = [x for x in given if list(x) not in left_out]
        sequences += [[x] for x in self._pop("suppress_tokens") or ()]
        if not ends and forced != end:
            sequences.append([end])
        if timestamps is not None:
            sequences.append([timestamps.none])
        if [forced] in sequences:
            raise ValueError(
                "A token that must come last must not be forbidden. Received: "
                f"the id {forced}, by `{_FILE}` or `search` both in "
                "`forced_eos_token_id` and in `bad_words_ids` or "
                "`suppress_tokens`. Leave it out of one of them."
            )
        first = self._pop("begin_suppress_tokens") or ()
        if sequences or first:
            rules.append(ForbiddenSequences(sequences, first, begun))
        if timestamps is not None:
            rules.append(timestamps.rule(end))
        if self._pop("renormalize_logits"):
            rules.append(Renormalized())
        return rules

    def _forced_end(self):
        found = self._pop("forced_eos_token_id")
        if not isinstance(found, list):
            return found
        if len(found) > 1:
            raise ValueError(
                "A search forces one token at the end. Received: "
                f"forced_eos_token_id={found!r}, by `{_FILE}` or `search`. "
                "Leave one of them."
            )
        return found[0] if found else None

    def _notes(self, options, begins_with_end):
        """Notes the options that count start tokens there, and not here."""
        notes = []
        if options["repetition_penalty"] != 1:
            notes.append(
                "repetition_penalty, which there counts start tokens too, and "
                "in beams does not renormalize"
            )
        if options["no_repeat_ngram"] == 1 and begins_with_end:
            notes.append(
                "no_repeat_ngram_size=1, which there counts start tokens too"
            )
        return notes

    def _notes_on_beams(self, penalty):
        notes = []
        if self._samples:
            notes.append("do_sample=True, since beams are not drawn here")
        if penalty is not None and penalty < 0:
            notes.append(f"length_penalty={penalty}, which must not be below 0")
        return notes

    def _require_effect(self, beams, count):
        without = [x for x in self._given if x in self._left]
        drawn = self._samples and beams == 1
        if count > beams and not drawn:
            name = "num_return_sequences"
            without += [x for x in self._given if x == name]
        if beams == 1:
            without += [x for x in _OF_BEAMS if self._given.get(x) is not None]
        if without:
            raise ValueError(
                "Each field of `search` must be one that the search uses. "
                f"Received: {_shown(self._given, without)}, without effect for "
                f"num_beams={beams} and do_sample={bool(self._samples)}."
            )

    def _warn(self, notes):
        known = _WITHOUT_EFFECT | _OF_SAMPLING
        notes = notes + [
            f"{name}={value!r:.60}"
            for name, value in sorted(self._left.items())
            if name not in known and value != _IDLE.get(name, False)
        ]
        if notes:
            warn(
                f"Some fields of `{_FILE}` have no counterpart here, so that "
                "outputs may differ from those of Hugging Face's `generate`: "
                f"{'; '.join(notes)}. `search=` sets a search of your own."
            )


def _plain(value):
    """Returns numbers and arrays of numpy, and tuples, as JSON values."""
    value = value.tolist() if hasattr(value, "tolist") else value
    if isinstance(value, (list, tuple)):
        return [_plain(x) for x in value]
    return value


def _require_known(given):
    known = {*_KINDS, *_WITHOUT_EFFECT, *_IDLE, *GENERATION, *_OF_SPEECH}
    unknown = [x for x in given if x not in known]
    if unknown:
        raise ValueError(
            f"`search` must have fields that `{_FILE}` has. Received: "
            f"{_shown(given, unknown)}. A search of your own is an object, "
            "such as `keras_attn.BeamSearch()`."
        )


def _used(fields, given):
    """Returns the fields, without those for sampling if nothing is sampled."""
    if fields.get("do_sample") is True:
        return fields
    idle = _OF_SAMPLING - set(given)
    return {x: y for x, y in fields.items() if x not in idle}


def _require_values(fields):
    """Refuses fields of a wrong type, which would be misread."""
    for name, (valid, kind) in _KINDS.items():
        value = fields.get(name)
        if value is not None and not valid(value):
            raise ValueError(
                f"`{name}`, in `{_FILE}` or `search`, must be {kind}. "
                f"Received: {name}={value!r:.200}"
            )


def _shown(fields, names):
    return ", ".join(f"{x}={fields[x]!r}" for x in names)
