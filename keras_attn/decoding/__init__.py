"""Search: from a model that steps to the best token sequences.

A `StepModel` is all that a search needs of a model. A `Search` is a small
record of options that defines how each step chooses tokens from the model's
log-probabilities. `Rule`s forbid tokens or change logits. `Loop` runs the
steps inside one `tf.function`, without Python code between the steps.

Scores and lengths. A hypothesis of `n` tokens, the end token counted, has the
score `sum of log-probabilities / penalty(n)`. It is normalized once, at the
end:

- `"gnmt"`: `penalty(n) = ((5 + n) / 6) ** alpha` (Wu et al., 2016)
- `"power"`: `penalty(n) = n ** alpha`

With `alpha = 0` the score is the log-probability itself.

All searches share the rules on the next token. Forbidden tokens are skipped;
the others keep the model's probability, without renormalizing.

- Lengths. A row's maximum is the smaller of `max_length` and the `a * source +
  b` of `max_per_source`, but at least 1. Its minimum is the larger of
  `min_length` and the `a * source + b` of `min_per_source`, but at most the
  maximum. Before the minimum the end token is forbidden; at the maximum a
  hypothesis is cut and flagged as not finished.
- Prefix. If `SearchInput.prefix` has a token for a row at a step, this token is
  forced: no other rule applies, and its log-probability counts. An end token
  in the prefix ends the hypothesis there. A prefix longer than the row's
  maximum is cut.
- `no_repeat_ngram = n` (Paulus et al., 2018) forbids a token that would
  complete an n-gram that the hypothesis, prefix included, already has. The
  start token is in no n-gram. This rule never forbids the end token, which ends
  a hypothesis and so cannot repeat (as in fairseq).
- `repetition_penalty` (Keskar et al., 2019) applies before the softmax, to the
  tokens that the hypothesis, prefix included, already has: positive logits
  are divided by the penalty, negative ones multiplied. It is the only built-in
  rule that changes log-probabilities, and scores include the change.
- If every token is forbidden, a hypothesis is cut and flagged as not
  finished. In a beam search, other beams first replace such a hypothesis: a
  source is cut only when none of its beams can continue. A hypothesis cut
  before its first token counts as missing.

References:
    - [Wu et al., 2016](https://arxiv.org/abs/1609.08144), equation 14
    - [Paulus et al., 2018](https://arxiv.org/abs/1705.04304), section 2.5
    - [Keskar et al., 2019](https://arxiv.org/abs/1909.05858), section 4.1
"""

from keras_attn import renamed
from keras_attn.decoding.beam import BeamSearch as BeamSearch
from keras_attn.decoding.greedy import GreedySearch as GreedySearch
from keras_attn.decoding.hypotheses import IMPOSSIBLE as IMPOSSIBLE
from keras_attn.decoding.hypotheses import NEVER as NEVER
from keras_attn.decoding.hypotheses import POSSIBLE as POSSIBLE
from keras_attn.decoding.hypotheses import Hypotheses as Hypotheses
from keras_attn.decoding.hypotheses import alignments_of as alignments_of
from keras_attn.decoding.hypotheses import append as append
from keras_attn.decoding.hypotheses import gather as gather
from keras_attn.decoding.hypotheses import (
    without_impossible as without_impossible,
)
from keras_attn.decoding.independent import CUT as CUT
from keras_attn.decoding.loop import LoopPolicy as LoopPolicy
from keras_attn.decoding.options import Choice as Choice
from keras_attn.decoding.options import Integer as Integer
from keras_attn.decoding.options import Option as Option
from keras_attn.decoding.options import PerSource as PerSource
from keras_attn.decoding.options import Real as Real
from keras_attn.decoding.paired_timestamps import (
    PairedTimestamps as PairedTimestamps,
)
from keras_attn.decoding.rules import Rule as Rule
from keras_attn.decoding.rules import Written as Written
from keras_attn.decoding.run import Run as Run
from keras_attn.decoding.sampling import Sampling as Sampling
from keras_attn.decoding.search import Search as Search
from keras_attn.decoding.search_input import SearchInput as SearchInput
from keras_attn.decoding.step import Step as Step
from keras_attn.decoding.step_model import StepModel as StepModel
from keras_attn.decoding.token_rules import (
    ForbiddenSequences as ForbiddenSequences,
)
from keras_attn.decoding.token_rules import ForcedToken as ForcedToken
from keras_attn.decoding.token_rules import Renormalized as Renormalized


def __getattr__(name):
    raise renamed.attribute_error(__name__, name)
