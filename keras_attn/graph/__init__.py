"""Functional models as graphs of calls, and how exactly two runs agree."""
