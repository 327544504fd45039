"""The ids that every vocabulary begins with, and how they are written.

Losses and checks read them on every backend, so this imports nothing.
"""

PAD, START, END, UNKNOWN = range(4)
SPECIAL_TOKENS = ("<pad>", "<s>", "</s>", "<unk>")
