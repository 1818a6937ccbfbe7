"""Builds the compiled kernel; everything else about the package is in pyproject.toml.

ROCKETLAKE_BUILD_KERNEL=auto (the default) builds it if a C compiler works and otherwise goes on
without: the pure twin then serves. `require` makes a failed build an error, `skip` does not try.
"""

import os
import sys
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

MODE = os.environ.get("ROCKETLAKE_BUILD_KERNEL", "auto")
if MODE not in {"auto", "require", "skip"}:
    sys.exit(f"ROCKETLAKE_BUILD_KERNEL must be auto, require or skip, not {MODE!r}")


class BuildKernel(build_ext):
    """Compiles the kernel, or says plainly that the pure twin will serve."""

    def finalize_options(self):
        super().finalize_options()
        # Why: file times do not tell of another interpreter, another flag or another checkout.
        self.force = True

    def run(self):
        try:
            super().run()
        except Exception as error:  # noqa: BLE001 - whatever it was, the pure twin serves
            self._fall_back(error)

    def build_extension(self, extension):
        try:
            super().build_extension(extension)
        except Exception as error:  # noqa: BLE001 - whatever it was, the pure twin serves
            self._fall_back(error)

    def _fall_back(self, error):
        if MODE == "require":
            raise error
        print(f"rocketlake: no compiled kernel ({error}); the pure one will serve", file=sys.stderr)


def extensions():
    if MODE == "skip":
        return []
    folder = Path("src/rocketlake/format/_kernel")
    return [
        Extension(
            "rocketlake.format._kernel.native",
            [f"{folder}/native.pyx"],
            include_dirs=[str(folder)],
            depends=sorted(map(str, [*folder.glob("*.h"), *folder.glob("*.pxi")])),
            extra_compile_args=["-O3", "-fno-strict-aliasing"],
            # An optional extension that does not compile leaves the install working.
            optional=MODE != "require",
        )
    ]


setup(ext_modules=extensions(), cmdclass={"build_ext": BuildKernel})
