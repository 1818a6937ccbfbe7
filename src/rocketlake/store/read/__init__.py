"""Reads: messages of a queue as objects, columns or raw bytes, and queries by key and time."""
