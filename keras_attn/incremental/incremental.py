"""Cuts a trained functional model into `encode()` and `step()`.

The functional graph is the model, so nobody writes a second model for
inference. The layers that depend on the target input run a token at a time,
each by its own stepper. The other layers run once per source.
"""

import copy
from collections.abc import Sequence
from typing import Any
from typing import NamedTuple

import keras
import numpy as np
from keras import ops

from keras_attn import arguments
from keras_attn.backend import take_beams
from keras_attn.graph.causes import Causes
from keras_attn.incremental import buffers
from keras_attn.incremental.heads_at_once import HeadsAtOnce
from keras_attn.incremental.hoisting import hoist
from keras_attn.incremental.path import Path
from keras_attn.incremental.proof.comparison import Comparison
from keras_attn.incremental.refuse import NothingRemembered
from keras_attn.incremental.refuse import WholeFails
from keras_attn.incremental.refuse import refuse_quantized
from keras_attn.incremental.refuse import refuse_whole
from keras_attn.incremental.registry import unlike_parent
from keras_attn.incremental.vocabulary_subset import restrict_vocabulary
from keras_attn.keras_internals import in_graph
from keras_attn.keras_internals import layers_within

_MOST_RECOMPUTED = 32  # target tokens that are compared


class Encoded(NamedTuple):
    """The results that do not depend on the target, computed once per source.

    A structure of tensors, batch first, with `None` for masks that are not
    needed. Masks are tensors here, not attributes of tensors.
    """

    prepared: tuple  # each stepper's result of `prepare()`
    costs: Any = None  # (batch, vocabulary), added to the logits


class State(NamedTuple):
    """The state between two steps, `(batch, beams, ...)`."""

    position: object  # number of the next step, () if no stepper uses it
    states: tuple  # each stepper's state


