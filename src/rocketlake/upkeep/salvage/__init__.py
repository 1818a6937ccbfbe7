"""Salvage: records that a start cut off, or that lie in raw files, found and put again."""
