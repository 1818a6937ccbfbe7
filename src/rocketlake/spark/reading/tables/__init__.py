"""Every stage of a store as a table: log, queue units, index entries, progress, checkpoint."""
