"""What this kernel is called."""

from typing import Final

NAME: Final = "pure"
