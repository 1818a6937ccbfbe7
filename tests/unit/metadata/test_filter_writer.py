import pytest

from rocketlake.files.json_file import load_table
from rocketlake.filters.bloom import BloomFilter
from rocketlake.metadata import filters
from rocketlake.metadata.filters import FilterBook

DAY_MS = 24 * 3_600_000


@pytest.mark.parametrize("case", ["v5-config", "v5-ext"])
def test_only_the_time_of_death_changes_by_loading(copy_of, case):
    place = copy_of(case)
    path = place.config_dir / filters.FILE_NAME
    before = load_table(path).value
    book = FilterBook.load(place)
    # Everybody counts as dead after loading, so a day later the file would be empty.
    assert all(found.is_dead for found in book.all())
    book.register("other", "g", "a > 1", 1)
    book.persist()
    after = load_table(path).value
    del after["filterDataByTopic"]["other"]
    for topic in before["filterDataByTopic"].values():
        for entry in topic["groupFilterData"].values():
            entry["dead"] = True
            entry["deadTime"] = place.clock.now_ms() - 30_000
    assert after == before


def test_bits_and_members_are_those_of_the_reference(copy_of):
    place = copy_of("v5-ext")
    path = place.config_dir / filters.FILE_NAME
    before = path.read_bytes()
    original = filters.load(place.config_dir)
    path.unlink()
    book = FilterBook.load(place)
    for group in original.topics["SqlTopic"].values():
        place.clock.advance_ms(group.born_time - place.clock.now_ms())
        book.register("SqlTopic", group.consumer_group, group.expression, 1)
    book.persist()
    assert path.read_bytes() == before


def test_subscription_lives_again_by_the_same_version(copy_of):
    book = FilterBook.load(copy_of("v5-config"))
    old = book.get("TopicTest", "CG_sql")
    assert not book.register("TopicTest", "CG_sql", old.expression, old.client_version - 1)
    assert book.register("TopicTest", "CG_sql", old.expression, old.client_version)
    found = book.get("TopicTest", "CG_sql")
    assert (found.dead_time, found.born_time) == (0, old.born_time)
    assert not book.register("TopicTest", "CG_sql", old.expression, old.client_version)


def test_newer_version_of_the_same_expression_keeps_the_birth(place, clock):
    book = FilterBook.load(place)
    book.register("T", "g", "a > 1", 1)
    clock.advance_ms(5)
    assert book.register("T", "g", "a > 1", 2)
    assert book.get("T", "g").born_time == clock.now_ms() - 5
    assert book.register("T", "g", "a > 2", 3)
    assert book.get("T", "g").born_time == clock.now_ms()
    assert book.of_topic("T") == [book.get("T", "g")]


def test_wrong_expression_ends_the_subscription(place):
    book = FilterBook.load(place)
    book.register("T", "g", "a > 1", 1)
    with pytest.raises(ValueError, match="SQL92"):
        book.register("T", "g", "a >", 2)
    assert book.get("T", "g") is None


def test_unregister_lets_die_what_is_not_excepted(place, clock):
    book = FilterBook.load(place)
    for topic in ("T", "U"):
        book.register(topic, "g", "a > 1", 1)
    clock.advance_ms(1)
    assert book.unregister("g", except_topics=["U"]) == 1
    assert book.get("T", "g").dead_time == clock.now_ms()
    assert not book.get("U", "g").is_dead
    assert book.unregister("nobody") == 0


def test_who_is_dead_for_a_day_is_left_out(place, clock):
    book = FilterBook.load(place)
    book.register("T", "g", "a > 1", 1)
    clock.advance_ms(1)
    book.unregister("g")
    clock.advance_ms(DAY_MS - 1)
    book.register("U", "h", "a > 1", 1)
    book.persist()
    assert set(load_table(book.path).value["filterDataByTopic"]) == {"T", "U"}
    clock.advance_ms(1)
    book.register("U", "i", "a > 1", 1)
    book.persist()
    assert set(load_table(book.path).value["filterDataByTopic"]) == {"U"}


def test_filters_of_another_size_are_discarded(copy_of, caplog):
    book = FilterBook.load(copy_of("v5-config"))
    assert book.fit(BloomFilter.sized())
    assert book.all()
    assert not book.fit(BloomFilter.sized(expected_count=64))
    assert book.all() == []
    assert "discarded" in caplog.text


def test_unknown_members_are_kept(copy_of):
    place = copy_of("v5-config")
    path = place.config_dir / filters.FILE_NAME
    path.write_bytes(path.read_bytes().replace(b'"dead":false', b'"dead":false,"extra":7'))
    book = FilterBook.load(place)
    book.register("T", "g", "a > 1", 1)
    book.persist()
    entry = load_table(path).value["filterDataByTopic"]["TopicTest"]["groupFilterData"]["CG_sql"]
    assert entry["extra"] == 7
