"""What is added to Spark's optimizer: column pruning, which Python data sources lack."""
