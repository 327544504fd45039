"""A decoder's state before the first step."""

import keras
from keras import ops

from keras_attn import cells
from keras_attn.decoder import checks
from keras_attn.decoder import past
from keras_attn.decoder import widths
from keras_attn.decoder.state import DecoderState
from keras_attn.decoder.step import join


def first_state(decoder, source, initial_state, beams, max_length, batch):
    """What `AttentionDecoder.start()` returns, given the same."""
    if initial_state is None:
        if decoder.bridge is not None:
            checks.refuse_idle_bridge()
        if source.memories:
            batch = ops.shape(source.memories[0].keys)[0]
        states = cells.initial_state(decoder.cell, batch, decoder.compute_dtype)
    else:
        states = keras.tree.flatten(initial_state)
        if decoder.bridge is not None:
            states = decoder.bridge(join(states))
    states = keras.tree.flatten(states)
    checks.check_initial_state(decoder, [x.shape[-1] for x in states])
    cell = tuple(
        ops.repeat(
            ops.expand_dims(ops.cast(x, decoder.compute_dtype), 1), beams, 1
        )
        for x in states
    )
    batch = ops.shape(cell[0])[0]

    def zeros(width):
        return ops.zeros((batch, beams, width), dtype=decoder.compute_dtype)

    fed = context = own_past = ()
    if decoder.input_feeding:
        fed = zeros(widths.of_output(decoder, decoder.context_dim))
    if "context" in decoder.query:
        context = zeros(decoder.context_dim)
    if decoder.self_attention:
        if max_length is None:
            raise ValueError(
                "With `self_attention` the decoder keeps its past states "
                "and must know how many there may be. Received: "
                "max_length=None. Pass the longest length of an output."
            )
        own_past = past.empty(
            decoder.self_attention, cell[decoder.queried], max_length
        )
    histories = tuple(
        attention.initial_history(memory, beams)
        for attention, memory in zip(
            decoder.attentions, source.memories, strict=True
        )
    )
    return DecoderState(cell, histories, fed, context, own_past)
