"""A real browser for pages that the project makes: what it finds in them, and what it logs."""

import html
import json
import re
import shutil
import subprocess

import pytest

CHROMIUM = next(
    (path for name in ("chromium", "chromium-browser", "google-chrome") if (path := shutil.which(name))), None
)
needs_chromium = pytest.mark.skipif(
    CHROMIUM is None, reason="needs a Chromium to open the page in, and none is installed"
)

FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--hide-scrollbars", "--enable-logging=stderr",
)  # fmt: skip


def opened(address, folder, *flags, pattern=r'<pre id="found">(.+?)</pre>'):
    """What a page has written into itself, as text, and what the console says."""
    for attempt in range(3):  # on a busy machine a browser may fail to start, or end before its page is there
        profile = f"--user-data-dir={folder / f'profile-{attempt}'}"
        run = subprocess.run(
            [CHROMIUM, *FLAGS, *flags, profile, "--dump-dom", address],
            capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        found = re.search(pattern, run.stdout, flags=re.DOTALL)
        if found:
            console = [line for line in run.stderr.splitlines() if ":CONSOLE" in line]
            return html.unescape(found[1]), console
    pytest.fail(f"the browser showed nothing: {run.stderr[-2000:]}")


def looked_at(harness, folder, *flags):
    """What a page around other pages has found in them, as JSON, and what the console says."""
    page = folder / "harness.html"
    page.write_text(harness, encoding="utf-8")
    text, console = opened(page.as_uri(), folder, *flags)
    return json.loads(text), console
