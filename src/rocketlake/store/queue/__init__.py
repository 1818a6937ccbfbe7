"""Consume queues: for each queue of a topic, fixed-size units that point into the log."""
