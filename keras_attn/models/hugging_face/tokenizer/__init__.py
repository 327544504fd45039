"""The tokenizers: their files as vocabularies and splitters."""