class Incremental:
    """A functional encoder-decoder model, run a target token at a time.

    Between the target's ids and the logits there may be any number of these:

    - `AttentionDecoder`, `MarginalDecoder`, `keras.layers.RNN`, `GRU`, `LSTM`
      and `SimpleRNN`;
    - attention to the source, and with `use_causal_mask=True` to the target
      itself: `keras_attn.Attention` or `keras.layers.MultiHeadAttention`,
      `GroupQueryAttention`, `Attention` and `AdditiveAttention`;
    - KerasHub's `TransformerDecoder`, and the decoders of its BART, T5,
      Whisper and Moonshine;
    - causal convolutions;
    - functional models of these.

    A layer whose `call` takes `start_index` gets the number of the position.
    For your own layers that remember positions there is `stepper_for`. Every
    other layer must treat each target position alone. It is called without
    change, with hypotheses where it expects positions.

    Args:
        model: A functional `keras.Model` with one output, the logits of
            shape `(batch, target, vocabulary)`. Its last input holds the
            target's token ids, shifted right by one. The other inputs are
            the source.
        recompute: A layer or a list of layers of `model.layers`, which read
            their whole past again at each step; `True` for all layers that
            depend on the target, as one layer. This is slower, but runs any
            layer that does not look at later positions.

    Raises:
        ValueError: If the model cannot be cut. The message names the layer
            that prevents it.

    Example:
        >>> source, target = keras.Input((None, 4)), keras.Input((None,))
        >>> hidden = keras_attn.AttentionDecoder(
        ...     keras.layers.GRUCell(8), keras_attn.BahdanauAttention(8))(
        ...     keras.layers.Embedding(10, 8)(target), source)
        >>> model = keras.Model(
        ...     [source, target], keras.layers.Dense(10)(hidden))
        >>> cut = keras_attn.Incremental(model)
        >>> encoded = cut.encode(np.ones((2, 5, 4), "float32"))
        >>> state = cut.start(encoded, beams=3)
        >>> logits, alignments, state = cut.step(
        ...     np.ones((2, 3), "int32"), state, encoded)
        >>> logits.shape, alignments.shape
        (TensorShape([2, 3, 10]), TensorShape([2, 3, 5]))
    """

    def __init__(
        self,
        model: keras.Model,
        recompute: bool | keras.Layer | Sequence[keras.Layer] = False,
    ):
        _require_functional(model)
        refuse_quantized(layers_within(model))
        self.model = model
        self._comparison = self._compared = None
        follows = [False] * (len(model.inputs) - 1) + [True]
        self._recomputes = recompute is True
        self._path = Path(
            model.inputs, model.outputs, follows, _listed(recompute, model)
        )
        if self._path.position_wise:
            self._refuse_without_memory(self.between)
        if not self._path.border:
            raise ValueError(
                "The model's output must depend on the source, but it depends "
                "on the target alone, its last input "
                f"'{model.inputs[-1].name}'. Received: the sources "
                f"{[x.name for x in model.inputs[:-1]]}, and between target "
                f"and output {self.between}. Connect the source by attention, "
                "or as the first state of a decoder."
            )

    def _refuse_without_memory(self, between):
        raise NothingRemembered(
            "The model has no `AttentionDecoder`, recurrent layer or "
            "attention between its last input, "
            f"'{self.model.inputs[-1].name}', and its output, so there is "
            "nothing to decode: no token depends on the tokens before it. "
            f"Received: {between}{self._unlike()}. Make the "
            "target's ids the last input, or name it, `Translator(..., "
            "target=...)`, and put a layer that remembers "
            "tokens behind it: an `AttentionDecoder`, a recurrent layer "
            "or self-attention with `use_causal_mask=True`. If one of "
            "these layers remembers tokens by itself, write a "
            "`keras_attn.Stepper` for it."
        )

    def _unlike(self):
        """Names the parent classes whose steppers do not run subclasses."""
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
                "argument(s). Pass each as an argument of its own."
            )
        for x, given in zip(inputs, sources, strict=True):
            if isinstance(given, (list, tuple)) and not _is_text(given):
                raise ValueError(
                    f"`encode` takes arrays, here '{x.name}'. Received: a "
                    f"{type(given).__name__}. Pass `np.array(...)`, one batch "
                    "for each input."
                )
            if _is_text(given):
                raise ValueError(
                    f"`encode` takes arrays, here '{x.name}' of {x.dtype}. "
                    f"Received: {given!r:.80}. Convert strings by "
                    "`text.ids(strings)`; a `Translator` does so by itself."
                )
        return Encoded(self._path.prepare(list(sources)))

    def hoist(self, encoded: Encoded, compiled: bool = False) -> tuple:
        """Hoists constant products out of a loop of many steps.

        Args:
            encoded: Result of `encode()`.
            compiled: Whether XLA compiles the loop.

        Returns:
            An `Incremental` whose steps compute the same with fewer
            products, and its `Encoded`. Both are valid only in the
            TensorFlow function that called this, and for these sources.
        """
        cut = copy.copy(self)
        cut._path, prepared = hoist(self._path, encoded.prepared, compiled)
        return cut, encoded._replace(prepared=prepared)

    def restrict_vocabulary(self, encoded: Encoded, ids, costs) -> tuple:
        """Restricts the logits to some tokens.

        Args:
            encoded: Result of `encode()`.
            ids: Ids of the tokens that stay, `(columns,)`.
            costs: Numbers to add to their logits, float32 `(batch, columns)`.

        Returns:
            An `Incremental` whose steps return logits `(batch, beams,
            columns)`, float32, and its `Encoded`. Both are valid only in the
            TensorFlow function that called this, and for these sources.
        """
        cut = copy.copy(self)
        cut._path, prepared = restrict_vocabulary(
            self._path, encoded.prepared, ids
        )
        return cut, Encoded(prepared, costs)

    def start(
        self, encoded: Encoded, beams: int = 1, max_length: int | None = None
    ) -> tuple:
        """Returns the decoding state before the first token.

        Args:
            encoded: Result of `encode()`.
            beams: Number of hypotheses per source.
            max_length: The largest number of steps. Needed if a layer
                attends to the positions so far.

        Returns:
            A structure of tensors whose first two axes are batch and beams.
        """
        if isinstance(beams, int) and beams < 1:
            raise ValueError(
                "`beams` is the number of hypotheses per source, at least 1. "
                f"Received: beams={beams!r}. Pass 1 to decode greedily."
            )
        batch = self._path.batch(encoded.prepared)
        position = ()
        if self._path.uses_position:
            position = ops.zeros((batch, beams), dtype="int32")
        states = self._path.start(encoded.prepared, batch, beams, max_length)
        return State(position, states)

    def step(
        self,
        tokens,
        state: tuple,
        encoded: Encoded,
        per_row_position: bool = False,
        **former,
    ) -> tuple:
        """Extends each hypothesis by one token.

        Args:
            tokens: Ids of the last tokens, of shape `(batch, beams)`.
            state: Result of `start()`, or of the last step.
            encoded: Result of `encode()`.
            per_row_position: Whether hypotheses may be at different
                positions, as those of several clients are. In a search all
                are at the same position.

        Returns:
            Logits `(batch, beams, vocabulary)` of the next token, alignments
            `(batch, beams, source)` in float32, and the new state. The
            alignments are those of the last attention to the source, the
            mean of its heads; of an `AttentionDecoder`, those of its first
            attention; `None` without attention to the source.

        Raises:
            ValueError: If the arguments are in another order, or one has its
                name from before version 0.4. Outside a graph, if the state
                has no room for another step.
            TypeError: If there is no such argument.
        """
        if former:
            arguments.refuse_old_names(former, apart="per_row_position")
            raise TypeError(
                f"`step` has no such argument. Received: {sorted(former)}. It "
                "takes `tokens`, `state`, `encoded` and `per_row_position`."
            )
        if isinstance(state, Encoded) or not isinstance(encoded, Encoded):
            raise ValueError(
                "`step` takes a `state` from `start()` or the last step, and "
                "an `encoded` from `encode()`. Received: state of type "
                f"{type(state).__name__}, encoded of type "
                f"{type(encoded).__name__}. Call `step(tokens, state, "
                "encoded)`, in this order."
            )
        _check_tokens(tokens, state)
        position, states = state
        buffers.require_room(states)
        number = None
        if self._path.uses_position:
            number = position
            if not per_row_position:  # there may be no row
                number = ops.max(position, initial=0)
            position = position + 1
        (logits,), alignments, states = self._path.step(
            [tokens], encoded.prepared, states, number
        )
        if encoded.costs is not None:
            logits = ops.cast(logits, "float32") + encoded.costs[:, None]
        return logits, alignments, State(position, states)

    def reorder(self, state: tuple, parents) -> tuple:
        """Gathers the state of each hypothesis from its parent.

        Args:
            state: Result of `start()`, or of the last step.
            parents: Index of each hypothesis's parent, int32
                `(batch, beams)`.
        """
        position, states = state
        return State(
            take_beams(position, parents),
            self._path.reorder(states, parents),
        )

    def time_axes(self, state: tuple) -> tuple:
        """Returns the axis of past positions of each tensor of a state.

        The result is a structure like the state, with an integer for each
        tensor, or `None` for a tensor without such an axis.
        """
        position, states = state
        none = keras.tree.map_structure(lambda x: None, position)
        return State(none, self._path.time_axes(states))

    def heads_at_once(self, heads: Sequence[tuple[str, int]]) -> HeadsAtOnce:
        """Returns a runner of whole targets that keeps the weights of heads.

        Args:
            heads: Pairs of the name of a layer that attends to the source,
                and the number of one of its heads.

        Raises:
            ValueError: If there is no such layer or head.
        """
        return HeadsAtOnce(self._path, heads)

    @property
    def between(self) -> str:
        """The layers between target and logits, as errors name them."""
        operations = self._path.operations
        names = [f"'{x.name}' ({type(x).__name__})" for x in operations]
        return ", ".join(names) or "no layer"

    @property
    def attends(self) -> bool:
        """Whether there is attention to the source, and so alignments."""
        return self._path.attends

    @property
    def rows_leave(self) -> bool:
        """Whether rows may leave a batch between steps, for all steppers."""
        return self._path.rows_leave

    @property
    def slow_alone(self) -> bool:
        """Whether XLA runs one hypothesis slower than two."""
        return self._path.slow_alone

    @property
    def models(self) -> tuple[keras.Model, ...]:
        """The model in a tuple, as an `Ensemble` returns its models."""
        return (self.model,)

    @property
    def longest(self) -> int | None:
        """The longest target that the model takes, `None` for any length."""
        return self._path.longest

    def source_mask(self, encoded: Encoded):
        """Returns the mask of the source positions of the alignments.

        Args:
            encoded: Result of `encode()`.

        Returns:
            Boolean tensor `(batch, source)`, `True` where the source is real;
            `None` if all of it is real, or if nothing attends to it.
        """
        return self._path.source_mask(encoded.prepared)

    def check(self, *inputs, length: int = 16) -> None:
        """Compares decoding step by step with the whole model.

        Three hypotheses are decoded for each source: the given target, extended
        with its own tokens, and two shuffles of it. The steps must compute the
        same as the whole model for each hypothesis. Each source must get the
        same results alone as with other sources. Checking again with other
        weights takes less time. If something else changed in a layer, call
        `forget()` first.

        Args:
            *inputs: All the model's inputs, the target's ids last. The ids
                must hold no padding, because a search never decodes any.
            length: Number of tokens to extend the targets to, at most the
                number of positions that the model knows.

        Raises:
            ValueError: If the results differ. The message names the first
                layer whose output differs.
        """
        arrays = [ops.convert_to_numpy(x) for x in inputs]
        _require_batch(self.model, arrays)
        if all(x.shape[0] is None for x in self.model.inputs):
            arrays = _several_rows(arrays)
        *sources, target = arrays
        if self._recomputes:  # which takes long for a long target
            self._require_runs(sources, target)
            target = target[:, :_MOST_RECOMPUTED]
            self._require_memory(sources, target)
        given = target.shape[1]
        wanted = self._target_length(given, length)
        vocabulary = self.model.outputs[0].shape[-1]
        try:
            self._compare(sources, _hypotheses(target, wanted, vocabulary))
        except WholeFails:
            if wanted == given:
                raise
            # The model may refuse longer targets, which a search need not
            # reach.
            self._compare(sources, _hypotheses(target, given, vocabulary))

    def forget(self) -> None:
        """Makes the next `check()` trace the model anew.

        A trace fixes everything except the weights, such as attributes of
        layers.
        """
        self._comparison = self._compared = None

    def check_in_graph(self, *inputs) -> None:
        """Compares the whole model inside a graph with the model outside.

        Some of Keras's layers compute different numbers if sizes are unknown.

        Args:
            *inputs: All the model's inputs, as for `check()`.

        Raises:
            ValueError: If the results differ. The message names the first
                layer whose output differs.
        """
        other = Causes(self.model, inputs).only_in_graph()
        if other is not None:
            raise ValueError(
                "To score whole targets, a model must compute the same inside "
                "a graph of unknown sizes as outside. Received: a model in "
                f"which '{other.name}' ({type(other).__name__}) gives other "
                f"numbers inside{self._path.rounding.advice}. Replace this "
                "layer: a `Dense`, for example, needs no `TimeDistributed`. "
                "Decoding step by step is correct without a change."
            )

    def _require_runs(self, sources, target):
        """Refuses a model that does not run on a target as long as this."""
        try:
            self.model([*sources, target], training=False)
        except Exception as error:  # any layer may raise anything
            refuse_whole(self.model, target.shape[1], error)

    def _require_memory(self, sources, target):
        """Refuses a model in which the first token changes no later one."""
        other = target.copy()
        other[:, 0] = target[::-1, -1]
        one, two = (
            ops.convert_to_numpy(
                ops.cast(self.model([*sources, x], training=False), "float32")
            )
            for x in (target, other)
        )
        changed = (target[:, 0] != other[:, 0]).any() and target.shape[1] > 1
        if changed and np.array_equal(one[:, 1:], two[:, 1:]):
            self._refuse_without_memory(self.between)

    def _compare(self, sources, targets):
        # Quantizing a layer or enabling LoRA changes its variables.
        variables = [id(x) for x in self.model.variables]
        given = variables, [x.tobytes() for x in (*sources, targets)]
        if self._compared != given:
            self._comparison = Comparison(self._path, sources, [targets])
            self._compared = given
        self._comparison.compare(self.model)

    def _target_length(self, given, wanted):
        """Returns the number of tokens of the targets to compare."""
        fixed = self.model.inputs[-1].shape[1]
        if fixed is not None:
            return fixed
        longest = self._path.longest or wanted
        return max(given, min(wanted, longest))


