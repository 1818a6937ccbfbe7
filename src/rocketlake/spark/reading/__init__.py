"""Reading stores with Spark.

options -> stores -> spans (queue, from, to) -> parts; on an executor: records -> filter -> batches.
"""
