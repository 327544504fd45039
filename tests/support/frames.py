"""Counts the package's frames between a call and the innermost part of it.

Run it to see them: `python tests/support/frames.py`.
"""

import pathlib
import sys
import traceback

import keras
from keras import layers

import keras_attn

_PACKAGE = pathlib.Path(keras_attn.__file__).parent


class Watched(keras_attn.AdditiveScore):
    """A score that keeps the shallowest stack on which it was called."""

    frames = None

    def call(self, query, keys):
        found = [
            frame
            for frame in traceback.extract_stack()
            if _PACKAGE in pathlib.Path(frame.filename).parents
        ]
        if self.frames is None or len(found) < len(self.frames):
            self.frames = found
        return super().call(query, keys)


def frames_of_a_greedy_step():
    """Returns the package's frames from `Translator.__call__` to the score.

    The score's own call is not among them, as it is not the package's; it
    counts as one more frame, in one more file.
    """
    lines = ["a b", "b a"]
    text = keras_attn.Text.from_lines(lines, split="whitespace")
    score = Watched(4)
    source = keras.Input((None,), dtype="int32")
    target = keras.Input((None,), dtype="int32")
    hidden = keras_attn.AttentionDecoder(
        layers.GRUCell(4), keras_attn.Attention(score)
    )(
        layers.Embedding(text.size, 4)(target),
        layers.Embedding(text.size, 4, mask_zero=True)(source),
    )
    model = keras.Model([source, target], layers.Dense(text.size)(hidden))
    translator = keras_attn.Translator(
        model, text, text, keras_attn.GreedySearch(max_length=3)
    )
    score.frames = None
    translator(lines)
    return score.frames


if __name__ == "__main__":
    frames = frames_of_a_greedy_step()
    for frame in frames:
        path = pathlib.Path(frame.filename).relative_to(_PACKAGE)
        sys.stdout.write(f"{path}:{frame.lineno} {frame.name}\n")
    files = {frame.filename for frame in frames}
    sys.stdout.write(
        f"{len(frames) + 1} frames in {len(files) + 1} files, "
        "with the score's own\n"
    )
