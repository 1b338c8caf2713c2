"""Modules whose examples cannot run here, because a library of an extra is not installed."""

from importlib.util import find_spec
from pathlib import Path

# What a module imports at its top beyond the core's dependencies. A module that cannot be imported for any other reason
# is an error: to ignore all import errors would silently drop the tests of a file with a wrong import.
_NEEDS = ("dimod", "optuna", "rich", "torch", "jax", "dask", "pyarrow")


_MADE_OF = {"nn/_modules.py": "torch"}  # what a module subclasses, and asks for in a sentence of its own


def _lacks(path: Path) -> bool:
    lines = path.read_text("utf-8").splitlines()
    made_of = next((name for end, name in _MADE_OF.items() if path.as_posix().endswith(end)), None)
    return (made_of is not None and find_spec(made_of) is None) or any(
        line.startswith((f"import {name}", f"from {name}")) and find_spec(name) is None
        for line in lines
        for name in _NEEDS
    )


collect_ignore = [str(path) for path in (Path(__file__).parent / "src").rglob("*.py") if _lacks(path)]
