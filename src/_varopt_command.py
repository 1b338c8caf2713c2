# PYTHON_ARGCOMPLETE_OK
"""What the command ``varopt`` starts: an interrupt ends it with a sentence also while libraries are being loaded."""

import os
import signal
import sys
from types import FrameType


def _stop(number: int, frame: FrameType | None) -> None:
    """End at once: an exception raised inside the import of a library may be swallowed or shown as its own."""
    sys.stderr.write("varopt: interrupted.\n")
    sys.stderr.flush()
    os._exit(130)


def main() -> int:
    """Load the command line, then run it."""
    before = signal.getsignal(signal.SIGINT)
    if before is not signal.SIG_IGN:  # as in the background of a script, where Ctrl-C is meant for others
        signal.signal(signal.SIGINT, _stop)
    from varopt.cli import main as run

    signal.signal(signal.SIGINT, before)
    return run()
