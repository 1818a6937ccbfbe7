"""The same tests on the other kernel."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from rocketlake.format.kernel import KERNEL

HERE = Path(__file__).resolve()
OTHER = "pure" if KERNEL == "native" else "native"


def test_the_other_kernel_reads_the_same():
    if OTHER == "native":
        built = [*HERE.parents[2].glob("src/rocketlake/format/_kernel/native.*.so")]
        if not built:
            pytest.skip("the compiled kernel was not built")
    ran = subprocess.run(
        [
            *(sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--tb=short"),
            *(str(HERE.parent), "--ignore", str(HERE)),
        ],
        env={**os.environ, "ROCKETLAKE_KERNEL": OTHER},
        cwd=HERE.parents[2],
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    assert f"kernel: {OTHER}\n" in ran.stdout
    assert ran.returncode == 0, f"on the {OTHER} kernel:\n{ran.stdout[-6000:]}{ran.stderr[-2000:]}"
