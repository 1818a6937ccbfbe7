"""Runs the blocks of a page, in order, in one namespace and in the working directory.

- `python` and `pycon` blocks share a namespace, with `spark` in it on pages that use Spark. What a
  pycon block prints must be what the page shows (doctest's rules, with `…` for any text).
- Each statement of an `sql` block is run by Spark, and its rows are fetched.
- Commands of a `console` block are run, see `console`; where the page shows output, it must match,
  see `output`.
- Directories that pages name from the root (`/data/store`) are below the working directory.
"""

import contextlib
import doctest
import io
import re
import shutil
import signal
import sys
import types
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from support.pages import console
from support.pages.output import is_shown
from support.pages.parsing import SHOWN, Block, PageError, blocks_of

ROOT: Final = Path(__file__).resolve().parents[3]
ROOTS: Final = ("data", "lake", "archive", "shared", "backup", "test", "mnt", "spool")
"""Directories from the root that pages may name."""

_DEADLINE_S: Final = 300
_ROOTED: Final = re.compile(rf"(?<![\w./~-])/({'|'.join(ROOTS)})(?=[/\s'\",)\]]|$)", re.MULTILINE)
_ON_SPARK: Final = re.compile(
    r"\bspark\b|rocketlake (?:archive|profile|replay|compact|dispatch|pipeline)\b"
    r"|rebuild (?!.*--to)|--master"
)


def pages() -> list[str]:
    """The pages whose blocks are run, by their paths below the repository's root."""
    found = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")]
    return sorted(path.relative_to(ROOT).as_posix() for path in found)


def read_page(page: str) -> list[Block]:
    """The blocks of a page.

    Raises:
        PageError: a block or comment has no rule.
    """
    return blocks_of(page, (ROOT / page).read_text(encoding="utf-8"))


def is_on_spark(page: str) -> bool:
    """Whether a page has blocks that are run with a session; a page that is wrong has none."""
    try:
        return any(needs_spark(block) for block in read_page(page))
    except PageError:
        return False


def needs_spark(block: Block) -> bool:
    """Whether a block is run with a session."""
    if block.value("not run") is not None or block.language in SHOWN:
        return False
    texts = [block.code, *(comment.value for comment in block.comments)]
    return block.language == "sql" or any(_ON_SPARK.search(text) for text in texts)


