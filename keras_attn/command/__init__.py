"""Commands of `keras-attn`, which keras-attn-serving runs."""
