"""`rocketlake dump`: which messages it prints, and in which order."""

import pytest

from rocketlake.model.flags import TransactionType
from support import command
from support.store_builder import StoreBuilder


@pytest.fixture
def builder(tmp_path):
    return StoreBuilder(tmp_path / "store", log_file_size=2000)


@pytest.fixture
def store(builder):
    """Three topics; tags A and B in turn, a number as property `n`."""
    for number in range(12):
        builder.record(
            ("Apple", "Apricot", "Beet")[number % 3],
            number % 2,
            b"%d" % number,
            tags="AB"[number % 2],
            keys=[f"k{number}", "all"],
            properties={"n": str(number)},
        )
    return builder.write()


def dump(root, *arguments, code=0):
    ran = command.run("dump", root, "--json", "--body", "text", *arguments)
    assert ran.code == code, ran.err
    return ran


def bodies(root, *arguments, code=0):
    return [line["body"] for line in dump(root, *arguments, code=code).lines]


# --- order and ranges ------------------------------------------------------------------------


def test_order_is_topic_queue_offset(store):
    lines = dump(store).lines
    assert len(lines) == 12
    places = [(line["topic"], line["queueId"], line["queueOffset"]) for line in lines]
    assert places == sorted(places)


def test_topics_by_name_and_pattern(store):
    assert bodies(store, "--topic", "Beet") == ["2", "8", "5", "11"]
    both = bodies(store, "--topic", "Ap*")
    assert both == bodies(store, "--topic", "Apple", "--topic", "Apricot")
    assert len(both) == 8
    assert bodies(store, "--topic", "A[!x]*", "--queue", 0) == ["0", "6", "4", "10"]


@pytest.mark.parametrize(("name", "near"), [("Aple", "Apple"), ("xyz", "Apple"), ("b*t", "Beet")])
def test_unknown_topic_is_a_note(store, name, near):
    ran = dump(store, "--topic", name)
    assert ran.lines == []
    (note,) = ran.problems
    assert note.startswith(f"note: no topic {name!r} in this store; it has ")
    assert near in note


def test_topic_of_an_empty_store_is_a_note(tmp_path):
    (tmp_path / "commitlog").mkdir()
    ran = dump(tmp_path, "--topic", "T")
    assert ran.problems == ["note: no topic 'T' in this store; it has none"]


def test_topic_whose_name_is_a_pattern(builder):
    builder.record("%RETRY%a[1]", body=b"x").record("%RETRY%a1", body=b"y")
    root = builder.write()
    assert bodies(root, "--topic", "%RETRY%a[1]") == ["y", "x"]


def test_queue(store):
    assert bodies(store, "--topic", "Beet", "--queue", 1) == ["5", "11"]
    assert bodies(store, "--queue", 7) == []
    assert bodies(store, "--queue", -1) == []
    assert bodies(store, "--queue", 1 << 70) == []


def test_offsets_hold_their_begin_and_not_their_end(store):
    assert bodies(store, "--from-offset", 1) == ["6", "9", "10", "7", "8", "11"]
    assert bodies(store, "--to-offset", 1) == ["0", "3", "4", "1", "2", "5"]
    assert bodies(store, "--from-offset", 1, "--to-offset", 1) == []
    assert bodies(store, "--from-offset", -5, "--to-offset", 1 << 70) == bodies(store)
    assert bodies(store, "--from-offset", 1 << 70) == []


@pytest.mark.parametrize("limit", [0, 1, 3, 12, 100])
def test_limit(store, limit):
    everything = bodies(store)
    assert bodies(store, "--limit", limit) == everything[:limit]
    assert len(bodies(store, "--log", "--limit", limit)) == min(limit, 12)
    assert len(bodies(store, "--key", "all", "--limit", limit)) == min(limit, 12)


# --- filters ---------------------------------------------------------------------------------


def test_tags(store):
    assert bodies(store, "--topic", "Beet", "--tag", "A") == ["2", "8"]
    assert len(bodies(store, "--tag", "A || B")) == 12
    assert len(bodies(store, "--tag", "*")) == 12
    assert bodies(store, "--tag", "C") == []
    assert bodies(store, "--log", "--tag", "B") == ["1", "3", "5", "7", "9", "11"]


