"""Cuts a trained functional model into `encode()` and `step()`.

The functional graph is the model: there is no second one to write for
inference. Whatever depends on the target input runs a token at a time, each
call of a layer by a stepper of its own; what does not runs once.
"""

import copy
from typing import NamedTuple

import keras
import numpy as np
from keras import ops

from keras_attn.backend import take_beams
from keras_attn.incremental.hoisting import hoist
from keras_attn.incremental.path import Path
from keras_attn.incremental.record import first_wrong_in_graph
from keras_attn.incremental.refuse import WholeFails
from keras_attn.incremental.refuse import refuse_quantized
from keras_attn.incremental.registry import unlike_parent
from keras_attn.incremental.verify import Comparison
from keras_attn.keras_internals import in_graph
from keras_attn.keras_internals import layers_within


class Encoded(NamedTuple):
    """What does not depend on the target, computed once per source.

    A structure of tensors, batch first, and of `None` where a mask is not
    needed: masks are tensors here, not attributes of others.
    """

    prepared: tuple  # what each stepper needs of the source


class State(NamedTuple):
    """The state between two steps, `(batch, beams, ...)`."""

    position: object  # number of the next step, () where nobody asks for it
    states: tuple  # of each stepper


class Incremental:
    """A functional encoder-decoder model, run a target token at a time.

    Between the target's ids and the logits there may stand any number of
    `AttentionDecoder`s, of `keras.layers.RNN`, `GRU`, `LSTM` and
    `SimpleRNN`, of attentions to the source and, with
    `use_causal_mask=True`, to the target itself: `keras_attn.Attention` or
    `keras.layers.MultiHeadAttention`, `GroupQueryAttention`, `Attention` and
    `AdditiveAttention`; KerasHub's `TransformerDecoder`; causal convolutions;
    functional models of these. A layer whose `call` takes `start_index` is
    told the number of the position. For layers of your own that remember
    positions there is `stepper_for`. Every other layer must treat each target
    position alone. It is called as it is, with hypotheses where it expects
    positions.

    Args:
        model: A functional `keras.Model` with one output, the logits of
            shape `(batch, target, vocabulary)`. Its last input holds the
            target's token ids, shifted right by one; the others are the
            source.

    Raises:
        ValueError: If the model cannot be cut. The message names the layer
            that is in the way.

    Example:

    >>> source, target = keras.Input((None, 4)), keras.Input((None,))
    >>> hidden = keras_attn.AttentionDecoder(
    ...     keras.layers.GRUCell(8), keras_attn.BahdanauAttention(8))(
    ...     keras.layers.Embedding(10, 8)(target), source)
    >>> model = keras.Model([source, target], keras.layers.Dense(10)(hidden))
    >>> cut = keras_attn.Incremental(model)
    >>> encoded = cut.encode(np.ones((2, 5, 4), "float32"))
    >>> state = cut.start(encoded, beams=3)
    >>> logits, alignments, state = cut.step(
    ...     np.ones((2, 3), "int32"), state, encoded)
    >>> logits.shape, alignments.shape
    (TensorShape([2, 3, 10]), TensorShape([2, 3, 5]))
    """

    def __init__(self, model: keras.Model):
        _require_functional(model)
        refuse_quantized(layers_within(model))
        self.model = model
        self._comparison = self._compared = None
        follows = [False] * (len(model.inputs) - 1) + [True]
        self._path = Path(model.inputs, model.outputs, follows)
        if self._path.position_wise:
            raise ValueError(
                "The model has no `AttentionDecoder`, recurrent layer or "
                "attention between its last input, "
                f"'{model.inputs[-1].name}', and its output, so there is "
                "nothing to decode: no token depends on those before it. "
                f"Received there: {self.between}{self._unlike()}. The last "
                "input must hold the target's ids; what remembers tokens is an "
                "`AttentionDecoder`, a recurrent layer or self-attention with "
                "`use_causal_mask=True`."
            )
        if not self._path.border:
            raise ValueError(
                "The model's output depends on the target alone, its last "
                f"input, '{model.inputs[-1].name}'. Received the sources "
                f"{[x.name for x in model.inputs[:-1]]}, which must reach it: "
                "by attention, or as the first state of a decoder. On the way "
                f"to the output stand {self.between}."
            )

    def _unlike(self):
        """Names the classes that subclasses are not taken for."""
        return "".join(map(unlike_parent, self._path.operations))

    def encode(self, *sources) -> Encoded:
        """Runs the part of the model that does not depend on the target.

        Args:
            *sources: The model's inputs but the last, batch first.
        """
        refuse_quantized(layers_within(self.model))
        inputs = self.model.inputs[:-1]
        if len(sources) != len(inputs):
            raise ValueError(
                "`encode` takes the model's inputs but the last, "
                f"{[x.name for x in inputs]}. Received: {len(sources)} "
                "argument(s)."
            )
        for x, given in zip(inputs, sources, strict=True):
            if _is_text(given):
                raise ValueError(
                    f"`encode` takes arrays, '{x.name}' of {x.dtype}. "
                    f"Received: {given!r:.80}. Strings become ids by "
                    "`text.ids(strings)`; a `Translator` does so by itself."
                )
        return Encoded(self._path.prepare(list(sources)))

    def hoist(self, encoded: Encoded, compiled: bool = False) -> tuple:
        """Takes out of a loop of many steps what no step changes.

        Args:
            encoded: What `encode()` returned.
            compiled: Whether XLA compiles the loop.

        Returns:
            An `Incremental` whose steps compute the same with fewer
            products, and what it takes in the place of `encoded`. They are
            for the TensorFlow function that called this, and for these
            sources.
        """
        cut = copy.copy(self)
        cut._path, prepared = hoist(self._path, encoded.prepared, compiled)
        return cut, Encoded(prepared)

    def start(
        self, encoded: Encoded, beams: int = 1, max_length: int | None = None
    ) -> tuple:
        """Returns the decoding state before the first token.

        Args:
            encoded: What `encode()` returned.
            beams: Number of hypotheses a source.
            max_length: How many steps there may be; needed where a layer
                attends to the positions so far.

        Returns:
            A structure of tensors whose first two axes are batch and beams.
        """
        if isinstance(beams, int) and beams < 1:
            raise ValueError(
                "`beams` is the number of hypotheses a source, at least 1. "
                f"Received: beams={beams!r}"
            )
        batch = ops.shape(
            next(x for x in keras.tree.flatten(encoded) if ops.is_tensor(x))
        )[0]
        position = ()
        if self._path.uses_position:
            position = ops.zeros((batch, beams), dtype="int32")
        states = self._path.start(encoded.prepared, batch, beams, max_length)
        return State(position, states)

    def step(
        self, tokens, state: tuple, encoded: Encoded, apart: bool = False
    ) -> tuple:
        """Extends each hypothesis by one token.

        Args:
            tokens: Ids of the last tokens, of shape `(batch, beams)`.
            state: What `start()` or the last step returned.
            encoded: What `encode()` returned.
            apart: Whether hypotheses may stand at different positions, as
                those of several clients do. In a search all are at the same.

        Returns:
            Logits `(batch, beams, vocabulary)` of the next token, alignments
            `(batch, beams, source)` in float32 of the last attention to the
            source on the way to them (of an `AttentionDecoder`'s first one,
            of several heads their mean; `None` if there is none), and the
            new state.
        """
        if isinstance(state, Encoded) or not isinstance(encoded, Encoded):
            raise ValueError(
                "The order is `step(tokens, state, encoded)`: `state` comes "
                "from `start()` or the last step, `encoded` from `encode()`. "
                f"Received: state of type {type(state).__name__}, encoded of "
                f"type {type(encoded).__name__}."
            )
        _check_tokens(tokens, state)
        position, states = state
        number = None
        if self._path.uses_position:
            number = position
            if not apart:  # there may be no row
                number = ops.max(position, initial=0)
            position = position + 1
        (logits,), alignments, states = self._path.step(
            [tokens], encoded.prepared, states, number
        )
        return logits, alignments, State(position, states)

    def reorder(self, state: tuple, parents) -> tuple:
        """Returns the state of hypotheses that go on from others.

        Args:
            state: What `start()` or the last step returned.
            parents: Which hypothesis each goes on from, int32
                `(batch, beams)`.
        """
        position, states = state
        return State(
            take_beams(position, parents),
            self._path.reorder(states, parents),
        )

    def time_axes(self, state: tuple) -> tuple:
        """Returns the axis of past positions of each tensor of a state.

        A structure like the state, of integers, and `None` for a tensor that
        has no such axis.
        """
        position, states = state
        none = keras.tree.map_structure(lambda x: None, position)
        return State(none, self._path.time_axes(states))

    @property
    def between(self) -> str:
        """The layers between the target and the logits, as errors name them."""
        operations = [x.layer for x in self._path.steppers]
        names = [f"'{x.name}' ({type(x).__name__})" for x in operations]
        return ", ".join(names) or "no layer"

    @property
    def attends(self) -> bool:
        """Whether there is attention to the source, and so alignments."""
        return self._path.attends

    @property
    def models(self) -> tuple[keras.Model, ...]:
        """The model, as an `Ensemble` gives its own."""
        return (self.model,)

    @property
    def longest(self) -> int | None:
        """How many positions of a target the model knows, `None` for any."""
        return self._path.longest

    def source_mask(self, encoded: Encoded):
        """The mask of what the alignments of `step()` are over.

        Args:
            encoded: What `encode()` returned.

        Returns:
            Boolean tensor `(batch, source)`, `True` where the source is real,
            or `None` where all of it is or nothing attends to it.
        """
        return self._path.source_mask(encoded.prepared)

    def check(self, *inputs, length: int = 16) -> None:
        """Compares decoding step by step with the whole model.

        Three hypotheses are decoded for each source: the target given, made
        longer with tokens of its own, and two others of its tokens. They must
        get what the whole model gives for each, and each source what it gets
        alone. Checking again with other weights takes less time; where
        something else changed in a layer, call `forget()` first.

        Args:
            *inputs: All the model's inputs, the target's ids last; none of
                these is padding, over which a search never steps.
            length: How many tokens the targets have, if that is more than
                are given and the model knows so many positions.

        Raises:
            ValueError: If they differ. The message names the first layer
                whose output does.
        """
        arrays = [ops.convert_to_numpy(x) for x in inputs]
        if all(x.shape[0] is None for x in self.model.inputs):
            arrays = _several_rows(arrays)
        *sources, target = arrays
        given = target.shape[1]
        wanted = self._target_length(given, length)
        vocabulary = self.model.outputs[0].shape[-1]
        try:
            self._compare(sources, _hypotheses(target, wanted, vocabulary))
        except WholeFails:
            if wanted == given:
                raise
            # It may take no longer targets, and no search need make them.
            self._compare(sources, _hypotheses(target, given, vocabulary))

    def forget(self) -> None:
        """Has the next `check()` trace the model anew.

        A trace keeps what is no weight, such as attributes of layers.
        """
        self._comparison = self._compared = None

    def check_in_graph(self, *inputs) -> None:
        """Compares the whole model inside a graph and outside.

        Some layers of Keras give other numbers where sizes are unknown.

        Args:
            *inputs: All the model's inputs, as for `check()`.

        Raises:
            ValueError: If they differ. The message names the first layer
                whose output does.
        """
        other = first_wrong_in_graph(self.model, inputs)
        if other is not None:
            raise ValueError(
                "Whole targets cannot be scored by this model: "
                f"'{other.name}' ({type(other).__name__}) gives other numbers "
                "inside a graph of unknown sizes than outside. Decoding goes "
                "step by step and is right all the same. Put another layer in "
                "its place: a `Dense` needs no `TimeDistributed`."
            )

    def _compare(self, sources, targets):
        # Layers that are quantized or get a LoRA have other variables.
        variables = [id(x) for x in self.model.variables]
        given = variables, [x.tobytes() for x in (*sources, targets)]
        if self._compared != given:
            self._comparison = Comparison(self._path, sources, [targets])
            self._compared = given
        self._comparison.compare(self.model)

    def _target_length(self, given, wanted):
        """How many tokens targets have, of those given and those wanted."""
        fixed = self.model.inputs[-1].shape[1]
        if fixed is not None:
            return fixed
        longest = self._path.longest or wanted
        return max(given, min(wanted, longest))


