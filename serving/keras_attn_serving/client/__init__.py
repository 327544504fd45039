"""Clients: texts in, texts and arrays out, by gRPC or REST."""
