"""Jars of Spark's modules that pyspark lacks: from the local Maven repository, or by Maven."""

import shutil
import subprocess
from functools import cache
from pathlib import Path

import pyspark

_REPOSITORY = Path.home() / ".m2" / "repository" / "org" / "apache" / "spark"
_OTHERS = ("4.1.1",)
"""Versions that were tried on the Sparks we know, should there be none of the same number."""
_WAIT_S = 60


@cache
def module_jar(module: str) -> Path | None:
    """Return the jar of `spark-avro` or another module; None if it cannot be had."""
    name = f"{module}_2.13"
    versions = dict.fromkeys((pyspark.__version__, *_OTHERS))
    jars = [_REPOSITORY / name / version / f"{name}-{version}.jar" for version in versions]
    found = next((jar for jar in jars if jar.exists()), None)
    if found is not None or shutil.which("mvn") is None:
        return found
    for version, jar in zip(versions, jars, strict=True):
        wanted = f"-Dartifact=org.apache.spark:{name}:{version}"
        command = ["mvn", "-q", "-B", "dependency:get", wanted, "-Dtransitive=false"]
        try:
            subprocess.run(command, check=False, capture_output=True, timeout=_WAIT_S)
        except subprocess.TimeoutExpired:
            return None  # there is no way to a repository
        if jar.exists():
            return jar
    return None
