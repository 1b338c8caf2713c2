"""``python -m varopt.experiments`` is ``varopt reproduce``, for where the command is not installed."""

from __future__ import annotations

import sys
from pathlib import Path

from varopt.experiments.reproduce import reproduce

if __name__ == "__main__":
    sys.exit(reproduce(Path("reproduction"), only=sys.argv[1:]))