def test_colliding_tags_are_told_apart(builder):
    """`Aa` and `BB` have the same hash: the record decides."""
    root = builder.record(body=b"a", tags="Aa").record(body=b"b", tags="BB").write()
    assert bodies(root, "--tag", "Aa") == ["a"]


def test_tags_of_delayed_messages_are_those_of_the_record(builder):
    """The unit of the schedule topic holds a time, not the tag's hash."""
    builder.record("SCHEDULE_TOPIC_XXXX", 0, b"a", tags="A", properties={"DELAY": "1"}, code=123)
    builder.record("SCHEDULE_TOPIC_XXXX", 0, b"b", tags="B", properties={"DELAY": "1"}, code=124)
    assert bodies(builder.write(), "--tag", "A") == ["a"]


def test_sql(store):
    assert sorted(map(int, bodies(store, "--sql", "n > 8"))) == [9, 10, 11]
    assert bodies(store, "--log", "--sql", "n BETWEEN 3 AND 4 OR TAGS = 'C'") == ["3", "4"]
    assert bodies(store, "--sql", "missing IS NOT NULL") == []


def test_filters_go_together(store):
    found = bodies(store, "--topic", "A*", "--tag", "A", "--sql", "n > 2", "--to-offset", 2)
    assert found == ["6", "4", "10"]


@pytest.mark.parametrize(
    "arguments",
    [
        ("--sql", "n >"),
        ("--sql", ""),
        ("--sql", "n > 'x"),
        ("--sql", "(((((n > 1"),
        ("--tag", "||"),
        ("--tag", "||||"),
    ],
)
@pytest.mark.parametrize("name", ["dump", "tail"])
def test_broken_expression_is_one_clear_line(store, name, arguments):
    ran = command.run(name, store, *arguments)
    assert ran.code == 2
    assert ran.out == ""
    *usage, line = ran.problems
    assert line.startswith("Error: Invalid value: ")
    assert arguments[0] in line
    # What stands before it is how to use the command, not more of the error.
    assert all(text.startswith(("Usage: ", "Try ")) for text in usage if text)


def test_end_of_an_expression_that_is_ignored_is_told(store):
    ran = dump(store, "--sql", "n > 8 banana")
    assert ran.lines
    assert "RocketMQ ignores the end of this expression" in ran.err


# --- keys ------------------------------------------------------------------------------------


def test_keys(store):
    assert bodies(store, "--topic", "Beet", "--key", "k5") == ["5"]
    assert bodies(store, "--topic", "Beet", "--key", "k4") == []
    assert bodies(store, "--key", "k4") == ["4"]
    assert bodies(store, "--topic", "Beet", "--key", "all") == ["2", "8", "5", "11"]
    assert bodies(store, "--topic", "Be*", "--key", "all") == ["2", "8", "5", "11"]
    assert len(bodies(store, "--key", "all")) == 12
    assert bodies(store, "--key", "all", "--queue", 1, "--topic", "Apple") == ["3", "9"]
    assert bodies(store, "--key", "all", "--topic", "Apple", "--from-offset", 1) == ["6", "9"]
    assert bodies(store, "--key", "all", "--topic", "Apple", "--tag", "A") == ["0", "6"]
    assert bodies(store, "--key", "all", "--sql", "n = 7") == ["7"]


def test_keys_within_a_time(builder, store):
    times = [place.store_timestamp for place in builder.placed]
    arguments = ("--key", "all", "--from-time", times[4], "--to-time", times[6])
    assert sorted(bodies(store, *arguments)) == ["4", "5"]
    assert sorted(bodies(store, *arguments, "--topic", "Apricot")) == ["4"]


def test_key_without_an_index_is_scanned_for_and_said(builder, store):
    builder.lose_index()
    ran = dump(store, "--key", "k7")
    assert [line["body"] for line in ran.lines] == ["7"]
    assert ran.problems == ["note: there is no index: keys are found by scanning the log"]


@pytest.mark.parametrize("key", ["", " ", "nothing", "键"])
def test_key_that_nobody_has(store, key):
    assert bodies(store, "--key", key) == []
    assert bodies(store, "--topic", "Beet", "--key", key) == []


