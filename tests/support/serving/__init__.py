"""Helpers of the serving distribution's tests."""
