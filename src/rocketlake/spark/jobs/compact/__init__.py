"""Keeps the newest message of each key of a topic, in a new store or a table."""
