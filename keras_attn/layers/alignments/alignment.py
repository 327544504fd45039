"""The base class of alignments, and the tuples they share with `Attention`."""

from typing import NamedTuple

from keras_attn.layers.parts import Part


class Window(NamedTuple):
    """The part of a source that a query may look at."""

    first: object  # (batch, target), int32, first position, perhaps negative
    center: object  # (batch, target), float32, the position it is centered on


class Sample(NamedTuple):
    """Weights that were drawn at random, with the draw's log-probability."""

    weights: object  # (batch, target, source), float32
    log_probability: object  # (batch, target), float32
    entropy: object  # (batch, target), float32, of the distribution


class Alignment(Part):
    """Base class of all alignments; subclasses write `call`.

    An alignment that looks at only a part of the source may choose this
    window before anything is scored. It sets `window_width` and writes
    `choose()`. Then only the keys in the window are scored, and the `source`
    axis in `call` is the window. An alignment that draws at random in
    training writes `draw()`.

    Attributes:
        window_width: Number of positions in a window, or `None`.
        samples: Whether `call` returns a `Sample`.

    Call arguments:
        scores: Tensor of shape `(batch, target, source)`.
        allowed: Boolean tensor that broadcasts to the scores, True where a
            query may look; `None` where it may look everywhere.

    `call` may name further arguments: see `Part`.

    Output:
        Weights of shape `(batch, target, source)`, float32, or a `Sample`
        with such weights. A row that may look nowhere is all zeros.
    """

    known = (*Part.known, "allowed", "query", "draws", "window")
    example = "call(self, scores, allowed=None)"
    window_width = None
    samples = False

    def __init__(self, **kwargs):
        # No autocast: scores and history keep the precision they come in.
        super().__init__(autocast=False, **kwargs)

    def require_call(self):
        """Checks `call`, and that there is `choose()` if there is a window."""
        super().require_call()
        if self.window_width is not None and (
            type(self).choose is Alignment.choose
        ):
            raise ValueError(
                "An alignment that sets `window_width` needs a method "
                "`choose(self, query, position, begin, length)`. Received: "
                f"`{type(self).__name__}`, which has none. Write it, or "
                "remove `window_width`."
            )

    def build(self, scores_shape, *query_shape):
        """Creates the weights; subclasses take `scores_shape, query_shape`.

        The signature has `*query_shape` for an alignment that is called
        without an `Attention`. Keras then passes only the shapes of arguments
        of `call`, which usually has no query.
        """

    def get_build_config(self):
        """Returns `None`: its `Attention` builds it, even after loading."""

    def choose(self, query, position, begin, length):
        """Chooses the window of each query, if `window_width` is set.

        Args:
            query: Tensor of shape `(batch, target, query_dim)`.
            position: int32 tensor `(batch, target)`, the number of each
                query in its sequence, from 0.
            begin: int32 tensor `(batch, 1)`, the source's first position
                that is not padding.
            length: int32 tensor `(batch, 1)`, the number of source positions
                that are not padding.

        Returns:
            A `Window`.
        """
        raise NotImplementedError

    def draw(self, shape):
        """Draws the random numbers that `call` needs, for all steps.

        They are drawn before the loop over time, because not every backend
        can draw inside a loop.

        Args:
            shape: Shape of the weights, `(batch, target, source)` or
                `(batch, target, heads, source)`.

        Returns:
            A structure of tensors of this shape, except that the last axis
            may have any size; `()` if nothing is random.
        """
        return ()
