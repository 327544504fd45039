"""Models from elsewhere: KerasHub, TensorFlow Addons."""
