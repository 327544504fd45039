"""What trains a model and measures it: batches, losses, metrics, callbacks."""
