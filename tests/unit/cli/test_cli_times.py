"""Times on the command line: milliseconds, or a date and time."""

import itertools

import pytest

from support import command
from support.store_builder import BEGIN_MS, StoreBuilder


@pytest.mark.parametrize("text", ["--5", "²", "yesterday", "0001-01-01T00:00:00"])
def test_command_says_so_in_words(tmp_path, text):
    root = StoreBuilder(tmp_path).records(2).write()
    ran = command.run("dump", root, f"--from-time={text}", "--json")
    assert ran.code in (0, 2)
    assert "Traceback" not in ran.err
    assert ran.err == "" or "is not a time" in ran.problems[-1]


@pytest.mark.parametrize("text", ["9" * 25, "-" + "9" * 25])
def test_numbers_beyond_any_time(tmp_path, text):
    root = StoreBuilder(tmp_path).records(2).write()
    for option, all_of_it in (("--from-time", text[0] == "-"), ("--to-time", text[0] != "-")):
        ran = command.run("dump", root, f"{option}={text}", "--json")
        assert ran.code == 0, ran.err
        assert len(ran.lines) == (2 if all_of_it else 0)


def test_range_holds_its_begin_and_not_its_end(tmp_path):
    builder = StoreBuilder(tmp_path)
    for number in range(6):
        builder.record("T", number % 2, b"%d" % number, stored=BEGIN_MS + number // 2 * 10)
    root = builder.write()

    def dumped(*arguments):
        ran = command.run("dump", root, "--json", "--body", "text", *arguments)
        assert ran.code == 0, ran.err
        return [line["body"] for line in ran.lines]

    assert dumped("--from-time", BEGIN_MS + 10) == ["2", "4", "3", "5"]
    assert dumped("--to-time", BEGIN_MS + 10) == ["0", "1"]
    assert dumped("--from-time", BEGIN_MS + 10, "--to-time", BEGIN_MS + 11) == ["2", "3"]
    assert dumped("--from-time", BEGIN_MS + 1, "--to-time", BEGIN_MS + 10) == []
    assert dumped("--log", "--from-time", BEGIN_MS + 10, "--to-time", BEGIN_MS + 20) == ["2", "3"]
    assert dumped("--from-time", BEGIN_MS - 5, "--to-time", BEGIN_MS) == []


def test_equal_times_over_many_messages_are_all_found(tmp_path):
    """Ten of each time, three units a queue file."""
    builder = StoreBuilder(tmp_path, log_file_size=4000, queue_file_units=3)
    for number in range(50):
        builder.record(body=b"%d" % number, stored=BEGIN_MS + number // 10)
    root = builder.write()
    for step in range(5):
        begin = BEGIN_MS + step
        ran = command.run("dump", root, "--json", "--from-time", begin, "--to-time", begin + 1)
        assert [line["queueOffset"] for line in ran.lines] == list(range(step * 10, step * 10 + 10))


@pytest.mark.parametrize("damage", ["lost file", "zero record", "garbage record"])
def test_damage_in_the_middle_hides_no_message_of_the_time(tmp_path, damage):
    """The search by time meets what cannot be read; everything readable must still be shown."""
    builder = StoreBuilder(tmp_path, log_file_size=1000)
    for number in range(60):
        builder.record(body=b"%d" % number, stored=BEGIN_MS + number)
    in_file = [n for n, p in enumerate(builder.placed) if p.physical_offset // 1000 == 2]
    assert in_file == list(range(20, 30))
    # 24 and 29 are where a binary search of the second queue file looks.
    lost = in_file if damage == "lost file" else [24, 29]
    if damage == "lost file":
        builder.lose_log_file(2000)
    for number in lost if damage != "lost file" else ():
        place = builder.placed[number]
        builder.overwrite(
            place.physical_offset, (b"\0" if damage == "zero record" else b"\x7f") * place.size
        )
    root = builder.write()
    for begin, end in itertools.combinations(range(0, 61, 7), 2):
        ran = command.run(
            *("dump", root, "--json", "--body", "none"),
            *("--from-time", BEGIN_MS + begin, "--to-time", BEGIN_MS + end),
        )
        wanted = [n for n in range(begin, end) if n not in lost]
        found = [line["queueOffset"] for line in ran.lines]
        assert (begin, end, found) == (begin, end, wanted)
