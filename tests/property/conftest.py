"""How many examples the properties are tried on.

HYPOTHESIS_PROFILE=fast|nightly; `fast` is the default. Where CI is set, examples are the same in
every run.
"""

import os

import pytest
from hypothesis import HealthCheck, settings

pytest.register_assert_rewrite("twins")

_SHARED = {
    "deadline": None,
    "derandomize": bool(os.environ.get("CI")),
    "suppress_health_check": [HealthCheck.too_slow, HealthCheck.data_too_large],
}

settings.register_profile("fast", max_examples=50, **_SHARED)
settings.register_profile("nightly", max_examples=5000, **_SHARED)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "fast"))
