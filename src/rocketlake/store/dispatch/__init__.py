"""Dispatch: from new records of the log to queue units, index entries and listeners."""
