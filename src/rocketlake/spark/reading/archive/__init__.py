"""Archived messages as part of a table: files, planning, the boundary to the live store."""
