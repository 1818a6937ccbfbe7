import threading

import pytest

from rocketlake.errors import DiskFullError, StoreError
from rocketlake.files.json_file import load_table
from rocketlake.format import java_json
from rocketlake.metadata import topics
from rocketlake.metadata.book import TableLocation
from rocketlake.metadata.table import DataVersion
from rocketlake.metadata.topics import TopicBook
from rocketlake.model.topics import TopicConfig

CASES = ["v5-config", "v4-config"]


@pytest.mark.parametrize("case", CASES)
def test_deleting_what_was_created_gives_the_same_bytes_but_the_version(copy_of, case):
    place = copy_of(case)
    path = place.config_dir / topics.FILE_NAME
    before = path.read_bytes()
    book = TopicBook.load(place)
    assert not book.persist()
    book.create(TopicConfig(name="new"))
    book.delete("new")
    assert book.persist()
    version = java_json.loads(before)["dataVersion"]
    written = path.read_bytes()
    assert written != before
    restored = written.replace(
        b'"timestamp":1800000000000', b'"timestamp":%d' % version["timestamp"]
    ).replace(b'"counter":%d,' % (version["counter"] + 2), b'"counter":%d,' % version["counter"])
    assert restored == before


@pytest.mark.parametrize("case", CASES)
def test_created_topic_has_the_members_of_its_release(copy_of, case):
    place = copy_of(case)
    book = TopicBook.load(place)
    config = TopicConfig(name="new", read_queue_count=4, write_queue_count=4)
    book.create(config)
    book.persist()
    raw = load_table(book.path).value["topicConfigTable"]
    assert list(raw["new"]) == list(raw["TopicTest"])
    assert list(raw)[-1] == "new"
    assert topics.load(place.config_dir).topics["new"] == config


def test_4x_file_gets_attributes_only_with_a_value(copy_of):
    book = TopicBook.load(copy_of("v4-config"))
    book.update(TopicConfig(name="plain"))
    book.update(TopicConfig(name="batch", attributes={"queue.type": "BatchCQ"}))
    book.persist()
    raw = load_table(book.path).value["topicConfigTable"]
    assert "attributes" not in raw["plain"]
    assert raw["batch"]["attributes"] == {"queue.type": "BatchCQ"}


def test_unknown_members_are_kept(place):
    place.config_dir.mkdir()
    path = place.config_dir / topics.FILE_NAME
    path.write_bytes(
        b'{"dataVersion":{"counter":1,"later":2,"timestamp":3},"more":{"x":[1]},'
        b'"topicConfigTable":{"T":{"perm":6,"secret":"s","topicName":"T"},"U":{"odd":1}}}'
    )
    book = TopicBook.load(place)
    book.update(TopicConfig(name="T", perm=4))
    book.persist()
    raw = load_table(path).value
    assert raw["more"] == {"x": [1]}
    assert raw["topicConfigTable"]["T"]["secret"] == "s"
    assert raw["topicConfigTable"]["T"]["perm"] == 4
    assert raw["topicConfigTable"]["U"] == {"odd": 1}
    assert raw["dataVersion"]["later"] == 2
    assert list(raw["topicConfigTable"]["T"]) == sorted(raw["topicConfigTable"]["T"])


def test_every_change_counts_a_version(place, clock):
    book = TopicBook.load(place)
    assert book.version == DataVersion(0, clock.now_ms(), 0)
    clock.advance_ms(5)
    book.create(TopicConfig(name="a"))
    book.create(TopicConfig(name="a", perm=2))
    assert book.version == DataVersion(1, clock.now_ms(), 0)
    book.update(TopicConfig(name="a", perm=2))
    assert not book.delete("b")
    assert book.delete("a")
    assert book.version.counter == 3
    book.persist()
    assert TopicBook.load(place).version == book.version


def test_create_returns_the_topic_that_is_there(place):
    book = TopicBook.load(place)
    first = TopicConfig(name="a", read_queue_count=2)
    assert book.create(first) is first
    assert book.create(TopicConfig(name="a", read_queue_count=9)) is first
    assert book.get("a") is first
    assert book.topics() == [first]
    assert book.get("b") is None


def test_catalog_answers_for_the_store(place):
    book = TopicBook.load(place)
    book.create(TopicConfig(name="a", read_queue_count=2, write_queue_count=3))
    book.create(TopicConfig(name="b", attributes={"queue.type": "BatchCQ"}))
    assert (book.read_queue_count("a"), book.write_queue_count("a")) == (2, 3)
    assert (book.read_queue_count("x"), book.write_queue_count("x")) == (0, 0)
    assert [book.is_batch_queue(name) for name in "abx"] == [False, True, False]


def test_nothing_is_written_without_a_change(place):
    book = TopicBook.load(place)
    assert not book.persist()
    assert not place.config_dir.exists()
    book.create(TopicConfig(name="a"))
    assert book.is_dirty
    assert book.persist()
    assert not book.is_dirty
    assert not book.persist()


def test_book_stays_dirty_when_it_cannot_be_written(place, monkeypatch):
    book = TopicBook.load(place)
    book.create(TopicConfig(name="a"))

    def fail(*_arguments, **_options):
        raise DiskFullError("topics.json.tmp", 10, 0)

    with monkeypatch.context() as patch:
        patch.setattr(place.ops, "create", fail)
        with pytest.raises(DiskFullError):
            book.persist()
    assert book.is_dirty
    assert book.persist()
    assert TopicBook.load(place).get("a") is not None


def test_backup_is_used_and_a_lost_table_is_an_error(place):
    place.config_dir.mkdir()
    path = place.config_dir / topics.FILE_NAME
    path.write_bytes(b'{"topicConfigTable":')
    with pytest.raises(StoreError, match=r"topics\.json"):
        TopicBook.load(place)
    path.with_name("topics.json.bak").write_bytes(b'{"topicConfigTable":{"T":{}}}')
    assert TopicBook.load(place).get("T") == TopicConfig(name="T")


def test_many_threads_lose_no_topic(place):
    book = TopicBook.load(place)

    def work(number):
        for index in range(20):
            book.create(TopicConfig(name=f"{number}-{index}"))
            book.persist()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    loaded = TopicBook.load(TableLocation(place.ops, place.clock, place.config_dir))
    assert len(loaded.topics()) == 80
    assert loaded.version.counter == 80
