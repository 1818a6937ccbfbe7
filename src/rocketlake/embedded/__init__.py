"""The store as a Python program uses it: one object, one process."""
