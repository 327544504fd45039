"""`Generation`: what a `generation_config.json` says of the search."""

from collections.abc import Mapping
from typing import Any

from keras_attn.caller import warn
from keras_attn.decoding import BeamSearch
from keras_attn.decoding import ForbiddenSequences
from keras_attn.decoding import ForcedToken
from keras_attn.decoding import GreedySearch
from keras_attn.decoding import Sampling
from keras_attn.decoding import Search
from keras_attn.models.hugging_face.architecture.fields import GENERATION

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
    "prompt_lookup_num_tokens",
    "return_dict_in_generate",
    "return_legacy_cache",
    "target_lookbehind",
    "transformers_version",
    "use_cache",
}
_OF_BEAMS = "length_penalty", "early_stopping"
_OF_SAMPLING = {"temperature", "top_k", "top_p"}
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
        self._given = given = dict(given or {})
        _require_values(given)
        fields = fields | given
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
        self, begun: tuple[int, ...], end: int, longest: int | None
    ) -> Search:
        """Returns the search, and warns of the fields that it does not use.

        Args:
            begun: Ids with which the decoder begins.
            end: Id of the end.
            longest: Largest number of tokens that the model can write, or
                `None`.

        Raises:
            ValueError: If a field that was given has no effect.
        """
        start = len(begun)
        options, ends = self._lengths(start, longest)
        options["no_repeat_ngram"] = self._pop("no_repeat_ngram_size") or 0
        options["repetition_penalty"] = self._pop("repetition_penalty") or 1.0
        options["rules"] = self._rules(options["max_length"], begun, end, ends)
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
                length_offset=start - 1,
                **options,
            )
        elif self._samples:
            given = {x: self._pop(x) for x in sorted(_OF_SAMPLING)}
            given = {x: y for x, y in given.items() if y is not None}
            given = {"top_k": 50} | given  # their default
            made = Sampling(**given, num_hypotheses=count, **options)
        else:
            made = GreedySearch(**options)
        self._require_effect(beams, count)
        self._warn(notes)
        return made

    def _pop(self, name) -> Any:
        return self._left.pop(name, None)

    def _count(self):
        return self._pop("num_return_sequences") or 1

    def _lengths(self, start, longest):
        """Returns the limits of an output, and whether it may end.

        Theirs count the start tokens, or (`max_new_tokens`) all but the first.
        """
        most, new = self._pop("max_length"), self._pop("max_new_tokens")
        if new is not None:
            most = new + 1
        most = BeamSearch().max_length if most is None else most - start
        if longest is not None:
            most = min(most, longest)
        most = max(1, most)
        fewest, new = self._pop("min_length") or 0, self._pop("min_new_tokens")
        if new:  # it replaces the other
            fewest = new + 1
        fewest = max(1, fewest - start + 1)
        return {
            "max_length": most,
            "min_length": min(fewest, most),
        }, fewest <= most

    def _rules(self, max_length, begun, end, ends):
        rules: list[Any] = []
        forced = self._pop("forced_eos_token_id")
        if isinstance(forced, list):
            (forced,) = forced[:1]
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
        first = self._pop("begin_suppress_tokens") or ()
        if sequences or first:
            rules.append(ForbiddenSequences(sequences, first, begun))
        return rules

    def _notes(self, options, begins_with_end):
        """Names what counts start tokens there, and not here."""
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


def _require_values(given):
    wrong = [
        name
        for name, value in given.items()
        if isinstance(value, str) and name != "early_stopping"
    ]
    if wrong:
        raise ValueError(
            f"Fields of `search` have the values that `{_FILE}` has, such as "
            f"numbers. Received: {_shown(given, wrong)}"
        )


def _shown(fields, names):
    return ", ".join(f"{x}={fields[x]!r}" for x in names)
