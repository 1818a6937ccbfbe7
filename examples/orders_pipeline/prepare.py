"""Writes a store with orders, and a pipeline project over it: prepare.py DIR [--more]."""

import json
import shutil
import sys
from pathlib import Path

import rocketlake
from rocketlake import Message
from rocketlake.spark.pipelines.project import ProjectSettings, plan_project, write_project

HERE = Path(__file__).resolve().parent
BAD_EVERY = 25


def order(number: int) -> Message:
    """Make an order; one in 25 is no JSON."""
    value = {
        "id": number,
        "amount": number * 0.25,
        "customer": {"name": f"customer-{number % 7}", "country": "DE" if number % 2 else "FR"},
        "items": list(range(number % 3)),
    }
    body = b"\xff not JSON" if number % BAD_EVERY == 0 else json.dumps(value).encode()
    tags = "paid" if number % 3 else "open"
    return Message(topic="orders", body=body, keys=[f"order-{number}"], tags=tags)


def put_orders(store: Path, first: int, count: int) -> None:
    """Put orders into a store."""
    small = {"mapped_file_size_commit_log": 1 << 20, "max_message_size": 1 << 16}
    with rocketlake.open_store(store, **small) as opened:
        for number in range(first, first + count):
            opened.put(order(number))


def prepare(root: Path) -> Path:
    """Write store and project; return the project's directory."""
    put_orders(root / "store", 0, 200)
    settings = ProjectSettings(
        store=str(root / "store"),
        topics=("orders",),
        sink_topic="orders-clean",
        sink_store=str(root / "clean"),
    )
    plan = plan_project(root / "pipeline", settings)
    write_project(plan)
    shutil.copy(HERE / "revenue.sql", root / "pipeline" / "transformations")
    print("\n".join(plan.lines()))
    return root / "pipeline"


if __name__ == "__main__":
    place = Path(sys.argv[1])
    if "--more" in sys.argv:
        put_orders(place / "store", 200, 50)
    else:
        prepare(place)