def _listed(recompute, model):
    """Returns `recompute` as `True` or a list of layers of the model."""
    if recompute is True:
        return True
    found = recompute or ()
    found = [found] if isinstance(found, keras.Layer) else list(found)
    others = [x for x in found if not any(x is y for y in model.layers)]
    if others:
        names = ", ".join(
            f"'{x.name}'" if isinstance(x, keras.Layer) else repr(x)
            for x in others
        )
        raise ValueError(
            "`recompute` takes layers of `model.layers`. Received: "
            f"{names}. For a layer inside a nested model pass the nested "
            "model."
        )
    return found


def _require_batch(model, arrays):
    """Refuses arrays for `check()` that are no batch of the model's inputs."""
    names = [x.name for x in model.inputs]
    shapes = [x.shape for x in arrays]
    rows = {shape[:1] for shape in shapes}
    length = arrays[-1].shape[1:2] if arrays else ()
    longest = model.inputs[-1].shape[1]
    if (
        len(arrays) != len(names)
        or len(rows) != 1
        or (0,) in rows
        or length == (0,)
        or (longest and length > (longest,))
    ):
        raise ValueError(
            f"`check` takes a batch for each input of the model, {names}, with "
            "the same number of rows, and at least one target position"
            + (f", at most {longest}" if longest else "")
            + f". Received: arrays of shape {shapes}. Pass some rows of the "
            "data."
        )


