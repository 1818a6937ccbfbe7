"""A single row as a message, and the text of what is wrong with it."""

# ruff: noqa: ANN401 - Arrow ships no types

from collections.abc import Mapping
from typing import Any

from rocketlake.embedded.checks import check_message
from rocketlake.model import properties as names
from rocketlake.model.message import Message, split_keys
from rocketlake.model.unix_time import to_unix_ms


def row_message(columns: Mapping[str, Any], row: int, topic: str | None) -> Message:
    """Return a row as a message, `wait` and queue aside."""
    values = {name: column[row].as_py() for name, column in columns.items()}
    properties = dict(values.get("properties") or {})
    if values.get("unique_key"):
        properties.setdefault(names.UNIQUE_KEY, values["unique_key"])
    keys = values.get("keys") or ()
    moment = values.get("deliver_at")
    return Message(
        topic=next(name for name in (values.get("topic"), topic, "") if name is not None),
        body=_bytes(values["body"]),
        tags=values.get("tags") or None,
        keys=split_keys(keys) if isinstance(keys, str) else list(keys),
        properties={name: value for name, value in properties.items() if value is not None},
        flag=values.get("flag") or 0,
        delay_level=values.get("delay_level") or 0,
        deliver_at=None if moment is None else to_unix_ms(moment, "deliver_at"),
        ordering_key=values.get("ordering_key"),
    )


def explain_row(columns: Mapping[str, Any], row: int, topic: str | None) -> str | None:
    """Return which column of a row cannot be written, and why; None if the row is valid."""
    if columns["body"][row].as_py() is None:
        return "column body is null; a message needs one, which may be empty"
    if "topic" in columns and columns["topic"][row].as_py() is None and topic is None:
        return 'column topic is null, and there is no .option("topic", ...) for such rows'
    try:
        check_message(row_message(columns, row, topic))
    except (TypeError, ValueError) as error:
        return f"column {error}"
    return None


def _bytes(body: Any) -> bytes:
    return body.encode() if isinstance(body, str) else bytes(body)
