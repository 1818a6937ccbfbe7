"""Messages as rows for people: aligned, one line each, streamed."""

import os
import sys

from rich.cells import cell_len

from rocketlake.cli.lines import BodyForm, body_text
from rocketlake.cli.screen import printable, time_text
from rocketlake.cli.select import Found
from rocketlake.format.record import StoredMessage

_BODY_MAX = 60
_WIDTH_MAX = 48
_WAIT_FOR = 200
_HEADER = ("TOPIC", "QUEUE", "OFFSET", "PHYSICAL", "STORED", "TAG", "KEYS", "SIZE", "BODY")
_NUMBERS = frozenset({1, 2, 3, 7})


class RowPrinter:
    """Writes aligned rows; widths come from the first rows and grow when they must."""

    def __init__(self, form: BodyForm) -> None:
        self._form = form
        self._header = _HEADER if form is not BodyForm.NONE else _HEADER[:-1]
        self._widths = [len(name) for name in self._header]
        self._waiting: list[tuple[str, ...]] | None = []

    def write(self, found: Found) -> None:
        """Write a row for each message; the first few wait, so that columns fit them all."""
        rows = [
            self._row(message, offset)
            for message, offset in zip(found.columns.messages(), found.queue_offsets, strict=True)
        ]
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
            sys.stdout.write(f"{_bold(self._line(self._header))}\n")
            self._print(rows)
        sys.stdout.flush()

    def _print(self, rows: list[tuple[str, ...]]) -> None:
        self._grow(rows)
        sys.stdout.write("".join(f"{self._line(row)}\n" for row in rows))

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

    def _grow(self, rows: list[tuple[str, ...]]) -> None:
        for row in rows:
            for i, cell in enumerate(row[:-1]):
                self._widths[i] = max(self._widths[i], min(cell_len(cell), _WIDTH_MAX))

    def _line(self, row: tuple[str, ...]) -> str:
        cells = []
        for i, (cell, width) in enumerate(zip(row, self._widths, strict=True)):
            fill = " " * max(width - cell_len(cell), 0)
            cells.append(fill + cell if i in _NUMBERS else cell + fill)
        return "  ".join(cells).rstrip()


def _short(text: str) -> str:
    return text if len(text) <= _BODY_MAX else text[: _BODY_MAX - 1] + "…"


def _bold(text: str) -> str:
    if sys.stdout.isatty() and not os.environ.get("NO_COLOR"):
        return f"\x1b[1m{text}\x1b[0m"
    return text
