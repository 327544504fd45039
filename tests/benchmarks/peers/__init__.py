"""The libraries compared: one module each, one class `Peer` in each."""
