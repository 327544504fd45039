"""Alignments: how the scores of a query become weights over the source.

Masked positions get no weight. Weights are float32 under every dtype policy,
because a softmax in half precision loses the small weights.
"""

from keras_attn.layers.alignments.alignment import Alignment as Alignment
from keras_attn.layers.alignments.alignment import Sample as Sample
from keras_attn.layers.alignments.alignment import Window as Window
from keras_attn.layers.alignments.hard import HardAlignment as HardAlignment
from keras_attn.layers.alignments.hard import (
    ReinforceAlignment as ReinforceAlignment,
)
from keras_attn.layers.alignments.local import (
    LocalMonotonicAlignment as LocalMonotonicAlignment,
)
from keras_attn.layers.alignments.local import (
    LocalPredictiveAlignment as LocalPredictiveAlignment,
)
from keras_attn.layers.alignments.monotonic import (
    MonotonicAlignment as MonotonicAlignment,
)
from keras_attn.layers.alignments.softmax import (
    SigmoidAlignment as SigmoidAlignment,
)
from keras_attn.layers.alignments.softmax import (
    SoftmaxAlignment as SoftmaxAlignment,
)
from keras_attn.layers.alignments.sparse import (
    EntmaxAlignment as EntmaxAlignment,
)
from keras_attn.layers.alignments.sparse import (
    SparsemaxAlignment as SparsemaxAlignment,
)
