"""A command on Spark as small as can be: says that it runs, then works for a long time."""

import sys
import time

import click

from rocketlake.cli import main as entry
from rocketlake.cli.spark_options import SparkArguments, takes_spark


@click.command()
@takes_spark
def job(*, spark: SparkArguments) -> None:
    with spark.session("job") as session:
        click.echo(f"counted {session.range(3).count()}")
        session.sparkContext.parallelize(range(2), 2).foreach(lambda _: time.sleep(600))


if __name__ == "__main__":
    entry.main.add_command(job, "job")
    entry.COMMANDS["job"] = ("__main__:job", "")
    sys.exit(entry.run())
