"""Takes the picture of README: the dashboard of a running ``make demo``, in Chromium; ``make picture`` calls this."""

from __future__ import annotations

import argparse
import re
import shutil
import subprocess
import sys
import tempfile
from base64 import b64decode
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from integration.running.browser import Browser

HERE = Path(__file__).parent
PICTURE = HERE / "dashboard.webp"
DEMO = HERE.parent / "examples" / "demo.py"
WIDTH, SCALE, QUALITY = 1_000, 2, 80
"""CSS pixels, pixels for each of them, and percent."""
NODES = 8
SEED = 7

TEXTS = "[...document.querySelectorAll('#map {} text')].map((one) => one.textContent)"
SHOWN = f"""document.querySelectorAll('#map g.node').length === {NODES}
    && document.querySelectorAll('#map .link path:not(.idle)').length === {NODES - 1}
    && document.querySelectorAll('#map g.down').length === 0
    && {TEXTS.format(".link")}.every((text) => /^[1-9].*\\/s, [1-9]/.test(text))
    && {TEXTS.format(".node")}.filter((text) => /repaired [1-9]/.test(text)).length === {NODES - 1}"""
"""All nodes are served, messages flow, and each client has repaired some."""
BOTTOM = "Math.ceil(document.getElementById('topology').getBoundingClientRect().bottom + scrollY) + 12"


@contextmanager
def running_demo(flights: int) -> Iterator[str]:
    """Run the demo, and return the address of its dashboard once all its steps are over."""
    command = [sys.executable, str(DEMO), "--no-spark", "--keep", f"--flights={flights}", f"--seed={SEED}"]
    demo = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        assert demo.stdout is not None
        for line in demo.stdout:
            if found := re.match(r"Open (http://\S+) in a browser", line):
                yield found[1]
                return
        raise SystemExit("the demo has ended early")
    finally:
        demo.terminate()
        demo.communicate()


@contextmanager
def running_browser() -> Iterator[Browser]:
    """Run Chromium."""
    chromium = shutil.which("chromium")
    if chromium is None:
        raise SystemExit("chromium is not installed")
    with tempfile.TemporaryDirectory(prefix="fyrehose-picture-", ignore_cleanup_errors=True) as profile:
        quiet = "--no-first-run", "--disable-gpu", "--hide-scrollbars", f"--user-data-dir={profile}"
        browser = Browser([chromium, "--headless", "--no-sandbox", *quiet])
        try:
            yield browser
        finally:
            browser.close()


def take(path: Path, flights: int) -> str:
    """Write the picture, and return what it shows."""
    with running_demo(flights) as address, running_browser() as page:
        page.size(WIDTH, 900)
        page.go(address)
        page.until(SHOWN)
        height = page.run(BOTTOM)
        clip = {"x": 0, "y": 0, "width": WIDTH, "height": height, "scale": SCALE}
        options = {"format": "webp", "quality": QUALITY, "captureBeyondViewport": True}
        taken = page.call("Page.captureScreenshot", clip=clip, **options)
        names = page.run("topology.nodes.map(({ name }) => name)")
        path.write_bytes(b64decode(taken["data"]))
    return f"{path.name}: {SCALE * WIDTH} x {SCALE * height} pixels, {path.stat().st_size:,} bytes; {', '.join(names)}"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, default=PICTURE, help="the picture [docs/dashboard.webp]")
    parser.add_argument("--flights", type=int, default=3_000, help="flights of the demo [%(default)s]")
    options = parser.parse_args()
    print(take(options.out, options.flights))
