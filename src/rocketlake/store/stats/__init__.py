"""Counters and timings of a running store."""
