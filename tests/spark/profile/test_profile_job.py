"""The job: what Spark counts is what the store holds, and a command says what it would do."""

import html
import json
import re
import shutil
from collections import Counter

import pyarrow.parquet as pq
import pytest
from pyspark.sql import functions as F  # noqa: N812 - as in Spark's documents

import rocketlake
from rocketlake import Message
from rocketlake.errors import ConfigError
from rocketlake.spark.jobs import ProfileSettings, plan_profile, profile, run_profile
from rocketlake.spark.jobs.profile import bins
from rocketlake.store.offline import OfflineStore
from support.command import run
from support.manual_clock import ManualClock

SMALL = {"mapped_file_size_commit_log": 1 << 20, "max_message_size": 1 << 16}
HOSTILE = "</script><script>alert(1)</script>"


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """Three topics of 4 queues, some keys and tags, a group that is behind, a dead letter."""
    path = tmp_path_factory.mktemp("profiled") / "store"
    with rocketlake.open_store(path, **SMALL) as opened:
        for number in range(400):
            message = Message(
                topic=("orders", "orders", "payments", "clicks")[number % 4],
                body=b"x" * (number * 3),
                tags=(None, "paid", HOSTILE)[number % 3],
                keys=[f"k{number % 5}", f"only-{number}"] if number % 2 else [],
            )
            opened.put(message)
        opened.put(Message(topic="%DLQ%billing", body=b"dead"))
        for number, _ in enumerate(opened.consumer(group="billing", topic="orders")):
            if number == 10:
                break
    return path


def messages_of(path):
    with OfflineStore(path) as view:
        return [
            message
            for key in view.queues
            for batch in view.messages(key)
            for message in batch.columns.messages()
        ]


def test_profile_counts_what_the_store_holds(spark, store, tmp_path):
    page, tables = tmp_path / "page.html", tmp_path / "tables"
    ran = run("profile", store, "--json", "--out", page, "--tables", tables, "--top", 20)
    assert ran.code == 0, ran.err
    found, held = ran.json, messages_of(store)
    summary = found["summary"]
    assert summary["messages"] == len(held) == 401
    assert summary["topics"] == 4
    assert summary["keyed"] == sum(bool(m.keys) for m in held)
    assert summary["first_ms"] == min(m.store_timestamp for m in held)
    assert summary["last_ms"] == max(m.store_timestamp for m in held)
    assert counts(found["topics"], "topic") == Counter(m.topic for m in held)
    assert counts(found["queues"], "topic", "queue_id") == Counter(
        (m.topic, m.queue_id) for m in held
    )
    assert counts(found["tags"], "topic", "tag") == Counter((m.topic, m.tags) for m in held)
    keys = Counter((m.topic, key) for m in held for key in m.keys)
    listed = counts(found["keys"], "topic", "key")
    assert len(listed) == 20
    assert sorted(listed.values()) == sorted(n for _, n in keys.most_common(20))
    assert all(keys[key] == n for key, n in listed.items())
    for name in ("times", "topic_times", "sizes"):
        assert sum(row["messages"] for row in found[name]) == len(held), name
    assert sum(row["messages"] for row in found["latencies"]) == len(held) - 1  # no dead letter
    bytes_ = summary["bytes"]
    for name in ("topics", "times", "topic_times", "queues", "tags"):
        assert sum(row["bytes"] for row in found[name]) == bytes_, name
    latencies = [m.store_timestamp - m.born_timestamp for m in held]
    assert summary["latency_max"] == max(latencies)
    (group,) = found["groups"]
    consumed = Counter(m.topic for m in held)["orders"] - group["lag"]
    assert (group["group"], group["topic"], 10 <= consumed <= 11) == ("billing", "orders", True)
    assert {"lag", "dead letters"} <= {item["kind"] for item in found["findings"]}
    assert HOSTILE not in page.read_text()
    assert pq.read_table(tables / "topics.parquet").num_rows == 4
    assert "the page is" in ran.err
    assert {row["topic"] for row in found["topic_times"]} == {
        row["topic"] for row in found["topics"]
    }


def counts(rows, *names):
    keys = [tuple(row[name] for name in names) for row in rows]
    return Counter(
        {
            key if len(names) > 1 else key[0]: row["messages"]
            for key, row in zip(keys, rows, strict=True)
        }
    )


