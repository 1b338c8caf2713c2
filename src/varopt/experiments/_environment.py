"""The machine and the versions that measured numbers belong to."""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import platform
from pathlib import Path
from typing import Any

import varopt

__all__ = ["environment"]

_PACKAGES = ("varopt", "numpy", "scipy", "scikit-learn", "piqp")


def environment() -> dict[str, Any]:
    """What decides a time: the processor, the system, and the versions of the packages that compute."""
    return {
        "machine": f"{_processor()}, {os.cpu_count()} cores, {platform.system()} {platform.machine()}",
        "versions": {"python": platform.python_version()} | {name: _version(name) for name in _PACKAGES},
        "source": _fingerprint(),
    }


def _fingerprint() -> str:
    """Eight hexadecimal digits of varopt's own source: numbers of changed code are not those of this one."""
    digest = hashlib.sha256()
    folder = Path(varopt.__file__).parent
    for path in sorted(folder.rglob("*.py")):
        digest.update(path.relative_to(folder).as_posix().encode() + path.read_bytes())
    return digest.hexdigest()[:8]


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or "unknown processor"
