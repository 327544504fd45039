"""Checks of a decoder's arguments, with their error messages."""

import keras
from keras import layers

from keras_attn import arguments
from keras_attn.layers import cells
from keras_attn.layers.attention import Attention


def attentions_of(attention):
    """Returns the attentions of an argument as a tuple."""
    if attention is None:
        return ()
    if not isinstance(attention, (list, tuple)):
        attention = [attention]
    if not attention:
        raise ValueError(
            "A list of attentions must hold at least one. Received: "
            "attention=[]. Pass None to decode without attention."
        )
    for one in attention:
        require_attention("attention", one)
    return tuple(attention)


def require_growing(attention):
    """Checks that an attention can read a past that grows at every step."""
    require_attention("self_attention", attention)
    if not attention.source_may_grow:
        raise ValueError(
            "`self_attention` reads states whose number grows at every step, "
            "so its score and alignment must not need past alignments or "
            "positions. "
            f"Received: {attention.parts_named}. Use for example "
            "`ScaledDotAttention()`."
        )


def require_context_alone(regularizer, alignment):
    """Refuses a regularizer or samples, which the decoder would ignore."""
    if regularizer is not None or alignment.samples:
        raise ValueError(
            "The decoder uses only the context of its `self_attention`, so "
            "a regularizer or samples would have no effect. Received: "
            f"{type(alignment).__name__} with regularizer={regularizer!r}. "
            "Pass them to the attention that reads the memory."
        )


def require_attention(name, attention):
    if not isinstance(attention, Attention):
        raise ValueError(
            f"`{name}` must be a `keras_attn.Attention`. Received: "
            f"{attention!r}. Pass for example `BahdanauAttention(256)`."
        )


def require_cell(cell):
    fits = callable(cell) and hasattr(cell, "state_size")
    if not fits or isinstance(cell, layers.RNN):
        raise ValueError(
            "`cell` must be a Keras RNN cell, with `call` and `state_size`, "
            f"or a list of such cells. Received: {cell!r}. Pass for example "
            "`keras.layers.GRUCell(256)`; layers such as `keras.layers.GRU` "
            "run over time by themselves and do not fit."
        )


def require_one_of(name, value, choices):
    if value not in choices:
        raise ValueError(
            f"`{name}` must be one of {', '.join(map(repr, choices))}. "
            f"Received: {name}={value!r}. Pass for example "
            f"`{name}={choices[0]!r}`."
        )


def require_names(name, value):
    if not isinstance(value, (str, list, tuple)):
        raise ValueError(
            f"`{name}` must be a string or a tuple of strings. Received: "
            f'{name}={value!r}. Pass for example `{name}="state"`.'
        )


def check_input_feeding(order, input_feeding):
    if order == "pre" and input_feeding is not None:
        raise ValueError(
            'In the order "pre" the context enters the cell, so '
            "`input_feeding` would have no effect. Received: "
            f"input_feeding={input_feeding!r}. Leave it out, or pass "
            '`order="post"`.'
        )


def check_stack(attend, cell):
    if attend == "bottom" and len(cells.stacked(cell)) < 2:
        raise ValueError(
            'With `attend="bottom"` the decoder needs a stack of cells. '
            f"Received: attend='bottom' with the single cell {cell!r}. "
            "Pass a list of cells."
        )


def check_plain(order, emit, query, attend):
    """Refuses arguments that have an effect only with attention."""
    given = order, emit, query, attend
    if given != ("pre", "attentional", ("state",), "top"):
        raise ValueError(
            "Without attention the decoder emits the cell's output, so "
            "`order`, `emit`, `query` and `attend` would have no effect. "
            f"Received: order={order!r}, emit={emit!r}, query={query!r}, "
            f"attend={attend!r}. Leave them out, or pass an attention."
        )


def check_own_step(unroll, drops, return_samples):
    """Refuses dropout and samples that a subclass's `step` does not handle."""
    if drops and not unroll.trains:
        raise ValueError(
            "In training `step` needs the random draws, for dropout and "
            "samples. Received: a subclass whose `step` takes neither "
            "`draws` nor `training`, or only one. Define `step(self, inputs, "
            "state, "
            "source, draws=(), training=False)` and pass both to "
            "`super().step`."
        )
    if return_samples:
        raise ValueError(
            "`step` returns no samples. Received: return_samples=True with a "
            "subclass that overrides `step`. Leave `return_samples` out."
        )


