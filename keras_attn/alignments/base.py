"""The base class of alignments and what they exchange with `Attention`."""

from typing import NamedTuple

from keras_attn.parts import Part


class Window(NamedTuple):
    """The part of a source that a query may look at."""

    first: object  # (batch, target), int32, its first position, maybe below 0
    center: object  # (batch, target), float32, where the query aims


class Sample(NamedTuple):
    """Weights that were drawn, and how likely that was."""

    weights: object  # (batch, target, source), float32
    log_probability: object  # (batch, target), float32
    entropy: object  # (batch, target), float32, of what was drawn from


class Alignment(Part):
    """Base class of all alignments; subclasses write `call`.

    An alignment that looks at a part of the source only may choose it
    before anything is scored: it sets `window_width` and writes `choose()`.
    Only the keys in the window are scored then, and `call` sees a window for
    a source. One that draws at random in training writes `draw()`.

    Attributes:
        window_width: Number of positions in a window, or `None`.
        samples: Whether `call` returns a `Sample`.

    Call arguments:
        scores: Tensor of shape `(batch, target, source)`.
        allowed: Boolean tensor that broadcasts to the scores, True where a
            query may look; `None` where it may look everywhere.

    It is given any other that it names: see `Part`.

    Output:
        Weights of shape `(batch, target, source)`, float32; a row that may
        look nowhere is all zeros. Or a `Sample` of them.
    """

    window_width = None
    samples = False

    def __init__(self, **kwargs):
        # No autocast: scores and history keep the precision they come in.
        super().__init__(autocast=False, **kwargs)

    def build(self, scores_shape, *query_shape):
        """Creates the weights; subclasses take `scores_shape, query_shape`.

        Keras, when an alignment is called by itself, knows the scores alone,
        and accepts no other name here than those of `call`.
        """

    def get_build_config(self):
        """None: what holds an alignment builds it, also when loaded."""

    def choose(self, query, position, begin, length):
        """Chooses the window of each query, where `window_width` is set.

        Args:
            query: Tensor of shape `(batch, target, query_dim)`.
            position: int32 tensor `(batch, target)`, the number of each
                query in its sequence, from 0.
            begin: int32 tensor `(batch, 1)`, the source's first position
                that is not padding.
            length: int32 tensor `(batch, 1)`, how many are not padding.

        Returns:
            A `Window`.
        """
        raise NotImplementedError

    def draw(self, shape):
        """Draws what `call` needs at random, for all steps of a batch.

        It is drawn outside the loop over time: randomness inside one does
        not work on every backend.

        Args:
            shape: `(batch, target, source)`, or `(batch, target, heads,
                source)`: that of the weights.

        Returns:
            A structure of tensors whose axes are those of `shape`, the last
            of any size; `()` when nothing is random.
        """
        return ()
