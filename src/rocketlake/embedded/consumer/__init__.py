"""Consumers of an embedded store: groups, queue assignment, prefetching, progress."""
