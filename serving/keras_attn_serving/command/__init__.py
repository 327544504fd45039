"""The commands: `keras-attn query`, `keras-attn serve` and their flags."""
