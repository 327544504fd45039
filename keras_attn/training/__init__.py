"""Training: batches, losses, metrics, schedules and callbacks."""
