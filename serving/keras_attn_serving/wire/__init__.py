"""What goes over the wire: messages and JSON, written, read and carried."""
