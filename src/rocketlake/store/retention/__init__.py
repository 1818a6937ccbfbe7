"""Retention: which files of a store go, when, and what a full disk means for puts.

`rules` decide, from a time, a disk and options, and touch nothing. `disks` looks at the machine,
`service` deletes, `reasons` puts it into words.
"""
