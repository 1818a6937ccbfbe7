"""The job: plan, read, build."""

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - as Spark's documents do

from rocketlake.spark.jobs.profile.plan import ProfilePlan, ProfileSettings, plan_profile
from rocketlake.spark.jobs.profile.report import Profile
from rocketlake.spark.jobs.profile.scan import COLUMNS, KEY_COLUMNS, Facts, biggest_keys, schema_of
from rocketlake.spark.jobs.profile.table_builder import Ask, build
from rocketlake.spark.jobs.profile.tables import GroupRow
from rocketlake.spark.progress import OnProgress, watching

_GROUPS_MAX = 1000


def profile(spark: SparkSession, *stores: str, settings: ProfileSettings | None = None) -> Profile:
    """Profile stores; `plan_profile` tells beforehand what is read.

    Raises:
        StoreNotFoundError: one is not there.
        ConfigError: settings are wrong, or contradict the files.
    """
    return run_profile(spark, plan_profile(stores, settings))


def run_profile(
    spark: SparkSession, plan: ProfilePlan, *, on_progress: OnProgress | None = None
) -> Profile:
    """Read what a plan says, and count."""
    ask = Ask(
        store=", ".join(plan.stores),
        stores=plan.stores,
        selection=plan.settings.selection(),
        step_ms=plan.step_ms,
        span_ms=plan.span_ms,
        top=plan.settings.top,
        notes=plan.notes,
    )
    with watching(spark, on_progress):
        facts = Facts(read(spark, plan, COLUMNS), plan.step_ms)
        try:
            groups = progress_of_groups(spark, plan)
            keys = []
            if plan.settings.with_keys and facts.totals["keyed"]:
                keys = biggest_keys(read(spark, plan, KEY_COLUMNS), plan.settings.top)
            return build(facts, ask, keys, groups)
        finally:
            facts.close()


def read(spark: SparkSession, plan: ProfilePlan, columns: tuple[str, ...]) -> DataFrame:
    """Return the messages of a plan, with some columns."""
    reader = spark.read.format("rocketlake").schema(schema_of(columns))
    return reader.options(**plan.source).load()


def progress_of_groups(spark: SparkSession, plan: ProfilePlan) -> list[GroupRow]:
    """Ask how far consumer groups have come in the topics of a plan."""
    kept = ("paths", "commitLogPath", "options", "topics")
    source = {name: plan.source[name] for name in kept if name in plan.source}
    rows = spark.read.format("rocketlake").options(**source, table="progress").load()
    missed = F.greatest(F.col("min_offset") - F.col("committed_offset"), F.lit(0))
    found = rows.groupBy("broker", "group", "topic").agg(
        F.count(F.lit(1)).alias("queues"),
        F.sum(F.coalesce("lag", F.lit(0))).alias("lag"),
        F.sum(F.coalesce(missed, F.lit(0))).alias("missed"),
    )
    top = found.orderBy(F.desc("missed"), F.desc("lag"), "group", "topic").limit(_GROUPS_MAX)
    return [GroupRow(**{**row.asDict(), "broker": row["broker"] or ""}) for row in top.collect()]
