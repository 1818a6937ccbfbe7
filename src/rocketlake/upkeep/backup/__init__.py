"""Backup: a consistent copy of a store in use, the second time only what is new."""
