"""A server on this machine alone, whose page follows a search."""

from __future__ import annotations

import json
from collections.abc import Callable
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Lock
from typing import Any

from varopt.search.page._follow import Follower
from varopt.search.page._html import page_of

__all__ = ["page_server"]

HOST = "127.0.0.1"
POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; img-src data:"


def page_server(path: str | Path, port: int = 0) -> ThreadingHTTPServer:
    """A server of the page of a journal, on localhost alone; ``serve_forever`` runs it.

    Parameters
    ----------
    path : path
        The journal. It is only read.
    port : int
        Where; a free one by default, which is ``server_address[1]``.
    """
    follower, lock = Follower(Path(path)), Lock()
    follower.read()  # what cannot be read is said before anything is served

    def latest() -> dict[str, Any]:
        with lock:
            try:
                return follower.read()
            except (ValueError, OSError) as error:  # it was moved, or is damaged by now
                return {**follower._contents, "note": str(error)}

    class Handler(_Handler):
        contents = staticmethod(latest)

    return ThreadingHTTPServer((HOST, port), Handler)


class _Handler(BaseHTTPRequestHandler):
    """Answers for the page and its contents, and for nothing else."""

    contents: Callable[[], dict[str, Any]]
    timeout = 10.0  # seconds for a request: browsers open connections in advance

    def do_GET(self) -> None:
        """Answer a browser on this machine; a page from elsewhere that asks under its own name is refused."""
        host = self.headers.get("Host", "").rsplit(":", 1)[0]
        if host not in (HOST, "localhost"):
            self.send_error(HTTPStatus.FORBIDDEN)
        elif self.path == "/":
            self._answer("text/html; charset=utf-8", page_of(self.contents(), follow=True))
        elif self.path == "/contents.json":
            self._answer("application/json", json.dumps(self.contents(), allow_nan=False))
        else:
            self.send_error(HTTPStatus.NOT_FOUND)

    def _answer(self, kind: str, text: str) -> None:
        body = text.encode()
        self.send_response(HTTPStatus.OK)
        for name, value in (
            ("Content-Type", kind), ("Content-Length", str(len(body))), ("Cache-Control", "no-store"),
            ("Content-Security-Policy", POLICY), ("X-Content-Type-Options", "nosniff"),
        ):  # fmt: skip
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: Any) -> None:
        """Say nothing."""
