"""From the log to queues and index on many cores: parts of the log, their units and their keys.

1. The log is cut into parts anywhere (`parts`): an executor finds the first record behind a cut by
   itself, and `writer.adjoining_parts` checks that each part begins where the one before it ended.
   A part that does not is walked again.
2. An executor makes the units of a part by the store's own rule, and its keys (`unit_blocks`).
   They are staged in Arrow (`staging`).
3. The driver takes the parts in order as they come (`run`), and appends them (`writer`).
"""
