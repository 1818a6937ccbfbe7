"""Backup: a consistent copy of a store in use; later runs copy only what is new."""
