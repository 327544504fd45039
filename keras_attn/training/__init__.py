"""Training and its measures: batches, losses, metrics, callbacks."""
