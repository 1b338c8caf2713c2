"""Print the oldest versions that ``pyproject.toml`` allows as constraints for pip: ``numpy>=2`` is ``numpy==2.*``."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

EXTRAS = ("plot", "optuna", "dimod", "parquet", "experiments", "test")
PARTNERS = ("pyparsing<3.2",)  # newer than the oldest Matplotlib knows: it warns
REQUIREMENT = re.compile(r"^([A-Za-z0-9._-]+)>=([0-9.]+)$")


def floors(project: dict) -> list[str]:
    """A line for each dependency; where two places name one, the higher floor holds."""
    named = [*project["dependencies"], *(r for extra in EXTRAS for r in project["optional-dependencies"][extra])]
    oldest: dict[str, tuple[int, ...]] = {}
    for name, version in (match.groups() for match in map(REQUIREMENT.match, named) if match):
        parts = tuple(int(part) for part in version.split("."))
        oldest[name] = max(oldest.get(name, ()), parts)
    return [*(f"{name}=={'.'.join(map(str, parts))}.*" for name, parts in sorted(oldest.items())), *PARTNERS]


if __name__ == "__main__":
    root = Path(__file__).resolve().parents[1]
    print("\n".join(floors(tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["project"])))