@contextlib.contextmanager
def _deadline(what: str) -> Iterator[None]:
    """Raise in a block that does not end, so that it cannot hold up all tests."""

    def stop(*_: object) -> None:
        raise TimeoutError(f"{what} did not end within {_DEADLINE_S} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.alarm(_DEADLINE_S)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


class PageRun:
    """Runs blocks of one page; the working directory is the page's own."""

    def __init__(
        self, page: str, setups: Mapping[str, Callable[..., Any]], *, spark: Any = None
    ) -> None:
        self.page = page
        self._directory = Path.cwd()
        self._setups = setups
        self._spark = spark
        self._module = types.ModuleType("__main__")
        self._printed = ""
        if spark is not None:
            self.names["spark"] = spark

    @property
    def names(self) -> dict[str, Any]:
        """The namespace of the page."""
        return self._module.__dict__

    def run(self, blocks: list[Block]) -> int:
        """Run all blocks that are to be run; how many those were.

        Raises:
            AssertionError: one failed, or printed something else than the page shows.
        """
        count = 0
        try:
            for block in blocks:
                if block.value("not run") is None:
                    self._run(block)
                    count += block.language != "setup"
        finally:
            self._end()
        return count

    def _run(self, block: Block) -> None:
        with _deadline(f"the block of {self.page}:{block.line}"):
            self._run_all_of(block)

    def _run_all_of(self, block: Block) -> None:
        for comment in block.comments:
            if comment.name == "setup":
                self._set_up(comment.line, comment.value)
        code = self._local(block.code)
        match block.language:
            case "python":
                self._run_python(block, code)
            case "pycon":
                self._run_doctest(block, code)
            case "sql":
                self._run_sql(block, code)
            case "console":
                self._run_console(block, code)
            case _:
                if block.value("output") is not None:
                    self._compare(block.line, block.code, self._printed)

    def _set_up(self, line: int, code: str) -> None:
        hidden = {name: self.names[name] for name in self._setups if name in self.names}
        self.names.update(self._setups)
        try:
            self._execute(line - 1, self._local(code))
        finally:
            for name, setup in self._setups.items():
                if self.names.get(name) is setup:
                    del self.names[name]
            self.names.update(hidden)

    def _run_python(self, block: Block, code: str) -> None:
        stream = io.StringIO()
        with contextlib.redirect_stdout(stream):
            self._execute(block.line, code)
        self._printed = stream.getvalue()

    def _execute(self, line: int, code: str) -> None:
        """Execute code whose first line is the one behind a line of the page."""
        compiled = compile("\n" * line + code, str(ROOT / self.page), "exec")
        try:
            exec(compiled, self.names)
        except Exception as error:
            error.add_note(f"in the block of {self.page}:{line}")
            raise

    def _run_doctest(self, block: Block, code: str) -> None:
        parsed = doctest.DocTestParser().get_doctest(
            code.replace("…", "..."), self.names, self.page, str(ROOT / self.page), block.line
        )
        said = io.StringIO()
        runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
        done = runner.run(parsed, out=said.write, clear_globs=False)
        self.names.update(parsed.globs)
        assert done.failed == 0, said.getvalue()

    def _run_sql(self, block: Block, code: str) -> None:
        assert self._spark is not None, f"{self.page}:{block.line}: SQL without Spark"
        for statement in re.split(r";\s*(?:\n|$)", code):
            if statement.strip():
                try:
                    self._spark.sql(statement).collect()
                except Exception as error:
                    error.add_note(f"in the block of {self.page}:{block.line}: {statement}")
                    raise

    def _run_console(self, block: Block, code: str) -> None:
        try:
            commands = console.commands_of(code)
        except ValueError as error:
            raise PageError(f"{self.page}:{block.line}: {error}") from error
        is_ended = block.value("interrupt") is not None
        codes = [int(text) for text in (block.value("exit") or "0").split()]
        codes *= len(commands) if len(codes) == 1 else 1
        assert len(codes) == len(commands), f"{self.page}:{block.line}: {codes} for {commands}"
        run = console.run_interrupted if is_ended else console.run
        for command, wanted in zip(commands, codes, strict=True):
            where = f"{self.page}:{block.line + command.line}: {command.text}"
            done = run(command.text)
            self._printed = done.printed
            wants = {0, 130} if is_ended else {wanted}
            assert done.code in wants, f"{where}\nexit code {done.code}:\n{done.printed}"
            if command.shown.strip():
                self._compare(block.line + command.line, self._paged(command.shown), done.printed)

    def _compare(self, line: int, shown: str, printed: str) -> None:
        printed = self._paged(printed)
        assert is_shown(self._paged(shown), printed), (
            f"{self.page}:{line}\n--- the page shows\n{shown}\n--- printed was\n{printed}"
        )

    def _local(self, code: str) -> str:
        """Code whose rooted directories are below the working directory."""
        return _ROOTED.sub(lambda found: f"{self._directory}/{found[1]}", code)

    def _paged(self, text: str) -> str:
        """Text as the page has it, with rooted directories."""
        for name in ROOTS:
            text = text.replace(f"{self._directory}/{name}", f"/{name}")
        return text

    def _end(self) -> None:
        """Stop what the page left running, and remove what it made."""
        failures = []
        if self._spark is not None:
            for query in self._spark.streams.active:
                try:
                    query.processAllAvailable()
                except Exception as error:  # noqa: BLE001 - told below, all of them
                    failures.append(error)
                query.stop()
            for table in self._spark.catalog.listTables():
                kind = "VIEW" if table.isTemporary else "TABLE"
                self._spark.sql(f"DROP {kind} IF EXISTS `{table.name}`")
        for value in [*self.names.values()]:
            if type(value).__module__.startswith("rocketlake.") and hasattr(value, "close"):
                value.close()
        self.names.clear()
        for path in self._directory.iterdir():
            shutil.rmtree(path) if path.is_dir() else path.unlink()
        if failures and sys.exc_info()[0] is None:
            raise AssertionError(f"{self.page}: a query failed") from failures[0]
