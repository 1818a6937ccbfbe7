"""A pipeline project for a store: planned from a sample of it, then written."""

import re
from collections.abc import Iterable, Sequence
from importlib import resources
from pathlib import Path
from string import Template
from typing import Final

import msgspec
import pyspark
from msgspec import Struct

from rocketlake.errors import ConfigError
from rocketlake.files.local_path import absolute_path
from rocketlake.model.topics import is_dlq_topic, is_lmq, is_retry_topic, is_system_topic
from rocketlake.spark.pipelines.json_schema import Fields, columns_text, quoted
from rocketlake.spark.pipelines.samples import TopicSample, sample_topic
from rocketlake.spark.reading.options import SourceOptions
from rocketlake.spark.reading.queue_spans import check_topics
from rocketlake.spark.reading.stores import StoreSet

SPEC: Final = "spark-pipeline.yml"
DEFAULTS: Final = Path("conf") / "spark-defaults.conf"

_TOPICS_MAX: Final = 20
_BAD: Final = "_bad"
_MESSAGE_COLUMNS: Final = frozenset(
    [
        "topic",
        "queue_id",
        "queue_offset",
        "store_timestamp",
        "born_timestamp",
        "msg_id",
        "keys",
        "tags",
    ]
)


class ProjectSettings(Struct, frozen=True, kw_only=True):
    """What a project is made for."""

    store: str
    topics: tuple[str, ...] = ()
    sink_topic: str | None = None
    sink_store: str | None = None
    commit_log_path: str | None = None
    options: str | None = None


class TablePlan(Struct, frozen=True):
    """One table or sink of the project, and what is in it."""

    name: str
    text: str


class ProjectPlan(Struct, frozen=True, kw_only=True):
    """The files of a project, by their place below its directory."""

    directory: str
    files: dict[str, str]
    tables: list[TablePlan]
    remarks: list[str]

    def lines(self) -> list[str]:
        """Say it, for people."""
        width = max(len(table.name) for table in self.tables)
        return [
            f"project {self.directory}: {len(self.files)} files",
            *(f"  {table.name.ljust(width)}  {table.text}" for table in self.tables),
            *(f"note: {remark}" for remark in self.remarks),
        ]


def plan_project(directory: Path, settings: ProjectSettings) -> ProjectPlan:
    """Inspect a store, and plan the files of a project.

    Raises:
        StoreNotFoundError: there is no store.
        ConfigError: a topic is not there, or there are none or too many to choose from.
    """
    directory = absolute_path(directory)
    source = _source(settings)
    options = SourceOptions.parse(source)
    with StoreSet.open(options) as stores:
        check_topics(stores.stores, options)
        opened = next(iter(stores.stores.values()))
        topics = settings.topics or _usual_topics({key.topic for key in opened.queues}, settings)
        samples = [sample_topic(opened, topic) for topic in topics]
    source["path"] = str(opened.directory.root.absolute())
    source["topics"] = ",".join(topics)
    return _Writer(directory, settings, source, samples).plan()


def write_project(plan: ProjectPlan, *, force: bool = False) -> list[Path]:
    """Write the files.

    Raises:
        ConfigError: the directory holds something already, or cannot be written.
    """
    root = Path(plan.directory)
    try:
        if not force and root.exists() and any(root.iterdir()):
            raise ConfigError(
                f"{root} is not empty; --force writes the project's files all the same"
            )
        paths = []
        for place, text in plan.files.items():
            path = root / place
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            paths.append(path)
    except OSError as error:
        raise ConfigError(f"{error.filename}: {error.strerror}") from error
    return paths


def _source(settings: ProjectSettings) -> dict[str, str]:
    given = {
        "path": settings.store,
        "topics": ",".join(settings.topics) or None,
        "commitLogPath": settings.commit_log_path,
        "options": settings.options,
    }
    return {name: value for name, value in given.items() if value is not None}


def _usual_topics(found: Iterable[str], settings: ProjectSettings) -> tuple[str, ...]:
    """Choose the topics that people make: none of the broker's own, no retries, no dead letters."""
    others = (is_system_topic, is_retry_topic, is_dlq_topic, is_lmq)
    usual = sorted(name for name in found if not any(is_other(name) for is_other in others))
    if not usual:
        raise ConfigError(f"{settings.store} holds no messages of topics that people make")
    if len(usual) > _TOPICS_MAX:
        raise ConfigError(
            f"{settings.store} has {len(usual)} topics; choose some by --topic, such as {usual[0]}"
        )
    return tuple(usual)