def check_call(decoder, args, given):
    """Checks that the arguments of a call fit each other."""
    bound = arguments.bind(
        decoder, args, given, "decoder(target, memory, initial_state=state)"
    )
    inputs = bound.get("inputs")
    if inputs is None:
        raise ValueError(
            "An `AttentionDecoder` needs the embedded target. Received: no "
            "inputs. Call `decoder(target, memory)`."
        )
    tensors = {"inputs": inputs}
    for name in ("memory", "initial_state", "condition"):
        parts = keras.tree.flatten(bound.get(name))
        tensors[name] = parts[0] if len(parts) == 1 else None
        if len(parts) > 1:
            tensors |= {f"{name}[{i}]": x for i, x in enumerate(parts)}
    arguments.check_batches(tensors)
    for name, width in {"condition": "dim", "initial_state": "width"}.items():
        for x in keras.tree.flatten(bound.get(name)):
            shape = arguments.shape_of(x)
            if shape is not None and len(shape) != 2:
                raise ValueError(
                    f"`{name}` must have one vector per row, (batch, "
                    f"{width}). Received: {name} of shape {shape}. An RNN "
                    "returns its last state with `return_state=True`."
                )
    arguments.check_mask(
        "inputs_mask", bound.get("inputs_mask"), "inputs", inputs
    )
    memory, mask = bound.get("memory"), bound.get("memory_mask")
    if not isinstance(memory, (list, tuple)):
        memory, mask = [memory], [mask]
    if isinstance(mask, (list, tuple)):
        for x, of in zip(mask, memory, strict=False):
            arguments.check_mask("memory_mask", x, "memory", of)


def check_flags(attentions, return_attention_scores, return_samples):
    if return_attention_scores and not attentions:
        raise ValueError(
            "Without attention there are no scores to return. Received: "
            "return_attention_scores=True. Leave it out, or build the decoder "
            "with an `attention`."
        )
    if return_attention_scores not in (False, True):
        raise ValueError(
            "A decoder returns the mean of several heads, so "
            "`return_attention_scores` must be False or True. Received: "
            f"return_attention_scores={return_attention_scores!r}. Call the "
            "attention as a layer to get the weights of each head."
        )
    if return_samples and not any(x.alignment.samples for x in attentions):
        raise ValueError(
            "Only an alignment that draws positions has samples to "
            "return. Received: return_samples=True with "
            f"{[type(x.alignment).__name__ for x in attentions]}. "
            "Use `ReinforceAlignment()`."
        )


def check_condition(query, condition):
    if (condition is not None) != ("condition" in query):
        raise ValueError(
            "`condition` is needed if and only if the query names it. "
            f"Received: query={query} and "
            f"{'a' if condition is not None else 'no'} condition. Pass "
            'for example `query=("state", "condition")` and '
            "`decoder(..., condition=language)`."
        )


def check_initial_state(sizes, widths):
    if widths != sizes:
        raise ValueError(
            f"The cell has {len(sizes)} state(s), of widths {sizes}. "
            "`initial_state`, or the bridge, must give these states in this "
            f"order. Received: states of widths {widths}. Pass "
            '`bridge="dense"` to make states of any width fit; an LSTM needs '
            "`[h, c]`."
        )


def refuse_idle_bridge():
    raise ValueError(
        "`bridge` makes the first states from `initial_state`. Received: "
        "no initial_state. Pass the encoder's last states, or leave the "
        "bridge out to start with the cell's own states, usually zeros."
    )


def check_shapes(inputs_shape, memory_shapes):
    for name, shape in [
        ("inputs", inputs_shape),
        *(("memory", shape) for shape in memory_shapes),
    ]:
        if len(shape) != 3:
            raise ValueError(
                f"`{name}` must have three axes, (batch, length, dim). "
                f"Received: {name}_shape={shape}. Embed token ids with an "
                "`Embedding` first; turn a single vector per row into a "
                "sequence of length 1 with `keras.ops.expand_dims(x, 1)`."
            )
