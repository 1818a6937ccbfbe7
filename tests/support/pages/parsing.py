"""Blocks of a Markdown page: fenced code with its language, its line and the comments before it.

A comment right before a fence, blank lines between them aside, says how the block is run:

    <!-- setup: CODE -->       Python that is run first, in the namespace of the page
    <!-- not run: REASON -->   the block is not run; the tests list it with the reason
    <!-- exit: 1 -->           the exit code of a console block's commands; `0 1` for two commands
    <!-- interrupt -->         the one command is ended by Ctrl-C when it has printed something
    <!-- output -->            the block is what the block before it prints

Several may stand before one fence. A setup without a fence behind it is run at its place.
"""

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

RUN: Final = frozenset({"python", "pycon", "sql", "console"})
SHOWN: Final = frozenset({"text", "json", "properties"})
"""Languages of blocks that are not code. One that looks like a command needs a reason."""

DIRECTIVES: Final = ("setup", "not run", "exit", "interrupt", "output")

_FENCE: Final = re.compile(r"(?P<indent> *)```(?P<language>\S*)\s*")
_COMMAND: Final = re.compile(r"(\$ |>>> |rocketlake |python |pip |make |spark-submit )")
_INDENTED: Final = re.compile(r" {4,}\S")
_LIST: Final = re.compile(r" *([-*]|\d+\.) ")


class Comment(NamedTuple):
    """A directive: its line, its name and its value."""

    line: int
    name: str
    value: str


class Block(NamedTuple):
    """A fenced block, or a setup that stands alone (language `setup`, without code)."""

    line: int
    language: str
    code: str
    comments: tuple[Comment, ...] = ()

    def value(self, name: str) -> str | None:
        """The value of a directive; None without it."""
        return next((found.value for found in self.comments if found.name == name), None)

    @property
    def first_line(self) -> str:
        """The first line of the code, to name the block by."""
        return self.code.lstrip().partition("\n")[0]


class PageError(Exception):
    """A page has a block that has no rule, or a comment that is no directive."""


def blocks_of(page: str, text: str) -> list[Block]:
    """All blocks of a page, in order.

    Raises:
        PageError: a block cannot be told to be code or text; the message names its line.
    """
    found = list(_walk(page, text))
    for block in found:
        _check(page, block)
    return found


def indented_code(text: str) -> Iterator[int]:
    """Lines at which a block of code begins that is indented and not fenced."""
    in_fence = in_list = False
    before = ""
    for number, line in enumerate(text.splitlines(), 1):
        if _FENCE.fullmatch(line):
            in_fence = not in_fence
        elif not in_fence and line.strip():
            if _LIST.match(line):
                in_list = True
            elif not line.startswith(" "):
                in_list = False
            elif _INDENTED.match(line) and not before and not in_list:
                yield number
        before = line.strip()


def _walk(page: str, text: str) -> Iterator[Block]:
    comments: list[Comment] = []
    lines = list(enumerate(text.splitlines(), 1))
    while lines:
        number, line = lines.pop(0)
        if fence := _FENCE.fullmatch(line):
            indent = fence["indent"]
            code = []
            while lines and lines[0][1] != f"{indent}```":
                code.append(lines.pop(0)[1].removeprefix(indent))
            if not lines:
                raise PageError(f"{page}:{number}: the block has no end")
            lines.pop(0)
            joined = "".join(f"{part}\n" for part in code)
            yield Block(number, fence["language"], joined, tuple(comments))
            comments = []
        elif line.lstrip().startswith("<!--"):
            comment = line.strip()
            while not comment.endswith("-->") and lines:
                comment += f"\n{lines.pop(0)[1]}"
            comments.append(_comment(page, number, comment))
        elif line.strip():
            yield from _alone(page, comments)
            comments = []
    yield from _alone(page, comments)


def _comment(page: str, number: int, text: str) -> Comment:
    inner = text.removeprefix("<!--").removesuffix("-->")
    name, _, value = inner.strip(" \n").partition(":")
    if name not in DIRECTIVES:
        known = ", ".join(DIRECTIVES)
        raise PageError(f"{page}:{number}: a comment begins with {name!r}; known are: {known}")
    if name == "not run" and not value.strip():
        raise PageError(f"{page}:{number}: `not run:` without a reason")
    return Comment(number, name, value.strip())


def _alone(page: str, comments: list[Comment]) -> Iterator[Block]:
    for comment in comments:
        if comment.name != "setup":
            raise PageError(f"{page}:{comment.line}: no block follows {comment.name!r}")
    if comments:
        yield Block(comments[0].line, "setup", "", tuple(comments))


def _check(page: str, block: Block) -> None:
    where = f"{page}:{block.line}"
    if block.language in RUN | {"setup"} or block.value("not run") is not None:
        return
    if block.language not in SHOWN:
        known = ", ".join(sorted(RUN | SHOWN))
        raise PageError(
            f"{where}: a block of language {block.language!r}; known are: {known}."
            " See CONTRIBUTING.md, Documentation"
        )
    if block.value("output") is not None:
        return
    if any(_COMMAND.match(line) for line in block.code.splitlines()):
        raise PageError(
            f"{where}: the block has commands: make it ```console with `$ ` before each, or say"
            " why it is not run: <!-- not run: REASON -->"
        )