def _several_rows(arrays):
    """Returns the arrays with at least three rows, with different sources."""
    *sources, target = arrays
    rows = {tuple(x[i].tobytes() for x in sources) for i in range(len(target))}
    if len(rows) >= 3:
        return arrays
    random = np.random.default_rng(0)
    # Adds the first source twice more, with its positions shuffled.
    found = []
    for x in arrays:
        more = x[:1].repeat(2, axis=0)
        if x.ndim > 1:
            more = random.permuted(more, axis=1)
        found.append(np.concatenate([x, more]))
    return found


def _hypotheses(target, length, vocabulary):
    """Returns three targets for each source, `(batch, length, 3)`."""
    random = np.random.default_rng(0)
    rows, given = target.shape
    # Extends each row by its own tokens, then shuffles it for the others.
    picked = random.integers(given, size=(rows, length - given))
    more = np.take_along_axis(target, picked, axis=1)
    first = np.concatenate([target, more], axis=1)
    others = [random.permuted(first, axis=1) for _ in range(2)]
    if len(np.unique(target)) < 4:  # too few tokens for shuffles to differ
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
    """Checks the shape of ids against the state's, if both are known."""
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
        "`tokens` are ids of shape (batch, beams), with the sizes of the "
        f"state from `start()`, here {wanted}. Received: tokens of shape "
        f"{shape}. With one hypothesis per source pass `tokens[:, None]`."
    )


