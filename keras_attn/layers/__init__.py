"""Layers, scores and alignments: what you put into a model."""
