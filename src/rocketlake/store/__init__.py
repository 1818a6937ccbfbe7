"""The message store."""
