"""The index: hash files that find records by key, and their loading and catch-up."""
