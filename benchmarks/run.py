"""Runs the benchmarks and prints a line each: name, measured, wanted, ok or short.

    python benchmarks/run.py              all of them
    python benchmarks/run.py scan dump    those whose names begin so
    python benchmarks/run.py --json FILE  also write the numbers, with what they were measured on

Figures are ratios within one run, or rates where the issue of the day asked for a rate: machines
differ, and a shared one is noisy.
"""

import argparse
import json
import platform
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from cli import dump_bench, start_bench
from measure import Figure
from micro import encode_bench, scan_bench

import rocketlake

WORKLOADS = {
    **scan_bench.WORKLOADS,
    **encode_bench.WORKLOADS,
    **dump_bench.WORKLOADS,
    **start_bench.WORKLOADS,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="beginnings of names; all if none")
    parser.add_argument("--json", type=Path, help="write the figures to this file too")
    arguments = parser.parse_args()
    chosen = {
        name: run
        for name, run in WORKLOADS.items()
        if not arguments.names or name.startswith(tuple(arguments.names))
    }
    if not chosen:
        print(f"no such benchmark; there are: {', '.join(WORKLOADS)}", file=sys.stderr)
        return 2
    print(f"kernel {rocketlake.KERNEL}, Python {platform.python_version()}, {platform.machine()}")
    figures: list[Figure] = []
    for run in chosen.values():
        for figure in run():
            figures.append(figure)
            print(figure.line(), flush=True)
    if arguments.json:
        arguments.json.write_text(json.dumps(_report(figures), indent=1) + "\n", encoding="utf-8")
    return 0


def _report(figures: list[Figure]) -> dict[str, object]:
    return {
        "version": rocketlake.__version__,
        "kernel": rocketlake.KERNEL,
        "python": platform.python_version(),
        "machine": platform.machine(),
        "figures": [figure.as_dict() for figure in figures],
    }


if __name__ == "__main__":
    sys.exit(main())
