"""Warms a translator up, says so, and decodes batches of many sizes.

Run as a program, whose log says what XLA compiles; see `compilations.py`.
"""

import sys

import keras_attn
from support import toys

if __name__ == "__main__":
    made = keras_attn.Translator(
        toys.greedy().model,
        toys.SOURCE,
        toys.TARGET,
        keras_attn.GreedySearch(max_length=6),
        jit_compile=keras_attn.XLASizes(rows=2, source=(5, 9)),
    )
    made.warm_up()
    sys.stderr.write("warmed up\n")
    sys.stderr.flush()
    for count in (1, 2, 3, 8):
        lines = toys.LINES[:count]
        made(lines)
        made(lines, prefixes=["AA"] * count)
        made(lines, options={"max_length": 3})
        made(lines, prefixes=["AA"] * count, options={"min_length": 2})
