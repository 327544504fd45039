"""`SearchInput`: the model and the request that a search decodes."""

from typing import Any
from typing import NamedTuple

import tensorflow as tf

from keras_attn.decoding.loop import LoopPolicy
from keras_attn.decoding.step_model import StepModel
from keras_attn.decoding.step_model import rows_of


class SearchInput(NamedTuple):
    """The input of a search: a model on its sources, and a request."""

    model: StepModel
    start_token: Any  # an id, or one for each row, (batch,)
    end_token: int
    forbidden: tuple = ()  # ids that no hypothesis may contain
    source_mask: Any = None  # (batch, source), or None without padding
    source_lengths: Any = None  # (batch,), int32, the end token counted
    prefix: Any = None  # (batch, P) ids that hypotheses begin with, padded
    seed: Any = None  # (batch,), int32, seeds the random draws of each row
    options: Any = None  # name -> (batch,) tensor, overrides the search's own
    padding: int = 0  # the id that pads prefixes
    policy: LoopPolicy = LoopPolicy()
    rules: tuple = ()  # the request's rules, applied after the search's own

    @property
    def batch(self):
        """The number of rows, an integer or a scalar tensor."""
        return self.model.rows

    def first_tokens(self, count) -> tf.Tensor:
        """Returns the start token of each hypothesis, `(batch, count)`."""
        first = tf.reshape(self.start_token, [-1, 1])
        return tf.broadcast_to(first, [self.batch, count])

    def take_rows(self, rows) -> "SearchInput":
        """Returns the input of some rows, by their indices `(rows,)`."""
        names = [
            *("source_mask", "source_lengths"),
            *("prefix", "seed", "options"),
        ]
        if tf.is_tensor(self.start_token):
            names.append("start_token")
        taken = rows_of([getattr(self, x) for x in names], rows, self.batch)
        return self._replace(
            model=self.model.take_rows(rows),
            rules=tuple(x.take_rows(rows, self.batch) for x in self.rules),
            **dict(zip(names, taken, strict=True)),
        )
