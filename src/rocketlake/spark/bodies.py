"""The schema of JSON bodies, inferred from a sample of a topic's messages.

    from rocketlake.spark.bodies import json_schema

    schema = json_schema("/data/store", "orders")
    orders.select(from_json(orders.body.cast("string"), schema).alias("order"))

For Avro and Protobuf see docs/spark/bodies.md: their schemas are not in the messages.
"""

from os import PathLike

from rocketlake.errors import ConfigError
from rocketlake.files.local_path import absolute_path
from rocketlake.spark.pipelines.json_schema import columns_text
from rocketlake.spark.pipelines.samples import sample_topic
from rocketlake.spark.reading.queue_spans import topic_hint
from rocketlake.store.offline import OfflineStore


def json_schema(path: str | PathLike[str], topic: str) -> str:
    """Return the columns of a topic's JSON bodies, as `from_json` takes them, without Spark.

    The sample is the oldest and the newest hundred messages of each queue (16 queues at most). A
    field with two types that do not join is a string, which keeps the text of either.

    Raises:
        ConfigError: the topic does not exist, or most of its bodies are not JSON objects.
        StoreError: the store cannot be read.
    """
    with OfflineStore(absolute_path(path)) as store:
        topics = {key.topic for key in store.queues}
        if topic not in topics:
            raise ConfigError(f"there is no topic {topic!r} in {path}; {topic_hint(topic, topics)}")
        sample = sample_topic(store, topic)
    if sample.schema is None:
        raise ConfigError(
            f"{sample.objects} of {sample.looked_at} sampled bodies of {topic} are JSON objects,"
            " which is too few for a schema; give one yourself"
        )
    return columns_text(sample.schema)
