import pytest

from rocketlake.files.json_file import LoadedTable, backup_path, load_table


@pytest.fixture
def path(tmp_path):
    return tmp_path / "topics.json"


def write(path, text):
    path.write_text(text)
    return path


def test_file_that_is_whole_is_used(path):
    write(path, '{"a":{0:1}}')
    write(backup_path(path), '{"a":{0:0}}')
    assert load_table(path) == LoadedTable({"a": {0: 1}}, "file", None)


def test_backup_lies_beside_the_file(path):
    assert backup_path(path).name == "topics.json.bak"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (None, "topics.json is missing"),
        ("", "topics.json: the file is empty"),
        (" \n", "topics.json: the file is empty"),
        (
            '{"a":{0:',
            "topics.json: line 1 column 9: expected a value, found the end of the text",
        ),
        (
            "\0" * 20,
            "topics.json: line 1 column 1: expected a value, found '\\x00'",
        ),
        ("null", "topics.json: the file holds no JSON object"),
        ("[1]", "topics.json: the file holds no JSON object"),
    ],
)
def test_backup_is_used_when_the_file_is_of_no_use(path, text, problem):
    if text is not None:
        write(path, text)
    write(backup_path(path), '{"a":1}')
    assert load_table(path) == LoadedTable({"a": 1}, "backup", problem)


def test_directory_in_place_of_the_file_is_a_problem(path):
    path.mkdir()
    write(backup_path(path), "{}")
    loaded = load_table(path)
    assert (loaded.value, loaded.source) == ({}, "backup")
    assert loaded.problem == "topics.json: Is a directory"


def test_neither_file_is_no_problem(path):
    assert load_table(path) == LoadedTable(None, "missing", None)
    assert load_table(path / "no" / "such" / "directory") == LoadedTable(None, "missing", None)


def test_file_and_backup_of_no_use_tell_both_reasons(path):
    write(path, "")
    assert load_table(path) == LoadedTable(
        None, "missing", "topics.json: the file is empty; topics.json.bak is missing", is_blank=True
    )
    write(backup_path(path), "{")
    loaded = load_table(path)
    assert loaded.source == "missing"
    assert loaded.problem is not None
    assert "; topics.json.bak: line 1 column 2: expected a key" in loaded.problem
    assert not loaded.is_blank
    write(backup_path(path), " ")
    assert load_table(path).is_blank
    write(path, "{")
    assert not load_table(path).is_blank


def test_decoder_makes_the_value(path):
    write(path, '{"a":3}')
    assert load_table(path, lambda value: value["a"]).value == 3


def test_value_the_decoder_refuses_leads_to_the_backup(path):
    def decode(value):
        if value["perm"] == "x":
            raise ValueError("perm: Expected `int`, got `str`")
        return value["perm"]

    write(path, '{"perm":"x"}')
    write(backup_path(path), '{"perm":6}')
    assert load_table(path, decode) == LoadedTable(
        6, "backup", "topics.json: perm: Expected `int`, got `str`"
    )


def test_reading_changes_nothing(path):
    write(path, "{broken")
    write(backup_path(path), "{}")
    load_table(path)
    assert sorted(child.name for child in path.parent.iterdir()) == [
        "topics.json",
        "topics.json.bak",
    ]
    assert path.read_text() == "{broken"
