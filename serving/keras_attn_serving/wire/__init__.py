"""Messages and JSON of the wire: written, read and carried."""
