"""Repair: what the log can give back is built beside, and swapped in."""
