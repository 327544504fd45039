"""Compares a model that was cut with the whole model, number by number."""
