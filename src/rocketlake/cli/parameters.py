"""Kinds of option values (times, sizes, durations, pairs), and options that commands share."""

from collections.abc import Callable, Iterable

import click

from rocketlake.model.size_text import parse_size
from rocketlake.model.time_text import parse_duration_ms, parse_time


class ParsedType(click.ParamType[int]):
    """A value that a parser of `model` turns into a number."""

    def __init__(self, name: str, parse: Callable[[str], int]) -> None:
        self.name = name
        self._parse = parse

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> int:
        """Return the number; a text that cannot be parsed is a usage error."""
        if isinstance(value, int):
            return value
        try:
            return self._parse(str(value))
        except ValueError as error:
            return self.fail(str(error), param, ctx)


TIME = ParsedType("TIME", parse_time)
SIZE = ParsedType("SIZE", parse_size)
DURATION_MS = ParsedType("DURATION", lambda text: parse_duration_ms(text, "s"))

from_time_option = click.option(
    "--from-time",
    type=TIME,
    help="Stored at TIME or later: Unix milliseconds, or a date and time (local unless it names"
    " a zone).",
)
to_time_option = click.option("--to-time", type=TIME, help="Stored before TIME.")
key_option = click.option("--key", help="With this key or unique key.")
tag_option = click.option("--tag", help="With this tag, or one of several: 'A || B'.")
sql_option = click.option("--sql", help="With properties that match this SQL92 expression.")
json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
target_size_option = click.option(
    "--target-size",
    type=SIZE,
    default="128m",
    show_default=True,
    help="Approximate size of a file.",
)
compression_option = click.option(
    "--compression",
    type=click.Choice(["zstd", "snappy", "gzip", "lz4", "none"]),
    default="zstd",
    show_default=True,
    help="Compression of the Parquet files.",
)


def pairs(option: str, texts: Iterable[str]) -> dict[str, str]:
    """Return the values of KEY=VALUE texts by key."""
    found = {}
    for text in texts:
        key, separator, value = text.partition("=")
        if not separator or not key:
            raise click.BadParameter(f"{option} {text!r}: wanted KEY=VALUE")
        found[key] = value
    return found
