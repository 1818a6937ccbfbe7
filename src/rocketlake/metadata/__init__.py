"""JSON tables of a store: what topics, groups and progress there are.

1. A table is read as the reference reads it: an absent or null member has its default, an unknown
   one is passed over, since later releases add some.
2. A member of the wrong type is refused, by a message that names the file and the member.
3. Names of topics and groups may hold anything; only `offsets` takes them apart.
4. `topics`, `groups`, `offsets` and `filters` read a table once. A `…_book` also changes it and
   writes it, with all that it passed over when it read it.
"""
