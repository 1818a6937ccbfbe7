"""The commit log: one append-only sequence of records in fixed-size files."""
