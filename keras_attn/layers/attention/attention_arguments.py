"""Checks of an attention's arguments, with their error messages."""

from keras_attn import arguments


def require_instance(value, kind, name, example):
    if not isinstance(value, kind):
        raise ValueError(
            f"`{name}` must be a `{kind.__name__}` instance. Received: "
            f"{name}={value!r}. Pass for example `{name}={example}`."
        )
    return value


def check_parts(score, alignment):
    """Refuses a score or an alignment whose methods do not fit together."""
    score.require_call()
    alignment.require_call()
    if score.writes("initial_carry") and not score.takes("history"):
        raise ValueError(
            "A score with its own state reads it as `history.carried`, "
            f"so `call` must name `history`. Received: "
            f"{type(score).__name__}, which writes `initial_carry()` but "
            "whose `call` does not name it. Write `call(self, query, keys, "
            "history)`, or remove `initial_carry()`."
        )


def check_scores(score, scores, query, keys):
    """Checks the static shape of the scores of queries and keys."""
    wanted = "batch", query.shape[1], keys.shape[1]
    if not _may_be(scores.shape, wanted):
        raise ValueError(
            f"`{type(score).__name__}.call` must return a score for each pair "
            "of query and key, a tensor of shape (batch, target, source), "
            f"here {_sizes(wanted)}. Received: a tensor of shape "
            f"{_sizes(scores.shape)}, for queries of shape "
            f"{_sizes(query.shape)} and keys of shape {_sizes(keys.shape)}. "
            "For example, a dot product returns "
            "`keras.ops.matmul(query, keras.ops.swapaxes(keys, 1, 2))`."
        )


def check_weights(alignment, weights, scores):
    """Checks the static shape of an alignment's weights."""
    if not _may_be(weights.shape, scores.shape):
        raise ValueError(
            f"`{type(alignment).__name__}.call` must return a weight for each "
            f"score, a tensor of shape {_sizes(scores.shape)}. Received: a "
            f"tensor of shape {_sizes(weights.shape)}. Compute the weights "
            "along the last axis, as `keras.ops.softmax(scores)` does."
        )


def _may_be(shape, wanted):
    """Whether a tensor may have the wanted shape, without broadcasting.

    Does not compare batch sizes, because one query may attend to many sources.
    """
    if getattr(shape, "rank", 3) is None:  # TensorFlow knows nothing
        return True
    return len(shape) == len(wanted) and all(
        size in (other, None) or (other is None and size != 1)
        for size, other in zip(shape[1:], wanted[1:], strict=True)
    )


def _sizes(shape):
    return f"({', '.join(map(str, shape))})"


def check_heads(num_heads, head_dim, value_dim):
    arguments.positive(num_heads, "num_heads")
    for name, size in {"head_dim": head_dim, "value_dim": value_dim}.items():
        if size is not None:
            arguments.positive(size, name)
    if num_heads == 1 and head_dim is not None:
        raise ValueError(
            "With one head nothing is split, so `head_dim` would have no "
            f"effect. Received: num_heads=1, head_dim={head_dim!r}. Pass for "
            "example `num_heads=8` as well, or leave `head_dim` out."
        )


def check_dropout(dropout, seed):
    if not 0 <= dropout < 1:
        raise ValueError(
            "`dropout` is the share of weights to drop, at least 0 and "
            f"below 1. Received: dropout={dropout!r}. Pass for example "
            "`dropout=0.1`."
        )
    if seed is not None and not isinstance(seed, int):
        raise ValueError(
            "`seed` must be an integer, or `None` for a new one. Received: "
            f"seed={seed!r}. Pass for example `seed=1`."
        )
    if seed is not None and not dropout:
        raise ValueError(
            "`seed` seeds the dropout, and there is none. Received: "
            f"seed={seed!r}, dropout={dropout!r}. Pass for example "
            "`dropout=0.1`, or leave `seed` out. An alignment that draws at "
            "random takes a seed of its own."
        )


def check_regularizer(regularizer):
    if regularizer is not None and not callable(regularizer):
        raise ValueError(
            "`regularizer` must be a function of the alignments and "
            "their masks. Received: "
            f"regularizer={regularizer!r}. Pass for example "
            "`keras_attn.CoverageLoss(1.0)`."
        )


def check_shapes(**shapes):
    for name, shape in shapes.items():
        if len(shape) != 3:
            raise ValueError(
                f"`{name}` must have three axes, (batch, length, dim). "
                f"Received: {name}_shape={shape}. Turn a single vector per "
                "row into a sequence of length 1 with "
                "`keras.ops.expand_dims(x, 1)`."
            )


def check_call(attention, args, given):
    """Checks that the arguments of a call fit each other."""
    bound = arguments.bind(
        attention, args, given, "attention(query, value, value_mask=mask)"
    )
    query, value, key = (bound.get(x) for x in ("query", "value", "key"))
    if query is None or value is None:
        missing = "query" if query is None else "value"
        raise ValueError(
            f"`{type(attention).__name__}` needs a query and a value to "
            f"attend to. Received: no {missing}. Self-attention is "
            "`attention(x, x, use_causal_mask=True)`."
        )
    arguments.check_batches(
        {"query": query, "value": value, "key": key}, broadcasts=True
    )
    shapes = [arguments.shape_of(x) for x in (value, key)]
    lengths = {x[1] for x in shapes if x and len(x) == 3} - {None}
    if len(lengths) > 1:
        raise ValueError(
            "Each value has one key, so `key` and `value` must have the same "
            f"length. Received: value of shape {shapes[0]}, key of shape "
            f"{shapes[1]}. If the values are their own keys, leave `key` out."
        )
    for name, of in {"query": query, "value": value, "key": key}.items():
        of = value if of is None else of  # a key that was left out
        arguments.check_mask(
            f"{name}_mask", bound.get(f"{name}_mask"), name, of, broadcasts=True
        )


def check_flags(alignment, return_attention_scores, return_samples):
    if return_attention_scores not in (False, True, "heads"):
        raise ValueError(
            "`return_attention_scores` must be False, True or "
            '"heads". Received: return_attention_scores='
            f"{return_attention_scores!r}. True returns the mean of the "
            'heads, "heads" the weights of each.'
        )
    if return_samples and not alignment.samples:
        raise ValueError(
            "Only an alignment that draws positions has samples to "
            f"return. Received: return_samples=True with "
            f"{type(alignment).__name__}. Use `ReinforceAlignment()`, or "
            "leave `return_samples` out."
        )


def width_of_a_head(query_dim, num_heads):
    if query_dim % num_heads:
        raise ValueError(
            "The width of the queries must be divisible by the number of "
            f"heads. Received: query_dim={query_dim}, num_heads={num_heads}. "
            "Pass `head_dim`, the width of each head."
        )
    return query_dim // num_heads