def _several_rows(arrays):
    """At least three rows, of which no two sources are the same."""
    *sources, target = arrays
    rows = {tuple(x[i].tobytes() for x in sources) for i in range(len(target))}
    if len(rows) >= 3:
        return arrays
    random = np.random.default_rng(0)
    # The first source again, its positions in another order.
    found = []
    for x in arrays:
        more = x[:1].repeat(2, axis=0)
        if x.ndim > 1:
            more = random.permuted(more, axis=1)
        found.append(np.concatenate([x, more]))
    return found


def _hypotheses(target, length, vocabulary):
    """Three targets for each source, `(batch, length, 3)`."""
    random = np.random.default_rng(0)
    rows, given = target.shape
    # Tokens of each row, in another order for each hypothesis.
    picked = random.integers(given, size=(rows, length - given))
    more = np.take_along_axis(target, picked, axis=1)
    first = np.concatenate([target, more], axis=1)
    others = [random.permuted(first, axis=1) for _ in range(2)]
    if len(np.unique(target)) < 4:  # too few to tell an order
        others = [
            random.integers(min(1, vocabulary - 1), vocabulary, first.shape)
            for _ in range(2)
        ]
        others = [x.astype(target.dtype) for x in others]
    return np.stack([first, *others], axis=2)


def _is_text(x):
    dtype = getattr(x, "dtype", None) or np.asarray(x).dtype
    return "str" in str(dtype) or getattr(dtype, "kind", "") in ("U", "S")


