"""Makes and drops translators; prints the bytes that each of them leaves.

Run as a program, since other tests' garbage would be measured too.
"""

import gc
import pathlib
import resource

import keras_attn
from support import toys

FIRST, COUNT = 4, 12


def memory():
    """Returns the resident memory of this process in bytes."""
    pages = pathlib.Path("/proc/self/statm").read_text().split()[1]
    return int(pages) * resource.getpagesize()


def main():
    toy = toys.pre()
    before = 0
    for i in range(FIRST + COUNT):
        if i == FIRST:
            before = memory()
        made = keras_attn.Translator(
            toy.model, toy.source_text, toy.target_text, toy.search
        )
        made(toys.LINES)
        del made
        gc.collect()  # of cycles; else Python does so when it likes
    print((memory() - before) / COUNT)


if __name__ == "__main__":
    main()
