"""`rocketlake completion`: print or install shell completion."""

from pathlib import Path

import click
from click.shell_completion import get_completion_class

from rocketlake.cli.main import main

_VARIABLE = "_ROCKETLAKE_COMPLETE"
_PLACES = {
    "bash": ".local/share/bash-completion/completions/rocketlake",
    "zsh": ".local/share/zsh/site-functions/_rocketlake",
    "fish": ".config/fish/completions/rocketlake.fish",
}


@click.command()
@click.argument("shell", type=click.Choice(list(_PLACES)))
@click.option("--install", is_flag=True, help="Install it where the shell looks for completions.")
def completion(shell: str, install: bool) -> None:  # noqa: FBT001 - a flag of the command line
    """Print the completion script of a shell, or install it for this user."""
    kind = get_completion_class(shell)
    assert kind is not None, f"click knows no {shell}"
    script = kind(main, {}, "rocketlake", _VARIABLE).source()
    if not install:
        click.echo(script)
        return
    place = Path.home() / _PLACES[shell]
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_text(script + "\n", encoding="utf-8")
    click.echo(f"written to {place}; open a new shell to use it", err=True)
    if shell == "zsh":
        click.echo(f"zsh needs {place.parent} in its fpath, before compinit", err=True)
