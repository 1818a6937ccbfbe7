"""Writes messages again: a selection of a store or an archive, into a store or another topic."""
