"""Functional models as graphs of calls, and comparisons of their runs."""
