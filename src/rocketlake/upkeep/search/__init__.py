"""Search: messages by a pattern, in raw windows of the log first."""
