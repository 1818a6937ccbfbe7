"""Looking after a store directory: verify, repair, search, export, back up, salvage."""
