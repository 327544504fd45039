"""Cuts models into steps, with several methods tried in turn.

A model is cut by steppers, by opening custom layers, or by recomputing the past
at each step.
"""

from collections.abc import Sequence
from typing import Any

import keras

from keras_attn.caller import warn
from keras_attn.decoding.translator.model_trial import computes_alike
from keras_attn.incremental import Ensemble
from keras_attn.incremental import Incremental
from keras_attn.incremental.recomputed_stepper import longest_target
from keras_attn.incremental.refuse import LooksAhead
from keras_attn.incremental.refuse import NothingRemembered
from keras_attn.incremental.refuse import Refused
from keras_attn.incremental.refuse import WholeFails
from keras_attn.incremental.registry import has_stepper_of_user
from keras_attn.models.adopted.opening import opened_model
from keras_attn.models.adopted.opening import own_layers

_ATTEMPTS = 3  # at recomputing single layers, before the whole is recomputed


class Cutting:
    """Cuts a model by the first method that works.

    The model is first cut by steppers. If this fails, custom layers are opened
    to cut the layers inside. If this fails too and `recompute` is true, the
    layers in the way are recomputed over all past tokens at each step, or else
    everything that depends on the target is. Each result is compared with the
    whole model.

    Args:
        model: A model in standard form.
        recompute: Whether layers may be recomputed over all past tokens.

    Raises:
        ValueError: If no method can cut the model.
    """

    def __init__(self, model: keras.Model, recompute: bool):
        self.model = model
        self._recompute = recompute
        self._cut: Incremental | None = None
        self._refused: Refused | None = None
        try:
            self._cut = Incremental(model)
        except Refused as error:
            _require_another_way(error)
            self._refused = error

    @property
    def longest(self) -> int | None:
        """The longest target that is known to work, `None` for any."""
        if self._cut is not None:
            return self._cut.longest
        return longest_target(self.model)

    def proven(self, *inputs: Any, padded: Sequence = ()) -> Incremental:
        """Returns the cut model, after comparing it with the whole model.

        Args:
            *inputs: All inputs of the model, the target's last, without
                padding.
            padded: The inputs with padding in the source.
        """
        error = self._refused
        if self._cut is not None:
            try:
                self._cut.check(*inputs)
                return self._cut
            except Refused as found:
                _require_another_way(found)
                error = found
        return (
            self._opened(error, inputs, padded or inputs)
            or self._with_layers(error, inputs)
            or self._whole(error, inputs)
        )

    def _opened(self, error, inputs, padded):
        """Tries to open custom layers; returns None if this fails."""
        model = opened_model(self.model, self.longest)
        if model is None or not all(
            computes_alike(self.model, model, x) for x in (inputs, padded)
        ):
            return None
        cut = _checked(model, (), inputs)
        if cut is not None or not self._recompute:
            return cut
        closed = own_layers(model)
        cut = _checked(model, closed, inputs) if closed else None
        if cut is not None:
            self._warn(error, f"{_named(closed)} {_read(closed)}")
        return cut

    def _require_may_recompute(self, error):
        """Raises the error, unless layers may be recomputed."""
        if not self._recompute:
            error.add_note(
                "`recompute=True` tries to decode such models by reading the "
                "target so far again at each step."
            )
            raise error

    def _with_layers(self, error, inputs):
        """Tries to recompute single layers; returns None if this fails."""
        self._require_may_recompute(error)
        closed: list = []
        for _ in range(_ATTEMPTS):
            layers = self._to_close(error, closed)
            if not layers:
                return None
            closed += layers
            try:
                cut = Incremental(self.model, recompute=closed)
                cut.check(*inputs)
            except Refused as found:
                error = found
                continue
            except Exception:  # a layer may raise anything on a partial target
                return None
            self._warn(error, f"{_named(closed)} {_read(closed)}")
            return cut
        return None

    def _to_close(self, error, closed):
        """Returns the layers to recompute: all of the class in the way."""
        if isinstance(error, (NothingRemembered, LooksAhead)):
            return []
        layer = error.operation
        if not isinstance(layer, keras.Layer) or layer in closed:
            return []
        return [
            x
            for x in self.model.layers
            if type(x) is type(layer) and x not in closed
        ]

    def _whole(self, error, inputs):
        """Recomputes everything that depends on the target, or raises."""
        try:
            cut = Incremental(self.model, recompute=True)
            cut.check(*inputs)
        except LooksAhead as ahead:
            raise (ahead if _is_of_user(error) else error) from None
        except Refused as second:
            # `NothingRemembered` was only an assumption about unknown layers.
            if isinstance(error, NothingRemembered):
                error = second
            name = self.model.inputs[-1].name
            error.add_note(
                f"The last input, '{name}', is taken as the target. Pass the "
                "name of another one as `target`."
            )
            raise error from None
        self._warn(error, "all layers between target and logits read")
        return cut

    def _warn(self, error, who_reads):
        why = ""
        in_the_way = error.operation
        if in_the_way is not None and in_the_way.name not in who_reads:
            why = f", as no stepper runs {_named([in_the_way])}"
        warn(
            f"At each step {who_reads} again what was written so far{why}. "
            "The output is right, but decoding is slower, especially for long "
            "outputs. Layers of Keras, KerasHub or keras_attn are faster, and "
            "so is a `keras_attn.Stepper` for your own layer. "
            "`recompute=False` refuses a model that needs this."
        )


def cut_of(members) -> Incremental | Ensemble:
    """Returns one cut model, or an ensemble of several."""
    return members[0] if len(members) == 1 else Ensemble(members)


def _require_another_way(error):
    """Raises the error, unless another method may cut the model."""
    # An error in a user's own stepper must be shown, not worked around.
    if isinstance(error, WholeFails) or (
        not isinstance(error, NothingRemembered)
        and (error.operation is None or has_stepper_of_user(error.operation))
    ):
        raise error


def _checked(model, recompute, inputs):
    """Returns a cut model that passes the comparison, or None."""
    try:
        cut = Incremental(model, recompute=recompute)
        cut.check(*inputs)
    except Exception:  # a layer may raise anything on a partial target
        return None
    return cut


def _read(layers):
    return "reads" if len(layers) == 1 else "read"


def _is_of_user(error):
    """Returns whether a custom layer caused the error."""
    if isinstance(error, NothingRemembered):
        return True
    package = type(error.operation).__module__.partition(".")[0]
    return package not in ("keras", "keras_hub", "keras_attn")


def _named(layers):
    names = [f"'{x.name}' ({type(x).__name__})" for x in layers]
    return " and ".join([", ".join(names[:-1]), names[-1]][len(names) < 2 :])
