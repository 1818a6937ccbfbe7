"""How a pickled message comes back: as the class of whichever kernel reads it."""

from typing import Any


def rebuild_message(values: dict[str, Any]) -> Any:
    """Make a message from its fields."""
    # Why here: the chooser imports the kernels, and those import this module.
    from rocketlake.format._kernel.chooser import KERNEL  # noqa: PLC0415

    return KERNEL.StoredMessage(**values)