class _Writer:
    """Fills the templates."""

    def __init__(
        self,
        directory: Path,
        settings: ProjectSettings,
        source: dict[str, str],
        samples: Sequence[TopicSample],
    ) -> None:
        self._root = directory
        self._settings = settings
        self._source = source
        self._samples = samples
        self._files: dict[str, str] = {}
        self._tables: list[TablePlan] = []
        self._remarks: list[str] = []

    def plan(self) -> ProjectPlan:
        names = table_names([sample.topic for sample in self._samples])
        topics = ", ".join(sample.topic for sample in self._samples)
        self._file(
            "transformations/bronze.py",
            "bronze.py.txt",
            source=_literal(self._source),
            comment=repr(f"messages of {topics}"),
        )
        self._add("bronze_messages", f"the messages of {topics} as they are")
        silvers = [s for s, name in zip(self._samples, names, strict=True) if self._silver(s, name)]
        self._file("transformations/gold.py", "gold.py.txt")
        self._add("gold_per_minute", "messages, bytes and latency per topic and minute")
        if self._settings.sink_topic is not None:
            self._sink(silvers, names)
        self._rest()
        return ProjectPlan(
            directory=str(self._root),
            files=self._files,
            tables=self._tables,
            remarks=self._remarks,
        )

    def _silver(self, sample: TopicSample, name: str) -> bool:
        if sample.schema is None:
            self._remarks.append(
                f"{sample.topic}: {sample.objects} of {sample.looked_at} bodies looked at are JSON"
                " objects, so there is no silver table for it"
            )
            return False
        silver, quarantine = f"silver_{name}", f"quarantine_{name}"
        columns = silver_columns(sample.schema)
        self._file(
            f"transformations/{silver}.py",
            "silver.py.txt",
            looked_at=f"{sample.looked_at:,}",
            silver=silver,
            quarantine=quarantine,
            spark_version=pyspark.__version__,
            topic=repr(sample.topic),
            schema=_literal_text(columns_text(sample.schema)),
            bad=repr(_bad_column(sample.schema)),
            columns=_literal({name: f"value.{quoted(field)}" for name, field in columns.items()}),
            silver_name=repr(silver),
            silver_comment=repr(f"decoded bodies of {sample.topic}"),
            quarantine_name=repr(quarantine),
            quarantine_comment=repr(
                f"messages of {sample.topic} whose bodies do not fit the schema"
            ),
        )
        self._add(silver, f"bodies of {sample.topic}, decoded: {', '.join(columns)}")
        self._add(quarantine, f"messages of {sample.topic} whose body does not fit that schema")
        return True

    def _sink(self, silvers: Sequence[TopicSample], names: Sequence[str]) -> None:
        if not silvers:
            raise ConfigError("a sink takes the rows of a silver table, and no topic has one")
        if len(silvers) > 1 and not self._settings.topics:
            raise ConfigError(
                "a sink takes the rows of one silver table: name its topic first by --topic, such"
                f" as --topic {silvers[0].topic}"
            )
        first = silvers[0]
        name = next(n for s, n in zip(self._samples, names, strict=True) if s is first)
        store = absolute_path(self._settings.sink_store or self._root / "data" / "store")
        options = {"path": str(store), "topic": str(self._settings.sink_topic)}
        assert first.schema is not None
        self._file(
            "transformations/sink.py",
            "sink.py.txt",
            columns=_literal([*silver_columns(first.schema)]),
            options=_literal(options),
            silver_name=repr(f"silver_{name}"),
        )
        self._add("topic_out", f"sink: silver_{name} into {self._settings.sink_topic} of {store}")

    def _rest(self) -> None:
        data = self._root / "data"
        name = re.sub(r"\W+", "-", self._root.name).strip("-") or "pipeline"
        self._file(SPEC, "spec.yml.txt", name=name, storage=_yaml((data / "storage").as_uri()))
        self._file(
            str(DEFAULTS),
            "defaults.conf.txt",
            warehouse=str(data / "tables"),
            catalog=str(data / "catalog"),
            derby_log=str(data / "derby.log"),
        )
        rows = [f"| `{table.name}` | {_cell(table.text)} |" for table in self._tables]
        remarks = [f"- {_cell(remark)}" for remark in self._remarks]
        self._file(
            "README.md",
            "README.md.txt",
            name=name,
            store=self._source["path"],
            tables="\n".join(rows),
            remarks="\n".join(remarks),
        )
        self._files[".gitignore"] = "data/\n"

    def _add(self, name: str, text: str) -> None:
        self._tables.append(TablePlan(name, text))

    def _file(self, place: str, template: str, **values: str) -> None:
        found = resources.files("rocketlake.spark.pipelines") / "templates" / template
        text = Template(found.read_text(encoding="utf-8")).substitute(values)
        self._files[place] = text.rstrip("\n") + "\n"


def table_names(topics: Sequence[str]) -> list[str]:
    """Make names of tables out of those of topics: letters, digits and `_`, each another."""
    found: list[str] = []
    for topic in topics:
        plain = re.sub(r"[^0-9a-z]+", "_", topic.lower()).strip("_") or "topic"
        name, number = plain, 1
        while name in found:
            number += 1
            name = f"{plain}_{number}"
        found.append(name)
    return found


def silver_columns(schema: Fields) -> dict[str, str]:
    """Return name of column -> field; a field named like a column of the message gets `body_`."""
    found: dict[str, str] = {}
    taken = set(_MESSAGE_COLUMNS)
    for field in schema.fields:
        name = field
        while name.lower() in taken:
            name = f"body_{name}"
        taken.add(name.lower())
        found[name] = field
    return found


def _bad_column(schema: Fields) -> str:
    name, fields = _BAD, {field.lower() for field in schema.fields}
    while name in fields:
        name += "_"
    return name


def _literal(value: dict[str, str] | list[str]) -> str:
    """Spell a value as Python, one item a line."""
    if isinstance(value, list):
        inner = "".join(f"    {item!r},\n" for item in value)
        return f"[\n{inner}]"
    inner = "".join(f"    {key!r}: {item!r},\n" for key, item in value.items())
    return f"{{\n{inner}}}"


def _literal_text(text: str) -> str:
    """Spell a long text as Python, in lines."""
    parts = re.findall(r".{1,80}(?:, |$)|.{1,80}", text, re.DOTALL)
    inner = "".join(f"    {part!r}\n" for part in parts)
    return f"(\n{inner})"


def _yaml(text: str) -> str:
    # A JSON string is one of YAML's, whatever is in it.
    return msgspec.json.encode(text).decode()


def _cell(text: str) -> str:
    """Spell a text for a cell of a table in Markdown."""
    flat = "".join(c if c.isprintable() else " " for c in text)
    return re.sub(r"([|\\`<>*_])", r"\\\1", flat)
