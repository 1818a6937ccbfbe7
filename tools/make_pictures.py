"""Makes the pictures of README.md: `rocketlake info` and a profile page of a store written here.

python tools/make_pictures.py     writes docs/pictures/*.png; needs Chromium and Java
"""

import random
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console

import rocketlake
from rocketlake import Message
from rocketlake.cli import screen
from rocketlake.cli.main import main as command
from rocketlake.clock import SystemClock

ROOT = Path(__file__).resolve().parent.parent
PICTURES = ROOT / "docs" / "pictures"
BEGIN_MS = 1_767_225_600_000  # 2026-01-01
STEP_MS = 60_000
STEPS = 12 * 60
RATES = {"orders": 40, "payments": 18, "shipments": 9, "audit": 4}
FLAGS = ("--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars")


class StepClock(SystemClock):
    """A clock that the loop below sets."""

    ms = BEGIN_MS

    def now_ms(self) -> int:
        """Return the time that was set."""
        return self.ms

    def now_ns(self) -> int:  # type: ignore[override]
        """Return the time that was set."""
        return self.ms * 1_000_000


def write_store(path: Path) -> None:
    """Write half a day of messages: a rush at ten, a queue with most of a topic, a group behind."""
    dice, clock = random.Random(7), StepClock()
    with rocketlake.open_store(path, clock=clock) as store:
        for step in range(STEPS):
            clock.ms = BEGIN_MS + step * STEP_MS
            is_rush = 600 <= step < 640
            for topic, rate in RATES.items():
                count = dice.randrange(rate // 2, rate + 1) * (3 if is_rush else 1)
                for number in range(count):
                    clock.ms = BEGIN_MS + step * STEP_MS + number * STEP_MS // count
                    key = f"{topic[0]}-{dice.randrange(400)}"
                    body = bytes(dice.randrange(80, 900))
                    tags = dice.choice(("created", "paid", "paid", "cancelled"))
                    queue = None if topic != "payments" or number % 2 else 3
                    store.put(
                        Message(topic=topic, body=body, tags=tags, keys=[key]), queue_id=queue
                    )
        with store.consumer("billing", "orders", timeout=0) as consumer:
            for number, _ in enumerate(consumer):
                if number == 9_000:
                    break


def picture(page: Path, name: str, width: int, height: int) -> None:
    """Take a picture of a page of HTML."""
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        sys.exit("there is no Chromium: apt-get install chromium")
    target = PICTURES / name
    with tempfile.TemporaryDirectory() as user:
        subprocess.run(
            [
                chromium,
                *FLAGS,
                f"--user-data-dir={user}",
                f"--window-size={width},{height}",
                f"--screenshot={target}",
                page.as_uri(),
            ],
            check=True,
            capture_output=True,
        )
    print(f"{target.relative_to(ROOT)}: {target.stat().st_size} bytes")


def main() -> None:
    """Write a store, and a picture of each command."""
    PICTURES.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        place = Path(name)
        store = place / "store"
        write_store(store)
        shown = Console(record=True, width=104, force_terminal=True, highlight=False)
        screen.console = lambda: shown
        command.main(["info", str(store)], prog_name="rocketlake", standalone_mode=False)
        text = shown.export_html(inline_styles=True).replace(str(store), "/data/store")
        page = place / "info.html"
        page.write_text(text.replace("<body>", '<body style="margin:16px">'), encoding="utf-8")
        picture(page, "info.png", 1060, 430)
        report = place / "report.html"
        command.main(["profile", str(store), "--out", str(report)], standalone_mode=False)
        report.write_text(report.read_text("utf-8").replace(str(store), "/data/store"), "utf-8")
        picture(report, "profile.png", 1000, 900)


if __name__ == "__main__":
    main()
