"""Runs the benchmarks and prints a line each: name, measured, wanted, ok or short.

    python benchmarks/run.py              all of them
    python benchmarks/run.py scan dump    those whose names begin so
    python benchmarks/run.py --json FILE  also write the numbers, with what they were measured on
    python benchmarks/run.py --scale 0.001 put    with a thousandth of the counts: does it run?

Figures are ratios within one run, or rates where the issue of the day asked for a rate: machines
differ, and a shared one is noisy.
"""

import argparse
import json
import os
import platform
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from cli import dump_bench, start_bench
from measure import SCALE, Result
from micro import arrow_bench, dispatch_bench, encode_bench, read_bench, scan_bench
from store import (
    beside_bench,
    get_bench,
    idle_bench,
    latency_bench,
    put_bench,
    server_bench,
    start_store_bench,
    sync_bench,
    verify_bench,
    wait_bench,
)

import rocketlake
from spark import (
    jobs_bench,
    process_start_bench,
    pruning_bench,
    scaling_bench,
    sink_bench,
    source_bench,
)

WORKLOADS = {
    **scan_bench.WORKLOADS,
    **encode_bench.WORKLOADS,
    **dispatch_bench.WORKLOADS,
    **read_bench.WORKLOADS,
    **arrow_bench.WORKLOADS,
    **dump_bench.WORKLOADS,
    **start_bench.WORKLOADS,
    **put_bench.WORKLOADS,
    **sync_bench.WORKLOADS,
    **get_bench.WORKLOADS,
    **server_bench.WORKLOADS,
    **latency_bench.WORKLOADS,
    **wait_bench.WORKLOADS,
    **beside_bench.WORKLOADS,
    **idle_bench.WORKLOADS,
    **verify_bench.WORKLOADS,
    **start_store_bench.WORKLOADS,
    **source_bench.WORKLOADS,
    **pruning_bench.WORKLOADS,
    **sink_bench.WORKLOADS,
    **jobs_bench.WORKLOADS,
    **process_start_bench.WORKLOADS,
    **scaling_bench.WORKLOADS,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="beginnings of names; all if none")
    parser.add_argument("--json", type=Path, help="write the figures to this file too")
    parser.add_argument("--scale", type=float, default=1, help="part of the counts of a store")
    arguments = parser.parse_args()
    os.environ[SCALE] = str(arguments.scale)
    chosen = {
        name: run
        for name, run in WORKLOADS.items()
        if not arguments.names or name.startswith(tuple(arguments.names))
    }
    if not chosen:
        print(f"no such benchmark; there are: {', '.join(WORKLOADS)}", file=sys.stderr)
        return 2
    print(f"kernel {rocketlake.KERNEL}, Python {platform.python_version()}, {platform.machine()}")
    figures: list[Result] = []
    for run in chosen.values():
        for figure in run():
            figures.append(figure)
            print(figure.line(), flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps(_report(figures), indent=1) + "\n", encoding="utf-8")
    return 0


def _report(figures: list[Result]) -> dict[str, object]:
    return {
        "version": rocketlake.__version__,
        "kernel": rocketlake.KERNEL,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "figures": [figure.as_dict() for figure in figures],
    }


if __name__ == "__main__":
    sys.exit(main())
