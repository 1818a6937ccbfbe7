"""Which messages a subscription wants; pure.

`SqlFilter` is not re-exported: its module imports the grammar library, which start-up should not
pay for. Import `rocketlake.filters.sql92` where an SQL92 expression is really compiled.
"""

from rocketlake.filters.bloom import BloomFilter
from rocketlake.filters.tags import TagFilter

__all__ = ["BloomFilter", "TagFilter"]
