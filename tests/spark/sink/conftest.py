"""Tests of the sink import their own modules by name."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
