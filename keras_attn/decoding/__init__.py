"""Search: from a step function to the best token sequences.

A `Search` is a small record of options. It says how one step chooses tokens,
given the model's log-probabilities and a named state; its base class has the
one loop over steps. All of it runs inside one `tf.function`: no Python per
step, and buffers of fixed size, so that XLA can compile it.

Scores and lengths. A hypothesis of `n` tokens, the end token counted, has the
score `sum of log-probabilities / penalty(n)`, normalized once, when it ends:

- `"gnmt"`: `penalty(n) = ((5 + n) / 6) ** alpha` (Wu et al., 2016)
- `"power"`: `penalty(n) = n ** alpha`

With `alpha = 0` the score is the log-probability itself.

All searches share the rules on the next token. Forbidden tokens are skipped;
the others keep the model's probability, without renormalizing.

- Lengths. A row's maximum is `max_length`, or `a * source + b` of
  `max_per_source` where that is less, but at least 1. Its minimum is
  `min_length`, or `a * source + b` of `min_per_source` where that is more,
  but at most the maximum. Before the minimum the end token is forbidden; at
  the maximum a hypothesis is cut and flagged as not finished.
- Prefix. Where `Task.prefix` has a token for a row, that token is forced: no
  other rule applies, and its log-probability counts. An end token in the
  prefix ends the hypothesis there. A prefix longer than the row's maximum is
  cut.
- `no_repeat_ngram = n` (Paulus et al., 2018) forbids a token that would
  complete an n-gram which the hypothesis, prefix included, has already. The
  start token is in no n-gram. This rule never forbids the end token, which
  ends a hypothesis and so cannot repeat (as in fairseq).
- `repetition_penalty` (Keskar et al., 2019) applies before the softmax, to
  the tokens that the hypothesis, prefix included, has already: their positive
  logits are divided by it, their negative ones multiplied. It is the one rule
  that changes log-probabilities, and scores include the change.
- If every token is forbidden, a hypothesis is cut and flagged as not
  finished. In a beam search other beams replace it first: a source is cut
  only when none of its beams can go on. A hypothesis cut before its first
  token does not exist.

References:
    - [Wu et al., 2016](https://arxiv.org/abs/1609.08144), equation 14
    - [Paulus et al., 2018](https://arxiv.org/abs/1705.04304), section 2.5
    - [Keskar et al., 2019](https://arxiv.org/abs/1909.05858), section 4.1
"""

from keras_attn.decoding.beam import BeamSearch as BeamSearch
from keras_attn.decoding.greedy import GreedySearch as GreedySearch
from keras_attn.decoding.independent import CUT as CUT
from keras_attn.decoding.options import Choice as Choice
from keras_attn.decoding.options import Integer as Integer
from keras_attn.decoding.options import Option as Option
from keras_attn.decoding.options import PerSource as PerSource
from keras_attn.decoding.options import Real as Real
from keras_attn.decoding.sampling import Sampling as Sampling
from keras_attn.decoding.search import Search as Search
from keras_attn.decoding.step import Step as Step
from keras_attn.decoding.task import NEVER as NEVER
from keras_attn.decoding.task import Hypotheses as Hypotheses
from keras_attn.decoding.task import Task as Task
