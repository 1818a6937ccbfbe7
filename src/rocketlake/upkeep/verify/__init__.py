"""Verify: every record, unit, entry and table of a store against each other."""
