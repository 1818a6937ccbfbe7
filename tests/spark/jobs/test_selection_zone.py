"""Times without a zone in the selection of a job are in the session's time zone."""

import pytest

from rocketlake.spark.jobs import selection
from rocketlake.spark.jobs.selection import Selection
from rocketlake.spark.reading.options import SourceOptions


class FakeSession:
    """A session that has a time zone and nothing else."""

    class conf:  # noqa: N801 - Spark's name
        @staticmethod
        def get(key: str) -> str:
            assert key == "spark.sql.session.timeZone"
            return "Asia/Tokyo"


@pytest.mark.parametrize(
    ("session", "text", "wanted"),
    [
        (FakeSession, "1970-01-02", 54_000_000),
        (FakeSession, "1970-01-02T00:00Z", 86_400_000),
        (FakeSession, "86400000", 86_400_000),
        (None, "1970-01-02T00:00Z", 86_400_000),
    ],
)
def test_zone_of_the_session_is_passed_to_the_source(
    monkeypatch: pytest.MonkeyPatch, session: object, text: str, wanted: int
) -> None:
    monkeypatch.setattr(selection.SparkSession, "getActiveSession", lambda: session)
    wish = Selection(path="/data/store", topic="orders", starting_timestamp=text)
    assert SourceOptions.parse(wish.options()).starting.default == wanted


def test_zone_that_the_caller_names_wins(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selection.SparkSession, "getActiveSession", lambda: FakeSession)
    wish = Selection(
        path="/data/store",
        topic="orders",
        starting_timestamp="1970-01-02",
        source_options={"timeZone": "UTC"},
    )
    assert SourceOptions.parse(wish.options()).starting.default == 86_400_000
