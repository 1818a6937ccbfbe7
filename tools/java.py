"""Says which Java is here, or how to get one: Spark and the interop tests need 17 or newer.

python tools/java.py              prints its path and version; exit code 1 if there is none
python tools/java.py --install    first installs one if it is missing and this process may
"""

import argparse
import os
import re
import shutil
import subprocess
import sys

import system_packages
from system_packages import Need

OLDEST_JAVA = 17


def main() -> int:
    """Report Java, after installing it where that was asked for and is possible."""
    parser = argparse.ArgumentParser(description="Find Java 17 or newer.")
    parser.add_argument("--install", action="store_true", help="install it if it is missing")
    options = parser.parse_args()

    found = provide() if options.install else find_java()
    if found:
        print(f"{found[0]} (Java {found[1]})")
        return 0
    print("\n".join(explain_missing()), file=sys.stderr)
    return 1


def provide() -> tuple[str, int] | None:
    """Install Java if it is missing and this process may; what there is then."""
    manager = system_packages.find_manager()
    found = find_java()
    # The second is for systems whose own choice is too old.
    for need in (Need.JAVA, Need.JAVA_17):
        packages = manager and system_packages.package_names(manager, [need], python_version="")
        if found is None and manager and packages and system_packages.install(manager, packages):
            found = find_java()
    return found


def explain_missing() -> list[str]:
    """That there is no Java, and how to get one."""
    manager = system_packages.find_manager()
    packages = manager and system_packages.package_names(manager, [Need.JAVA], python_version="")
    lines = [f"Java {OLDEST_JAVA} or newer is needed and was not found."]
    if manager and packages:
        lines.append(f"Install it with:\n  {system_packages.line_to_type(manager, packages)}")
    return lines


def find_java() -> tuple[str, int] | None:
    """Path and major version of a new enough Java: JAVA_HOME's first, then the PATH's."""
    home = os.environ.get("JAVA_HOME")
    for candidate in (f"{home}/bin/java" if home else None, shutil.which("java")):
        version = major_version(candidate) if candidate else None
        if candidate and version and version >= OLDEST_JAVA:
            return candidate, version
    return None


def major_version(java: str) -> int | None:
    """Major version of a Java that runs: 17 for "17.0.15", 8 for "1.8.0_412"."""
    try:
        done = subprocess.run([java, "-version"], capture_output=True, text=True, check=False)
    except OSError:
        return None
    return parse_version(done.stderr) if done.returncode == 0 else None


def parse_version(text: str) -> int | None:
    """Major version in what `java -version` says."""
    match = re.search(r'version "(?:1\.)?(\d+)', text)
    return int(match[1]) if match else None


if __name__ == "__main__":
    sys.exit(main())
