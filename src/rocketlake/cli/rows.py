"""Messages as rows for people: aligned, one line each, streamed."""

import os
import sys

from rich.cells import cell_len

from rocketlake.cli.lines import BodyForm, body_text
from rocketlake.cli.message_search import Found
from rocketlake.cli.screen import printable
from rocketlake.cli.store_arguments import stdout_is_terminal
from rocketlake.format.record import StoredMessage
from rocketlake.model.time_text import time_text

_BODY_MAX = 60
_WIDTH_MAX = 48
_WAIT_FOR = 200
_HEADER = ("TOPIC", "QUEUE", "OFFSET", "PHYSICAL", "STORED", "TAG", "KEYS", "SIZE", "BODY")
_NUMBERS = frozenset({1, 2, 3, 7})


class AlignedRows:
    """Writes aligned rows; widths come from the first rows and grow when they must.

    The last column is as wide as it is.
    """

    def __init__(self, header: tuple[str, ...], numbers: frozenset[int]) -> None:
        self._header = header
        self._numbers = numbers
        self._widths = [len(name) for name in header]
        self._waiting: list[tuple[str, ...]] | None = []

    def add(self, rows: list[tuple[str, ...]]) -> None:
        """Write rows; the first few wait, so that columns fit them all."""
        if self._waiting is None:
            self._print(rows)
            return
        self._waiting += rows
        if len(self._waiting) >= _WAIT_FOR:
            self.finish()

    def finish(self) -> None:
        """Write what still waits, before it the header."""
        rows, self._waiting = self._waiting or [], None
        if rows:
            self._grow(rows)
            sys.stdout.write(f"{bold(self._line(self._header))}\n")
            self._print(rows)
        sys.stdout.flush()

    def _print(self, rows: list[tuple[str, ...]]) -> None:
        self._grow(rows)
        sys.stdout.write("".join(f"{self._line(row)}\n" for row in rows))

    def _grow(self, rows: list[tuple[str, ...]]) -> None:
        for row in rows:
            for i, cell in enumerate(row[:-1]):
                self._widths[i] = max(self._widths[i], min(cell_len(cell), _WIDTH_MAX))

    def _line(self, row: tuple[str, ...]) -> str:
        cells = []
        for i, (cell, width) in enumerate(zip(row, self._widths, strict=True)):
            fill = " " * max(width - cell_len(cell), 0)
            cells.append(fill + cell if i in self._numbers else cell + fill)
        return "  ".join(cells).rstrip()


class RowPrinter:
    """Writes a row for each message."""

    def __init__(self, form: BodyForm) -> None:
        self._form = form
        header = _HEADER if form is not BodyForm.NONE else _HEADER[:-1]
        self._rows = AlignedRows(header, _NUMBERS)

    def write(self, found: Found) -> None:
        """Write a row for each message; the first few wait, so that columns fit them all."""
        messages = zip(found.columns.messages(), found.queue_offsets, strict=True)
        self._rows.add([self._row(message, offset) for message, offset in messages])

    def finish(self) -> None:
        """Write what still waits, before it the header."""
        self._rows.finish()

    def _row(self, message: StoredMessage, offset: int) -> tuple[str, ...]:
        row = (
            printable(message.topic),
            str(message.queue_id),
            str(offset),
            str(message.physical_offset),
            time_text(message.store_timestamp),
            printable(message.tags or "-"),
            printable(" ".join(message.keys) or "-"),
            str(message.store_size),
        )
        if self._form is BodyForm.NONE:
            return row
        return (*row, self._body(message))

    def _body(self, message: StoredMessage) -> str:
        if self._form is BodyForm.TEXT:
            return _short(printable(body_text(message.stored_body, message.sys_flag)))
        if self._form is BodyForm.HEX:
            return message.stored_body.hex()
        import base64  # noqa: PLC0415 - rarely asked for

        return base64.b64encode(message.stored_body).decode()


def _short(text: str) -> str:
    return text if len(text) <= _BODY_MAX else text[: _BODY_MAX - 1] + "…"


def bold(text: str) -> str:
    """Make a text stand out on a terminal."""
    return styled(text, "1")


def styled(text: str, code: str) -> str:
    """Give a text a look on a terminal that shows one; elsewhere it stays plain."""
    if stdout_is_terminal() and not os.environ.get("NO_COLOR"):
        return f"\x1b[{code}m{text}\x1b[0m"
    return text
