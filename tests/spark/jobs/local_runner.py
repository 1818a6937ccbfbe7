"""LocalRunner: a runner of dispatch jobs that needs no Spark."""

from rocketlake.spark.jobs.dispatch.unit_blocks import make_part


class LocalRunner:
    """Makes parts in this process, one after the other."""

    def run(self, shape, parts, rules):
        for part in parts:
            yield make_part(shape, part, rules)
