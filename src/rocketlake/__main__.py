"""`python -m rocketlake` is the command."""

from rocketlake.cli.main import run

run()
