"""The hint behind an unknown name: the nearest known ones, or what there is."""

from collections.abc import Collection, Iterable

_SHOWN = 20


def nearest_names(name: str, known: Iterable[str], *, most: int = 1) -> list[str]:
    """Return the known names that are spelled nearly like a name, best first; case is ignored."""
    # Imported here, since it is slow to import and needed only on the way to an error.
    from difflib import get_close_matches  # noqa: PLC0415

    by_lower = {each.lower(): each for each in known}
    return [by_lower[found] for found in get_close_matches(name.lower(), by_lower, most)]


def near_hint(name: str, known: Collection[str]) -> str:
    """Return the end of a refusal: `did you mean 'a' or 'b'?`, or `there are a, b and 3 more`."""
    if near := nearest_names(name, known, most=3):
        return f"did you mean {' or '.join(map(repr, near))}?"
    shown = ", ".join(list(known)[:_SHOWN]) or "none"
    more = f" and {len(known) - _SHOWN} more" if len(known) > _SHOWN else ""
    return f"there are {shown}{more}"