@pytest.mark.parametrize("option", ["--key", "--topic", "--tag", "--sql"])
def test_argument_that_is_no_text_does_no_harm(store, option):
    """A shell hands over any bytes; Python makes them half of a surrogate pair."""
    text = "n = '\udcff'" if option == "--sql" else "\udcff"
    ran = command.run("dump", store, "--json", option, text)
    assert ran.code in (0, 2)
    assert "Traceback" not in ran.err


# --- along the log ---------------------------------------------------------------------------


def test_log_order_and_what_no_queue_points_to(builder):
    builder.record("B", 0, b"first").record("A", 0, b"second")
    builder.record("A", 0, b"half", sys_flag=TransactionType.PREPARED)
    builder.record("A", 0, b"back", sys_flag=TransactionType.ROLLBACK)
    builder.record("A", 0, b"third")
    root = builder.write()
    assert bodies(root) == ["second", "third", "first"]
    lines = dump(root, "--log").lines
    assert [(line["body"], line["queued"]) for line in lines] == [
        ("first", True),
        ("second", True),
        ("half", False),
        ("back", False),
        ("third", True),
    ]


def test_log_may_be_narrowed_down(store):
    assert bodies(store, "--log", "--topic", "Beet") == ["2", "5", "8", "11"]
    assert bodies(store, "--log", "--queue", 1, "--to-offset", 1) == ["1", "3", "5"]


def test_unclean_tail_is_shown(builder):
    builder.record(body=b"old").record(body=b"new", dispatched=False).torn_record(50).unclean()
    root = builder.write()
    assert bodies(root) == ["old", "new"]
    assert bodies(root, "--log") == ["old", "new"]


@pytest.mark.parametrize("number", [0, 1, 2])
@pytest.mark.parametrize("arguments", [[], ["--log"], ["--key", "all"]])
def test_damage_ends_with_1_whatever_is_asked(builder, number, arguments):
    """Good records lie behind the one whose checksum is wrong."""
    for body in (b"0", b"1", b"2", b"3"):
        builder.record(body=body, keys=["all"])
    root = builder.flip_body(number).write()
    ran = dump(root, *arguments, code=1)
    assert [line["body"] for line in ran.lines] == [str(n) for n in range(number)]
    damages = [line for line in ran.problems if line.startswith("damage: ")]
    assert len(damages) == 1
    assert "does not have its checksum" in damages[0]


def test_many_findings_are_counted_not_listed(tmp_path):
    builder = StoreBuilder(tmp_path, log_file_size=1000).records(60)
    last = next(n for n, p in enumerate(builder.placed) if p.physical_offset >= 5000)
    for number in range(last):
        builder.flip_body(number)
    ran = command.run("dump", builder.write(), "--json")
    assert ran.code == 1
    assert len(ran.lines) == 60 - last
    assert len(ran.problems) == 21
    assert ran.problems[-1] == f"damage: {last - 20} more findings not shown"


def test_batches_and_light_queues_say_where_they_stand(builder):
    builder.inner_batch(3).inner_batch(2).record("T", 0, b"x", light=["%LMQ%a"])
    builder.record("T", 0, b"y").record("T", 0, b"z", light=["%LMQ%a"])
    root = builder.write()
    batches = dump(root, "--topic", "B").lines
    assert [(line["cqOffset"], line["batchNum"]) for line in batches] == [(0, 3), (3, 2)]
    light = dump(root, "--topic", "%LMQ%a").lines
    assert [(line["topic"], line["body"]) for line in light] == [("T", "x"), ("T", "z")]
    assert light[1]["cqOffset"] == 1
    assert light[1]["queueOffset"] == 2


def test_batch_in_a_time_range(builder):
    """Batches of 3, 1, 2, 5; the range takes the second and the third."""
    for count in (3, 1, 2, 5):
        builder.inner_batch(count)
    root = builder.write()
    times = [place.store_timestamp for place in builder.placed]
    for begin in range(4):
        for end in range(begin, 4):
            lines = dump(root, "--from-time", times[begin], "--to-time", times[end]).lines
            assert [line.get("batchNum", 1) for line in lines] == [3, 1, 2, 5][begin:end]
