"""Encoder-decoders of Hugging Face, read from a directory.

`Translator.from_hugging_face` uses it. Nothing is downloaded, and neither
transformers nor PyTorch is needed.
"""
