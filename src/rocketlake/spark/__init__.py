"""The data pipeline on Spark: a topic is a table.

`source` is the door for Spark; `jobs` are functions over whole stores. Executors read through
`store.offline` and `format` alone; only the driver opens a store for writing, by `embedded`.
"""
