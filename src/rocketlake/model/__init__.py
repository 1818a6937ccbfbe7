"""Values of the domain; no I/O, no threads."""