def _require_functional(model):
    if not (
        isinstance(model, keras.Model)
        and hasattr(model, "inputs")
        and model.inputs
        and in_graph(model.outputs[0])
    ):
        raise ValueError(
            "A functional model is needed, because its graph shows what "
            f"depends on the target. Received: {model!r}. Build it by "
            "`keras.Model(inputs, outputs)`."
        )
    if isinstance(model.input, dict):
        raise ValueError(
            "The model's inputs must be a list, the target's ids last. "
            f"Received: a dict with the keys {list(model.input)}, which has "
            "no order. Build `keras.Model([source, target], logits)`, which "
            "shares the weights; for an encoder-decoder of KerasHub "
            "`Translator.from_keras_hub(model)` does so. A language model "
            "without an encoder, such as KerasHub's `CausalLM`s, is not "
            "supported: it has no source. Use its own `generate`."
        )
    if isinstance(model.output, dict) and len(model.outputs) == 1:
        raise ValueError(
            "The model's output must be a tensor, the logits. Received: a "
            f"dict with the key {list(model.output)}. Build "
            "`keras.Model(model.inputs, model.outputs)`, which shares the "
            "weights."
        )
    if len(model.inputs) < 2 or len(model.outputs) != 1:
        raise ValueError(
            "The model must have at least two inputs, the source and, last, "
            "the target's ids, and one output, the logits. Received: "
            f"{len(model.inputs)} input(s) "
            f"{[x.name for x in model.inputs]} and {len(model.outputs)} "
            "output(s). Build `keras.Model([source, target], logits)`."
        )
