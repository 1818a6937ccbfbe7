"""OptionTexts: the options of a read or a write as texts, each checked when it is asked for.

Every refusal names the option, what it was given, and what is wanted. Paths follow the rule of
`files.local_path`, sizes, times and durations those of `model`.
"""

import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from pathlib import Path
from typing import TypeVar

import msgspec

from rocketlake.errors import ConfigError
from rocketlake.files.local_path import absolute_path, local_path
from rocketlake.model.size_text import parse_size
from rocketlake.model.time_text import parse_duration_ms
from rocketlake.spark.name_hints import unknown_option

E = TypeVar("E", bound=StrEnum)
T = TypeVar("T")


class OptionTexts:
    """Texts of options by name; what an option was not given is None, or its default."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        self.texts = texts

    @classmethod
    def of(
        cls,
        options: Mapping[str, str | None],
        known: Iterable[str],
        *,
        ignored: frozenset[str] = frozenset(),
        where: str = "",
    ) -> "OptionTexts":
        """Take options as Spark hands them over: names in any case, some without a value.

        Args:
            options: What was given.
            known: The names of the options, as they are documented.
            ignored: Names in lower case of what Spark adds.
            where: Follows the name in a refusal, as in ` of a write`.

        Raises:
            ConfigError: an option is unknown.
        """
        names = {name.lower(): name for name in known}
        texts = {}
        for key, value in options.items():
            name = names.get(key.lower())
            if name is not None and value is not None:
                texts[name] = str(value)
            elif name is None and key.lower() not in ignored:
                raise unknown_option(key, names.values(), of=where)
        return cls(texts)

    def __contains__(self, name: str) -> bool:
        return name in self.texts

    def get(self, name: str) -> str | None:
        """Return a text as it was given."""
        return self.texts.get(name)

    def word(self, name: str) -> str | None:
        """Return a text without the blanks around it; None if nothing else is there."""
        return self.texts.get(name, "").strip() or None

    def parsed(self, name: str, parse: Callable[[str], T]) -> T | None:
        """Return what a parser makes of a text.

        Raises:
            ConfigError: the parser refuses it.
        """
        text = self.texts.get(name)
        if text is None:
            return None
        try:
            return parse(text.strip())
        except (ConfigError, ValueError) as error:
            raise ConfigError(f"option {name}: {error}") from error

    def choice(self, name: str, kind: type[E], default: E) -> E:
        """Return one of several words."""
        text = self.texts.get(name)
        if text is None:
            return default
        for value in kind:
            if value.lower() == text.strip().lower():
                return value
        raise self.refusal(name, f"wanted one of {', '.join(kind)}")

    def flag(self, name: str, *, default: bool) -> bool:
        """Return true or false."""
        text = self.texts.get(name)
        if text is None:
            return default
        if text.strip().lower() not in {"true", "false"}:
            raise self.refusal(name, "wanted true or false")
        return text.strip().lower() == "true"

    def number(self, name: str, *, highest: int = 10**18) -> int | None:
        """Return a whole number above 0."""
        text = self.texts.get(name)
        if text is None:
            return None
        if not re.fullmatch(r"[0-9]{1,18}", text.strip()) or not 1 <= int(text) <= highest:
            raise self.refusal(name, "wanted a number from 1 on")
        return int(text)

    def size(self, name: str, *, lowest: int = 1) -> int | None:
        """Return a number of bytes."""
        size = self.parsed(name, parse_size)
        if size is not None and size < lowest:
            raise self.refusal(name, f"the least is {lowest}")
        return size

    def duration_ms(self, name: str, unit: str) -> int | None:
        """Return milliseconds; `unit` applies to a number that names none."""
        return self.parsed(name, lambda text: parse_duration_ms(text, unit))

    def directory(self, name: str) -> Path | None:
        """Return an absolute path."""
        return self.parsed(name, absolute_path) if self.word(name) is not None else None

    def directories(self, name: str) -> str | None:
        """Return a list of paths as it was given, each checked; `{store}` stands for the store."""
        for part in self.texts.get(name, "").split(","):
            OptionTexts({name: part}).parsed(name, local_path)
        return self.texts.get(name)

    def json(self, name: str, kind: type[T], wanted: str = "wanted JSON") -> T | None:
        """Return a value of JSON."""
        text = self.texts.get(name)
        if text is None:
            return None
        try:
            found = msgspec.json.decode(text, type=kind, strict=False)
            twice = _named_twice(text)
        except (msgspec.DecodeError, RecursionError) as error:
            raise self.refusal(name, f"{wanted} ({error})") from None
        if twice is not None:
            raise self.refusal(name, f"{twice!r} is named twice")
        return found

    def refusal(self, name: str, reason: str) -> ConfigError:
        """Return the error of an option's text."""
        return ConfigError(f"option {name} = {self.texts[name]!r}: {reason}")


def _named_twice(text: str) -> str | None:
    """Return a name that an object of a JSON text has twice; a decoder takes the last one."""
    found: list[str] = []

    def look(pairs: list[tuple[str, object]]) -> None:
        counts = Counter(name for name, _ in pairs)
        found.extend(name for name, count in counts.items() if count > 1)

    json.loads(text, object_pairs_hook=look, parse_int=str)
    return found[0] if found else None
