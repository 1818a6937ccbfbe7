"""From log to queues and index on many cores: parts of the log, their units and keys, and the seam.

1. The log is cut into parts (`parts`), at any place: an executor looks for the first record behind
   a cut by itself, and whoever puts the parts together checks that each begins where the one
   before it ended. A part that does not is walked again.
2. An executor runs the store's own dispatch code over a part (`blocks`), but for the last step:
   units are kept by queue, keys in the order of the log. They are staged in Arrow (`staging`).
3. The driver takes the parts in order as they come (`running`), and appends (`writing`).
"""
