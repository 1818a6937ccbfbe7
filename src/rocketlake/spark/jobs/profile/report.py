"""The profile as a program and a notebook get it: the tables, and the page over them."""

from html import escape
from pathlib import Path

from rocketlake.errors import ConfigError
from rocketlake.files.local_path import local_path
from rocketlake.spark.jobs.profile.page.document import first_line, render
from rocketlake.spark.jobs.profile.tables import ProfileTables

_HEIGHT = "44rem"


class Profile(ProfileTables, frozen=True, kw_only=True):
    """What is in a store. The last value of a notebook's cell, it shows its page there."""

    def page(self) -> str:
        """Return the page: HTML that needs nothing else."""
        return render(self)

    def save_page(self, path: str | Path) -> Path:
        """Write the page into a file, which is replaced if it is there; return its path.

        Raises:
            ConfigError: the file cannot be written.
        """
        target = local_path(path)
        page = self.page()
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(page, encoding="utf-8")
        except OSError as error:
            reason = error.strerror or str(error)
            raise ConfigError(f"cannot write the page to {target}: {reason}") from error
        return target

    def _repr_html_(self) -> str:
        """Return what a notebook shows: the page in a frame of its own.

        The frame keeps the page's style and script away from the notebook's. A viewer that drops
        frames shows the line above it.
        """
        line = f"{self.summary.store}: {first_line(self.summary)}"
        style = f"width:100%;height:{_HEIGHT};border:0"
        return (
            f"<p>{escape(line)}</p>"
            f'<iframe sandbox="allow-scripts" title="Profile of a message store" style="{style}"'
            f' srcdoc="{escape(self.page())}"></iframe>'
        )