def test_profile_of_selected_topics_and_of_nothing(spark, store, tmp_path):
    settings = ProfileSettings(topics=("payments",), with_keys=False, top=1)
    found = run_profile(spark, plan_profile([str(store)], settings))
    assert (found.summary.messages, found.summary.topics, found.keys) == (100, 1, [])
    (tmp_path / "empty" / "commitlog").mkdir(parents=True)
    ran = run("profile", tmp_path / "empty", "--out", tmp_path / "empty.html")
    assert ran.code == 0, ran.err
    assert "No messages." in ran.out
    assert "No messages." in (tmp_path / "empty.html").read_text()


def test_what_comes_back_is_no_latency_of_a_producer(spark, tmp_path):
    """Retries, dead letters and settled transactions have the birth time of the first put."""
    clock = ManualClock()
    with rocketlake.open_store(tmp_path / "store", clock=clock, **SMALL) as opened:
        receipts = []
        for number in range(20):
            receipts.append(opened.put(Message(topic="orders", body=b"%d" % number), queue_id=0))
            clock.advance_ms(1000)
        clock.advance_ms(12 * 3_600_000)
        opened.send_back("billing", receipts[0].physical_offset, delay_level=1)
        opened.send_back("billing", receipts[1].physical_offset, delay_level=-1)
        opened.put(Message(topic="orders", body=b"late"), queue_id=0)
    found = profile(spark, str(tmp_path / "store"))
    assert found.summary.messages >= 23
    assert found.summary.latency_max == 0
    assert sum(row.messages for row in found.latencies) == 21
    assert "latency" not in {finding.kind for finding in found.findings}
    dead = next(row for row in found.topics if row.topic == "%DLQ%billing")
    assert (dead.messages, dead.latency_max, dead.latency_p99) == (1, None, None)


def test_a_program_saves_the_page_and_a_notebook_shows_it(spark, store, tmp_path):
    found = profile(spark, str(store))
    saved = found.save_page(tmp_path / "reports" / "page.html")
    assert saved.read_text(encoding="utf-8") == found.page()
    shown = found._repr_html_()
    assert shown.startswith(f"<p>{store}: 401 messages in 4 topics")
    (frame,) = re.findall(r'<iframe sandbox="allow-scripts" .* srcdoc="([^"]*)"></iframe>$', shown)
    assert html.unescape(frame) == found.page()
    with pytest.raises(ConfigError, match=f"cannot write the page to {saved / 'in'}: "):
        found.save_page(saved / "in")


def test_bins_are_the_same_in_spark(spark):
    numbers = [-5, -1, 0, 1, 31, 32, 33, 63, 64, 65, 1000, 1 << 20, (1 << 41) - 1, 1 << 41, 1 << 50]
    rows = spark.createDataFrame([(n,) for n in numbers], "n bigint")
    got = [row["bin"] for row in rows.select(bins.bin_column(F.col("n")).alias("bin")).collect()]
    assert got == [bins.bin_of(n) for n in numbers]


def test_dry_run_says_what_would_be_read(store):
    ran = run("profile", store, "--dry-run", "--topic", "orders", "--no-keys")
    assert ran.code == 0, ran.err
    assert "1 topic, 4 queues" in ran.out
    assert "one pass; bodies are not read" in ran.out
    assert "only orders" in ran.out


def test_wrong_usage_is_told_before_spark_starts(store, tmp_path):
    ran = run("profile", tmp_path / "nowhere")
    assert ran.code == 2
    assert str(tmp_path / "nowhere") in ran.err
    ran = run("profile", store, "--topic", "ordesr", "--dry-run")
    assert ran.code == 2
    assert "orders" in ran.err
    (tmp_path / "there.html").write_text("mine")
    ran = run("profile", store, "--out", tmp_path / "there.html")
    assert ran.code == 2
    assert "--force replaces it" in ran.err
    assert (tmp_path / "there.html").read_text() == "mine"


def test_damage_is_left_out_and_named(store, tmp_path):
    copy = tmp_path / "copy"
    shutil.copytree(store, copy)
    first = next((copy / "commitlog").iterdir())
    data = bytearray(first.read_bytes())
    data[5000:5100] = b"\xff" * 100
    first.write_bytes(data)
    plan = plan_profile([str(copy)])
    assert json.dumps(plan.source).count("skip") == 1
    assert any("damage is left out" in note for note in plan.notes)
