"""Weights of models that were made with TensorFlow Addons."""
