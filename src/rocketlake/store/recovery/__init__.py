"""Recovery: where the log of a stopped store ends, and what its queues and index lack."""
