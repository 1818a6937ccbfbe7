"""JSON tables of a store: topics, consumer groups, their progress and their filters.

1. A table is read as the reference reads it: an absent or null member has its default, an unknown
   one is ignored, since later releases add some.
2. A member of the wrong type is refused; the message names the file and the member.
3. Names of topics and groups may hold any character; only `offsets` splits them.
4. `load` of `topics`, `groups`, `offsets` and `filters` reads a table once. A `Book` also changes
   and writes it, unknown members included.
"""
