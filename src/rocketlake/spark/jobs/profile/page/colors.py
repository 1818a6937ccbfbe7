"""One colour for each of the biggest topics, the same wherever the page draws the topic."""

from collections import Counter
from typing import Final

from rocketlake.spark.jobs.profile.tables import ProfileTables

REST: Final = "rest"
"""The class of all topics without a colour of their own."""

_COLORS: Final = 6


def topic_colors(profile: ProfileTables) -> dict[str, str]:
    """Return the classes of the topics that have one, in the order in which plots stack them.

    A topic is as big as its share of the messages or of the bytes, whichever is larger: each plot
    has its biggest topics in colour, and no topic changes its own between two plots.
    """
    messages, sizes = Counter[str](), Counter[str]()
    for row in profile.topic_times:
        if row.topic is not None:
            messages[row.topic] += row.messages
            sizes[row.topic] += row.bytes
    all_messages, all_bytes = max(messages.total(), 1), max(sizes.total(), 1)

    def share(topic: str) -> tuple[float, int]:
        return max(messages[topic] / all_messages, sizes[topic] / all_bytes), messages[topic]

    biggest = sorted(messages, key=share, reverse=True)[:_COLORS]
    return {topic: f"c{index}" for index, topic in enumerate(biggest)}
