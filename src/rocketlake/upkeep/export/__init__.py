"""Export: messages as Parquet, JSON lines or CSV."""
