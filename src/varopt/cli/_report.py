"""``varopt report``: the journal of a search as a page."""

from __future__ import annotations

import argparse
import sys
import webbrowser
from pathlib import Path

__all__ = ["REPORT", "add_report"]

REPORT = """\
Make a page of the journal of a search: best value and bound, how the distribution narrows in each
parameter, which parameters mattered, failures with their errors, and the workers' time line.

It is one HTML file that needs nothing else, not even a network. With --watch the page is served on
this machine alone, and follows the search while it runs. The journal is only read."""


def add_report(parser: argparse.ArgumentParser) -> None:
    """The options of ``varopt report``."""
    parser.add_argument("journal", type=Path, metavar="JOURNAL", help="what minimize(..., journal=) or Search wrote")
    parser.add_argument("--output", type=Path, metavar="FILE", help="the page (default: the journal's name, .html)")
    parser.add_argument("--watch", action="store_true", help="serve the page and follow the search; Ctrl-C ends it")
    parser.add_argument("--port", type=int, default=0, metavar="N", help="where to serve it (default: a free port)")
    parser.add_argument("--open", action="store_true", help="open the page in a browser")
    parser.set_defaults(run=_report)


def _report(options: argparse.Namespace) -> int:
    from varopt.search.page import journal_page, page_server  # other commands start sooner without a server

    if options.watch:
        if not 0 <= options.port < 65536:
            raise ValueError(f"--port must be a number from 0 to 65535; got {options.port}.")
        with page_server(options.journal, options.port) as server:
            address = f"http://localhost:{server.server_address[1]}/"
            print(f"{address} follows {options.journal}; Ctrl-C ends it.", file=sys.stderr, flush=True)
            if options.open:
                webbrowser.open(address)
            server.serve_forever()
    page, output = journal_page(options.journal), options.output or options.journal.with_suffix(".html")
    if output.resolve() == options.journal.resolve():
        raise ValueError(f"--output must not be the journal itself; got {output}.")
    output.write_text(page, encoding="utf-8")
    print(output)
    if options.open:
        webbrowser.open(output.resolve().as_uri())
    return 0
