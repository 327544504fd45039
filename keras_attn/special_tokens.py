"""The special tokens that every vocabulary begins with: ids and strings.

Losses and checks use them on every backend, so this module imports nothing.
"""

PAD, START, END, UNKNOWN = range(4)
SPECIAL_TOKENS = ("<pad>", "<s>", "</s>", "<unk>")
