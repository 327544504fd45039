"""`Run`: the part of a search that a loop calls."""

from typing import Any

from keras_attn.arguments import lacking
from keras_attn.decoding.hypotheses import Hypotheses
from keras_attn.decoding.limits import Limits
from keras_attn.decoding.rules import Ruled
from keras_attn.decoding.rules import Rules
from keras_attn.decoding.rules import Written
from keras_attn.decoding.threefry import uniform_at


class Run:
    """One run of a search: its steps, from the first state to the results.

    `Search.run` returns one. Searches whose hypotheses do not depend on each
    other use `IndependentHypotheses`. For a search whose hypotheses replace
    each other, as beams do, write a subclass with `first`, `advance` and
    `results`. See stochastic beam search in
    `tests/support/stochastic_beams.py` for an example.

    A state is a `NamedTuple` of tensors, batch first, and of structures of
    tensors. It has at least

    - `time`: number of tokens so far, a scalar int32 tensor
    - `last`: the last tokens `(batch, beams)`, which the model reads next
    - `done`: whether a row or hypothesis needs no more steps, `(batch,)` or
      `(batch, beams)`
    - `tokens`: `(batch, beams, max_length)`, all tokens so far; None if no
      rule needs them (`rules.need_tokens`)
    - `rules`: the states of the rules, `rules.start(batch, beams)` at first
      and then `rules.update(tokens, states, parents)`

    A run must

    - begin with one possible beam: the other beams would be copies of it, so
      their log-probability is `keras_attn.decoding.IMPOSSIBLE`;
    - apply the rules with `apply_rules`, which also forces prefixes;
    - set `done` at `limits.longest`, which may differ by row, and if no token
      is allowed: all log-probabilities are then below `POSSIBLE`.

    `keras_attn.decoding` has helpers that most runs need: `Step` for the
    log-probabilities, `gather` and `append` to follow parents, `alignments_of`
    and `without_impossible` for the results.

    Args:
        search: The `Search`.
        search_input: Its `SearchInput`.
        beams: Number of hypotheses per row that the model steps.

    Attributes:
        search, search_input, beams: The arguments.
        limits: The `Limits` of length, `longest` and `shortest`; each an
            integer, or a tensor `(batch,)` if it differs by row.
        rules: The `Rules` on the next token.
        recorded: Dtypes of the tensors that each step records for
            `results()`.
    """

    recorded: tuple = ()

    def __init__(self, search, search_input, beams: int):
        self.search, self.search_input = search, search_input
        self.beams = beams
        self.limits = Limits.of(search, search_input)
        self.rules = Rules.of(search, search_input, self.limits)

    def first(self) -> Any:
        """Returns the state before the first token."""
        raise lacking(self, "first", "the state before the first token")

    def advance(self, state, logits, alignments) -> tuple:
        """Extends every hypothesis by one token.

        Args:
            state: The state so far.
            logits, alignments: The model's output for the last tokens,
                `(batch, beams, vocabulary)` and `(batch, beams, source)`.

        Returns:
            The new state; the hypotheses that the new ones continue,
            `(batch, beams)`, or None if each continues itself; and a tuple
            of the tensors to record.
        """
        raise lacking(self, "advance", "state, parents and what to record")

    def results(self, state, *recorded) -> Hypotheses:
        """Returns the search's `num_hypotheses` hypotheses, best first.

        Args:
            state: The state at the end.
            *recorded: The recorded tensors of all steps, time first.
        """
        raise lacking(self, "results", "`Hypotheses`")

    def apply_rules(self, state, logits) -> Ruled:
        """Returns the logits after all rules.

        Args:
            state: The state so far.
            logits: The model's logits, `(batch, beams, vocabulary)`.
        """
        tokens = state.tokens if self.rules.need_tokens else None
        compiled = self.search_input.policy.caches == "two loops"
        written = Written(state.time, tokens, compiled)
        return self.rules.apply(logits, written, state.rules)

    def uniform(self, time, count) -> Any:
        """Returns random numbers from 0 to 1, excluding 1.

        They depend on the row's seed, so they are the same in any batch.

        Args:
            time: Number of tokens so far.
            count: Number of random numbers for each row.

        Returns:
            float32 `(batch, count)`.
        """
        return uniform_at(self.search_input.seed, count, time)
