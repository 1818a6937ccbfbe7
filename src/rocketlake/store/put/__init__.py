"""Puts: checks, append, flush and the receipt of a message on its way into the log."""
