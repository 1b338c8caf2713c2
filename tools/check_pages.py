"""Open every page of the built documentation in a real browser, and report what a reader would trip over.

``python tools/check_pages.py docs/_build/html``: each page is opened at the width of a desk and of a telephone, light
and dark. Reported are messages of the console, files that did not load or come from another host, parts that stick out
of the page, and text that hardly differs from its background. It needs a Chromium, to which it speaks through a pipe.

``--shots FOLDER`` also keeps a picture of each, ``--only "^quick"`` looks at the pages whose name the pattern is in.
"""

from __future__ import annotations

import argparse
import base64
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

WIDTHS = {"desk": 1280, "telephone": 390}
SCHEMES = ("light", "dark")
NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--hide-scrollbars", "--remote-debugging-pipe", "about:blank",
)  # fmt: skip

FIND = Path(__file__).with_suffix(".js").read_text("utf-8")


class Browser:
    """A browser without a window, and one page in it."""

    def __init__(self, program: str, profile: str) -> None:
        commands, self._commands = os.pipe()
        self._answers, answers = os.pipe()
        os.set_inheritable(commands, True)
        os.set_inheritable(answers, True)
        shell = f'exec "$@" 3<&{commands} 4>&{answers}'
        self._process = subprocess.Popen(
            ["sh", "-c", shell, "sh", program, *FLAGS, f"--user-data-dir={profile}"],
            pass_fds=(commands, answers), stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(commands)
        os.close(answers)
        self._read, self._number, self._session = self._messages(), 0, {}
        self.events: list[dict[str, Any]] = []
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        self._session = {"sessionId": self.ask("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]}
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.ask(f"{domain}.enable")

    def _messages(self) -> Iterator[dict[str, Any]]:
        rest = b""
        while data := os.read(self._answers, 1 << 20):
            *whole, rest = (rest + data).split(b"\0")
            yield from map(json.loads, whole)
        sys.exit("the browser ended")

    def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        """The answer to one command; what happens meanwhile is kept in `events`."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters, **self._session}
        os.write(self._commands, json.dumps(message).encode() + b"\0")
        for answer in self._read:
            if answer.get("id") == self._number:
                if "error" in answer:
                    sys.exit(f"{method}: {answer['error']['message']}")
                return dict(answer["result"])
            self.events.append(answer)
        raise AssertionError

    def evaluate(self, code: str) -> Any:
        """The value of an expression in the page."""
        answer = self.ask("Runtime.evaluate", expression=code, returnByValue=True, awaitPromise=True)
        return answer["result"].get("value")

    def open(self, address: str) -> None:
        """Go to a page, and wait for all it loads."""
        self.events.clear()
        self.ask("Page.navigate", url=address)
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(next(self._read))

    def set(self, width: int, scheme: str) -> None:
        """The width of the window, and light or dark."""
        self.ask("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=width < 600)
        self.ask("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": scheme}])
        self.evaluate("new Promise((done) => requestAnimationFrame(() => setTimeout(done, 20)))")

    def shot(self, path: Path) -> None:
        """Keep a picture of the whole page."""
        picture = self.ask("Page.captureScreenshot", captureBeyondViewport=True)["data"]
        path.write_bytes(base64.b64decode(picture))

    def said(self) -> list[str]:
        """What the console said since the page was opened, and what did not load."""
        found = []
        for event in self.events:
            about = event.get("params", {})
            match event.get("method"):
                case "Runtime.consoleAPICalled" if about["type"] in ("error", "warning", "assert"):
                    found.append(f"console: {[x.get('value') for x in about['args']]}")
                case "Runtime.exceptionThrown":
                    details = about["exceptionDetails"]
                    found.append(f"exception: {details.get('exception', {}).get('description', details['text'])}")
                case "Log.entryAdded":
                    found.append(f"log: {about['entry']['text']} {about['entry'].get('url', '')}")
                case "Network.loadingFailed" if not about.get("canceled"):
                    found.append(f"not loaded: {about['errorText']}")
                case "Network.requestWillBeSent" if not about["request"]["url"].startswith(("file:", "data:", "blob:")):
                    found.append(f"asks another host: {about['request']['url']}")
        return found

    def close(self) -> None:
        """End the browser."""
        self.ask("Browser.close")
        self._process.wait(20)


def trouble(browser: Browser, page: Path, root: Path, shots: Path | None) -> Iterator[str]:
    """A line for each thing that is wrong with a page."""
    browser.set(WIDTHS["desk"], "light")
    browser.open(page.as_uri())
    name = page.relative_to(root)
    for place, width in WIDTHS.items():
        for scheme in SCHEMES:
            browser.set(width, scheme)
            yield from (f"{name}, {place}, {scheme}: {text}" for text in browser.evaluate(FIND))
            if shots:
                browser.shot(shots / f"{'-'.join(name.with_suffix('').parts)}-{place}-{scheme}.png")
    yield from (f"{name}: {text}" for text in dict.fromkeys(browser.said()))


def main() -> int:
    """Look at all pages; 1 where something is wrong with one."""
    options = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    options.add_argument("root", type=Path)
    options.add_argument("--only", default="", metavar="PATTERN")
    options.add_argument("--shots", type=Path, metavar="FOLDER")
    asked = options.parse_args()
    program = next((path for name in NAMES if (path := shutil.which(name))), None)
    if program is None:
        sys.exit(f"No browser to look with: none of {', '.join(NAMES)} is installed.")
    root = asked.root.resolve()
    pages = [path for path in sorted(root.rglob("*.html")) if re.search(asked.only, path.relative_to(root).as_posix())]
    if asked.shots:
        asked.shots.mkdir(parents=True, exist_ok=True)
    wrong = 0
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        browser = Browser(program, profile)
        for page in pages:
            for line in trouble(browser, page, root, asked.shots):
                wrong += 1
                print(line, flush=True)
        browser.close()
    print(f"{len(pages)} pages, each at {len(WIDTHS)} widths, light and dark: {wrong or 'no'} trouble.")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
