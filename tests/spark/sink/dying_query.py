"""A streaming query in a process of its own: `python dying_query.py STORE INPUT CHECKPOINT`."""

import os
import sys

from sink_queries import run_query

from rocketlake.spark.session import open_session

if __name__ == "__main__":
    if "ROCKETLAKE_SINK_KILL" in os.environ:
        os.environ["ROCKETLAKE_SINK_KILL"] += f":{os.getpgid(0)}"
    session = open_session("local[2]", conf={"spark.sql.shuffle.partitions": "2"})
    run_query(session, *sys.argv[1:4])
