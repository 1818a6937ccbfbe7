from rocketlake.near_names import near_hint, nearest_names


def test_the_nearest_name_is_found_whatever_its_case() -> None:
    known = ["maxPartitionBytes", "minPartitions", "topic"]
    assert nearest_names("MINPARTITION", known) == ["minPartitions"]
    assert nearest_names("topik", known) == ["topic"]
    assert nearest_names("zzz", known) == []


def test_a_hint_names_near_names_or_else_what_there_is() -> None:
    assert near_hint("order", ["orders", "order-items", "payments"]) == (
        "did you mean 'orders' or 'order-items'?"
    )
    assert near_hint("zzz", ["a", "b"]) == "there are a, b"
    assert near_hint("zzz", []) == "there are none"
    many = [f"T{number:02}" for number in range(25)]
    assert near_hint("zzz", many) == f"there are {', '.join(many[:20])} and 5 more"
