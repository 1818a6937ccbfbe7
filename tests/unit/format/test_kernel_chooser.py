"""One layout for both kernels, and who is chosen; each choice is made in a process of its own."""

import os
import struct
import subprocess
import sys

import pytest

from rocketlake.format import layout
from rocketlake.format._kernel import chooser, codes, pure
from rocketlake.format.record import ROW_DTYPE

try:
    from rocketlake.format._kernel import native
except ImportError:
    native = None

needs_native = pytest.mark.skipif(native is None, reason="the compiled kernel is not built")

PRINT_KERNEL = "from rocketlake.format.kernel import KERNEL; print(KERNEL)"


def run_python(code, kernel=None):
    """Run code in a new interpreter; return its exit code, output and last line of error."""
    env = {name: value for name, value in os.environ.items() if name != "ROCKETLAKE_KERNEL"}
    if kernel is not None:
        env["ROCKETLAKE_KERNEL"] = kernel
    done = subprocess.run(
        [sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout.strip(), (done.stderr.strip().splitlines() or [""])[-1]


# --- layout ----------------------------------------------------------------------------------


@needs_native
def test_layout_of_the_compiled_kernel_is_the_layout():
    assert native.LAYOUT
    assert {name: getattr(layout, name) for name in native.LAYOUT} == native.LAYOUT


@needs_native
@pytest.mark.parametrize(
    "name", ["MAGIC_V1", "MAGIC_V2", "MAGIC_BLANK", "ROW_SIZE", "UNIT_SIZE", "EXT_ADDRESS_MAX"]
)
def test_layout_of_the_compiled_kernel_tells_what_matters(name):
    assert name in native.LAYOUT


@needs_native
def test_both_kernels_have_the_same_functions():
    wanted = {name for name in pure.__all__ if name != "NAME"}
    functions = {name for name in vars(native) if not name.startswith("_")}
    assert functions - {"NAME", "LAYOUT"} == wanted
    assert (pure.NAME, native.NAME) == ("pure", "native")


def test_row_of_the_layout_is_the_row_of_the_columns():
    assert struct.calcsize(layout.ROW_FORMAT) == layout.ROW_SIZE == ROW_DTYPE.itemsize == 104
    letters = {"i8": "q", "i4": "i", "i2": "h"}
    kinds = [letters[ROW_DTYPE[name].str[1:]] for name in ROW_DTYPE.names]
    assert kinds == ["q"] * 9 + ["i"] * 7 + ["h"] * 2


def test_magic_numbers_are_those_of_the_spec():
    magics = (layout.MAGIC_V1, layout.MAGIC_V2, layout.MAGIC_BLANK)
    assert [f"{magic & 0xFFFFFFFF:08X}" for magic in magics] == ["DAA320A7", "DAA320AB", "CBD43194"]


def test_smallest_record_is_91_bytes():
    assert layout.RECORD_FIXED_SIZE + 2 * layout.HOST_V4_SIZE + 4 + 1 + 2 == 91
    assert layout.RECORD_MIN_SIZE == 91


def test_codes_of_reasons_and_checks_are_fixed():
    """The compiled kernel has them as numbers of its own."""
    assert [reason.value for reason in codes.StopReason] == list(range(9))
    assert [check.value for check in codes.Check] == [1, 2, 4, 8, 16]


# --- chooser ---------------------------------------------------------------------------------


def test_pure_is_chosen_when_asked_for():
    assert run_python(PRINT_KERNEL, "pure") == (0, "pure", "")


def test_pure_does_not_even_look_for_the_compiled_kernel():
    code = f"{PRINT_KERNEL}; import sys; print('rocketlake.format._kernel.native' in sys.modules)"
    assert run_python(code, "pure")[:2] == (0, "pure\nFalse")


@needs_native
@pytest.mark.parametrize("wish", ["native", "auto", None])
def test_native_is_chosen_where_it_was_built(wish):
    assert run_python(PRINT_KERNEL, wish) == (0, "native", "")


@pytest.mark.parametrize("wish", ["", "Native", "fast", "pure "])
def test_unknown_wish_is_refused_with_what_is_allowed(wish):
    status, _, error = run_python(PRINT_KERNEL, wish)
    assert status == 1
    assert "ConfigError" in error
    assert f"ROCKETLAKE_KERNEL must be auto, native or pure, not {wish!r}" in error


# A compiled kernel that is missing, or is another one, for the process that runs this first.
MISSING = "import sys; sys.modules['rocketlake.format._kernel.native'] = None\n"
REPLACED = """
import sys, types
from rocketlake.format import layout
native = types.ModuleType("rocketlake.format._kernel.native")
native.NAME = "native"
native.LAYOUT = {"MAGIC_V1": layout.MAGIC_V1, "ROW_SIZE": layout.ROW_SIZE, **CHANGES}
sys.modules[native.__name__] = native
"""


def test_missing_native_is_pure_for_auto_and_an_error_for_native():
    assert run_python(MISSING + PRINT_KERNEL, "auto") == (0, "pure", "")
    status, _, error = run_python(MISSING + PRINT_KERNEL, "native")
    assert status == 1
    assert "ConfigError" in error
    assert "the compiled kernel was not built" in error


def test_native_of_the_same_layout_is_taken():
    assert run_python(REPLACED.replace("CHANGES", "{}") + PRINT_KERNEL) == (0, "native", "")


@pytest.mark.parametrize("wish", ["auto", "native"])
def test_native_of_another_layout_is_refused_with_what_differs(wish):
    code = REPLACED.replace("CHANGES", '{"ROW_SIZE": 96}') + PRINT_KERNEL
    status, _, error = run_python(code, wish)
    assert status == 1
    assert "ConfigError" in error
    assert "another layout" in error
    assert "'ROW_SIZE': (96, 104)" in error
    assert run_python(code, "pure") == (0, "pure", "")


def test_native_with_a_constant_nobody_knows_is_refused():
    code = REPLACED.replace("CHANGES", '{"NO_SUCH_NAME": 1}') + PRINT_KERNEL
    status, _, error = run_python(code)
    assert status == 1
    assert "ConfigError" in error
    assert "NO_SUCH_NAME" in error


def test_other_interpreters_get_pure(monkeypatch):
    monkeypatch.setattr("platform.python_implementation", lambda: "PyPy")
    assert chooser.choose("auto") is pure
    assert chooser.choose("native") is pure
