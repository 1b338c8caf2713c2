"""``python -m varopt``: the command ``varopt``, where it is not on the path."""

import sys

from _varopt_command import main

if __name__ == "__main__":
    sys.exit(main())
