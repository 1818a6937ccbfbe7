"""Pieces of HTML; text that is not one is escaped, always.

Names of topics, keys and tags come from anybody who may send a message. The one way to make an
`Html` is `tag`, which escapes every child and attribute that is not one already.
"""

import html
import unicodedata
from typing import Final

from rocketlake.spark.jobs.profile.number_text import shortened

_VOID: Final = frozenset({"meta", "path", "rect", "line", "col"})
_TITLE_MAX: Final = 1000


class Html(str):
    """Text that is markup already."""

    __slots__ = ()


def join(*children: object) -> Html:
    """Put pieces one after the other; what is no markup is escaped."""
    return Html("".join(_piece(child) for child in children))


def tag(name: str, /, *children: object, **attributes: object) -> Html:
    """Make an element; `class_` is class, `data_x` is data-x, None leaves an attribute out."""
    parts = [name]
    for key, value in attributes.items():
        if value is None or value is False:
            continue
        spelled = key.rstrip("_").replace("_", "-") if key != "viewBox" else key
        if value is True:
            parts.append(spelled)
        else:
            parts.append(f'{spelled}="{html.escape(visible(str(value)))}"')
    head = " ".join(parts)
    if name in _VOID and not children:
        return Html(f"<{head}/>" if name != "meta" else f"<{head}>")
    return Html(f"<{head}>{join(*children)}</{name}>")


def visible(text: str) -> str:
    """Show what else would hide or reorder text: controls, and marks of direction."""
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() or c == " " else f"\\u{ord(c):04x}" if _is_hidden(c) else c
        for c in text
    )


def name_of(text: str) -> Html:
    """Show a name from the store: isolated, cut if very long, whole in its title."""
    shown = shortened(visible(text))
    title = shortened(text, _TITLE_MAX) if shown != text else None
    return tag("bdi", shown or "(empty)", class_="name", title=title)


def _is_hidden(char: str) -> bool:
    return unicodedata.category(char) in {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp"}


def _piece(child: object) -> str:
    if child is None:
        return ""
    if isinstance(child, Html):
        return str(child)
    if isinstance(child, list):
        return str(join(*child))
    return html.escape(visible(str(child)))
