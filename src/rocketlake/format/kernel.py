"""The name of the kernel in use: `native` or `pure`."""

from rocketlake.format._kernel.chooser import KERNEL as _MODULE

KERNEL: str = _MODULE.NAME
