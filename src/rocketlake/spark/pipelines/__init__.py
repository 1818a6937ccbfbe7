"""Spark Declarative Pipelines over a store: projects that are written, and run.

`shapes` finds the schema of JSON bodies in a sample, `sampling` takes the sample, `project` writes
the files from `templates`, `running` runs them with PySpark's own command.
"""