def _check_tokens(tokens, state):
    """Refuses ids of another shape than the state's, where it is known."""
    leaves = [x for x in keras.tree.flatten(state) if ops.is_tensor(x)]
    shapes = [getattr(x, "shape", None) for x in (tokens, *leaves[:1])]
    if any(x is None or getattr(x, "rank", 2) is None for x in shapes):
        return
    shape, *of_state = (tuple(x) for x in shapes)
    wanted = of_state[0][:2] if of_state else (None, None)
    if len(shape) == 2 and all(
        None in sizes or sizes[0] == sizes[1]
        for sizes in zip(shape, wanted, strict=True)
    ):
        return
    raise ValueError(
        "`tokens` are ids of shape (batch, beams), as many as `start()` was "
        f"told of, here {wanted}. Received: tokens of shape {shape}. Of one "
        "hypothesis a source they are `tokens[:, None]`."
    )


def _require_functional(model):
    if not (
        isinstance(model, keras.Model)
        and hasattr(model, "inputs")
        and model.inputs
        and in_graph(model.outputs[0])
    ):
        raise ValueError(
            "A functional model is needed, `keras.Model(inputs, outputs)`: "
            "its graph shows what depends on the target. Received: "
            f"{model!r}."
        )
    if isinstance(model.input, dict):
        raise ValueError(
            "The model's inputs must be a list, the target's ids last. "
            f"Received a dict with the keys {list(model.input)}, which has "
            "no order. Build `keras.Model([source, target], logits)`; the "
            "weights are shared."
        )
    if len(model.inputs) < 2 or len(model.outputs) != 1:
        raise ValueError(
            "The model must have at least two inputs, the source and, last, "
            "the target's ids, and one output, the logits. Received: "
            f"{len(model.inputs)} input(s) "
            f"{[x.name for x in model.inputs]} and {len(model.outputs)} "
            "output(s)."
        )
