"""Doors that load what is behind them when it is first asked for, as SPEC 1 of scientific Python has it.

What most programs never touch (bounds under families, data on disk, exact arithmetic) would take longer to load than
many a problem to solve. Type checkers read the same names from imports under ``TYPE_CHECKING``.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

__all__ = ["on_first_use"]


def on_first_use(
    package: str, homes: Mapping[str, str], instead: Mapping[str, str] = MappingProxyType({})
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """The ``__getattr__`` and ``__dir__`` of a package whose names are in these modules; a module is its own home.

    A name that other packages have and this one has not is told what to write `instead`.

    Examples
    --------
    >>> find, names = on_first_use("json", {"decoder": "json.decoder", "JSONDecodeError": "json.decoder"})
    >>> find("decoder").JSONDecodeError is find("JSONDecodeError")
    True
    """

    def find(name: str) -> Any:
        home = homes.get(name)
        if home is None:
            advice = f": {instead[name]}" if name in instead else ""
            raise AttributeError(f"module {package!r} has no attribute {name!r}{advice}")
        module = importlib.import_module(home)
        found = module if home == f"{package}.{name}" else getattr(module, name)
        setattr(sys.modules[package], name, found)  # so that it is looked for once
        return found

    def names() -> list[str]:
        present = vars(sys.modules[package])
        return sorted({*present.get("__all__", present), *homes})

    return find, names
