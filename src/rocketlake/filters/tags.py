"""Tag expressions.

1. No expression, an empty one and `*` alone match every message, tagged or not.
2. Anything else is a list of tags separated by `||`. Blanks around a tag and empty items are
   dropped; a `*` in a list is an ordinary tag.
3. A queue unit holds only the hash of a tag, so other tags may pass the hash test. The exact test
   on the message follows.
"""

from typing import Self

from msgspec import Struct

from rocketlake.filters.java_text import trim
from rocketlake.model.hashes import java_hash, wrap_int

EVERYTHING = "*"
SEPARATOR = "||"


class TagFilter(Struct, frozen=True, kw_only=True):
    """The tags a subscription wants, as text and as hashes.

    Invariants: `hashes` are the hashes of `tags`; both are empty when `is_everything`. Both may be
    empty without it, for an expression of blanks: then nothing matches.
    """

    tags: frozenset[str]
    hashes: frozenset[int]
    is_everything: bool

    @classmethod
    def parse(cls, expression: str | None) -> Self:
        """Parse an expression.

        Raises:
            ValueError: The expression consists of separators only.
        """
        if expression is None or expression in ("", EVERYTHING):
            return cls(tags=frozenset(), hashes=frozenset(), is_everything=True)
        items = expression.split(SEPARATOR)
        if not any(items):
            # Compat: as FilterAPI#buildSubscriptionData, which takes blanks between separators.
            raise ValueError(
                f"tag expression {expression!r}: expected a tag, '*' or nothing at all"
            )
        tags = frozenset(tag for item in items if (tag := trim(item)))
        return cls(tags=tags, hashes=frozenset(map(java_hash, tags)), is_everything=False)

    def matches_code(self, tags_code: int) -> bool:
        """Tell whether the message of a unit with this code may be wanted."""
        # Compat: as ExpressionMessageFilter#isMatchedByConsumeQueue: the low 32 bits only.
        return self.is_everything or wrap_int(tags_code) in self.hashes

    def matches(self, tag: str | None) -> bool:
        """Tell whether a message with this tag is wanted."""
        return self.is_everything or tag in self.tags
