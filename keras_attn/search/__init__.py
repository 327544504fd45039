"""Search: from a step function to the best token sequences.

A search is a small record of options over pure functions of a step and a
named state. All of it runs inside one `tf.function`: no Python per step, and
buffers of fixed size, so that XLA can compile it.

Scores and lengths. A hypothesis of `n` tokens, the end token counted, has the
score `sum of log-probabilities / penalty(n)`, normalised once, when it ends:

- `"gnmt"`: `penalty(n) = ((5 + n) / 6) ** alpha` (Wu et al., 2016)
- `"power"`: `penalty(n) = n ** alpha`

With `alpha = 0` the score is the log-probability itself.
"""

from keras_attn.search.beam import BeamSearch as BeamSearch
from keras_attn.search.greedy import GreedySearch as GreedySearch
from keras_attn.search.task import Hypotheses as Hypotheses
from keras_attn.search.task import Task as Task
