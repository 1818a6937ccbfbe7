"""Salvage: records that a start cut off, or that are in raw files: listed, and put again."""
