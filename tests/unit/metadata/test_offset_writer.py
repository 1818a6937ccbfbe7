import threading

import pytest

from rocketlake.files.json_file import load_table
from rocketlake.metadata import offsets
from rocketlake.metadata.offsets import DelayOffsets, LightOffsetBook, OffsetBook

CASES = ["v5-config", "v4-config"]


@pytest.mark.parametrize("case", CASES)
def test_commit_changes_one_number_of_the_file(copy_of, case):
    place = copy_of(case)
    path = place.config_dir / offsets.FILE_NAME
    before = path.read_bytes()
    book = OffsetBook.load(place)
    assert not book.persist()
    book.commit("TopicTest", "CG_1", 0, 100)
    assert book.persist()
    assert path.read_bytes() == before.replace(b"{0:99,", b"{0:100,")


def test_new_group_is_added_as_the_release_does(copy_of):
    for case in CASES:
        place = copy_of(case)
        book = OffsetBook.load(place)
        for queue_id in (11, 2, 0):
            book.commit("T", "new", queue_id, queue_id + 1)
        book.persist()
        value = load_table(book.path).value
        assert list(value["offsetTable"])[-1] == "T@new"
        assert list(value["offsetTable"]["T@new"].items()) == [(0, 1), (2, 3), (11, 12)]
        assert ("groupTopicMap" in value) == ("dataVersion" in value) == (case == "v5-config")
        if case == "v5-config":
            assert value["groupTopicMap"] == {
                "CG_2": ["OrderedTopic"],
                "CG_1": ["TopicTest"],
                "new": ["T"],
            }
        assert b'"T@new":{0:1,2:3,11:12\n' in book.path.read_bytes()


def test_get_commit_and_reset(place):
    book = OffsetBook.load(place)
    assert book.get("T", "g", 0) is None
    book.commit("T", "g", 0, 5)
    book.commit("T", "g", 0, 3)
    book.commit("T", "g", 1, 9)
    assert book.get("T", "g", 0) == 3
    book.reset("T", "g", {0: 0, 2: 7})
    assert book.offsets("T", "g") == {0: 0, 1: 9, 2: 7}
    book.persist()
    assert OffsetBook.load(place).offsets("T", "g") == {0: 0, 1: 9, 2: 7}


def test_same_offset_again_is_no_change(place):
    book = OffsetBook.load(place)
    book.commit("T", "g", 0, 5)
    book.persist()
    book.commit("T", "g", 0, 5)
    assert not book.is_dirty


def test_every_500th_commit_counts_a_version(place, clock):
    book = OffsetBook.load(place)
    for offset in range(499):
        book.commit("T", "g", 0, offset)
    assert book.version.counter == 0
    clock.advance_ms(7)
    book.commit("T", "g", 0, 499)
    assert (book.version.counter, book.version.timestamp) == (1, clock.now_ms())


def test_topics_and_groups_are_removed(place):
    book = OffsetBook.load(place)
    for topic in ("T", "U"):
        for group in ("g", "h"):
            book.commit(topic, group, 0, 1)
    assert book.topics_of("g") == ["T", "U"]
    assert book.groups_of("U") == ["g", "h"]
    assert book.remove("T", "g")
    assert not book.remove("T", "g")
    assert book.remove_topic("T") == 1
    assert book.remove_group("g") == 1
    assert list(book.snapshot().offsets) == ["U@h"]
    assert book.remove_group("nobody") == 0


def test_clone_copies_the_offsets_of_a_group(place):
    book = OffsetBook.load(place)
    book.commit("T", "g", 3, 1)
    assert book.clone("g", "h", "T")
    book.commit("T", "g", 3, 2)
    assert book.offsets("T", "h") == {3: 1}
    assert not book.clone("nobody", "h", "T")


def test_snapshot_does_not_change_with_the_book(place):
    book = OffsetBook.load(place)
    book.commit("T", "g", 0, 1)
    snapshot = book.snapshot()
    book.commit("T", "g", 0, 2)
    assert snapshot.get("T", "g", 0) == 1


def test_keys_that_are_no_topic_and_group_and_unknown_members_are_kept(place):
    place.config_dir.mkdir()
    path = place.config_dir / offsets.FILE_NAME
    path.write_bytes(b'{"offsetTable":{"odd":{0:1},"T@g":{0:2}},"more":[1]}')
    book = OffsetBook.load(place)
    book.commit("T", "g", 0, 3)
    book.persist()
    value = load_table(path).value
    assert value["offsetTable"] == {"odd": {0: 1}, "T@g": {0: 3}}
    assert value["more"] == [1]


def test_light_queues_have_a_table_of_their_own(place):
    book = LightOffsetBook.load(place)
    book.commit("%LMQ%q", "%LMQ%g", 0, 12)
    book.commit("T", "g", 1, 3)
    book.persist()
    assert book.path.name == "lmqConsumerOffset.json"
    value = load_table(book.path).value
    assert value["lmqOffsetTable"] == {"%LMQ%q@%LMQ%g": 12}
    assert value["offsetTable"] == {"T@g": {1: 3}}
    assert value["groupTopicMap"] == {"g": ["T"]}
    loaded = LightOffsetBook.load(place)
    assert loaded.get("%LMQ%q", "%LMQ%g", 0) == 12
    assert loaded.get("T", "g", 1) == 3


def test_light_table_of_the_reference_is_kept(copy_of):
    book = LightOffsetBook.load(copy_of("classes"))
    before = load_table(book.path).value
    book.commit("T", "g", 0, 1)
    book.remove_group("g")
    book.persist()
    after = load_table(book.path).value
    assert after["lmqOffsetTable"] == before["lmqOffsetTable"]


def test_light_book_starts_with_what_the_other_has(copy_of):
    assert LightOffsetBook.load(copy_of("v5-config")).get("TopicTest", "CG_1", 3) == 13


@pytest.mark.parametrize("case", ["v5-delay-after", "v4-delay-after", "v46-delay-after"])
def test_delay_offsets_of_the_reference_are_changed_in_place(copy_of, case):
    place = copy_of(case)
    path = place.config_dir / offsets.DELAY_FILE_NAME
    before = path.read_bytes()
    book = DelayOffsets.load(place)
    book.set(2, 2)
    assert not book.persist()
    book.set(2, 7)
    assert book.persist()
    assert path.read_bytes() == before.replace(b"2:2", b"2:7")
    assert book.get(1) == 3
    assert book.get(9) == 0
    assert book.snapshot()[2] == 7


def test_empty_delay_table_has_the_bytes_of_the_reference(copy_of, place, clock):
    book = DelayOffsets.load(place)
    book.set(3, 1)
    book.set(3, 0)
    book.persist()
    assert book.path.read_bytes() == (
        b'{\n\t"dataVersion":{\n\t\t"counter":0,\n\t\t"stateVersion":0,\n'
        b'\t\t"timestamp":1800000000000\n\t},\n\t"offsetTable":{3:0\n\t}\n}'
    )


def test_every_200th_update_counts_a_version(place):
    book = DelayOffsets.load(place)
    for offset in range(400):
        book.set(1, offset)
    assert book.version.counter == 2


def test_commits_of_many_threads_are_all_there(place):
    book = OffsetBook.load(place)

    def work(number):
        for offset in range(300):
            book.commit("T", f"g{number}", 0, offset)
            if offset % 50 == 0:
                book.persist()

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    book.persist()
    loaded = OffsetBook.load(place)
    assert [loaded.get("T", f"g{number}", 0) for number in range(4)] == [299] * 4
