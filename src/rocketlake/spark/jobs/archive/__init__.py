"""Archives topics into Parquet, or a table of another format, each message once.

`plan` works out what is new, `tasks` runs on executors, `archive_dir` changes the archive in safe
steps, `running` joins them; `tables` is for formats that Spark writes itself.
"""
