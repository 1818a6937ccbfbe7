"""What staging records for a `BulkStore` needs of a store; light enough for executors to import."""

from rocketlake.store.log.record_shape import RecordShape
from rocketlake.store.log.topic_routes import TopicRoutes

__all__ = ["RecordShape", "TopicRoutes"]
