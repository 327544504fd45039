"""Models from elsewhere: Hugging Face, KerasHub, TensorFlow Addons."""
