"""What `import varopt` costs beyond the libraries that it stands on."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

from benchmarks._measure import Timing
from benchmarks._registry import Config, Row, benchmark

LIMIT_SECONDS = 0.3
UNWANTED = ("sklearn", "torch", "matplotlib")

# The public parts of NumPy and SciPy that `import varopt` loads: `scipy.special`, but not `scipy.special._ufuncs`.
FOUNDATIONS = """
import json, sys
import varopt
parts = [name.split(".") for name in sys.modules]
print(json.dumps(sorted(".".join(p) for p in parts if p[0] in ("numpy", "scipy") and len(p) <= 2 and p[-1][0] != "_")))
"""

IMPORT = """
import importlib, json, sys, time
start = time.perf_counter()
for name in json.loads(sys.argv[1]):
    importlib.import_module(name)
foundations = time.perf_counter()
import varopt
end = time.perf_counter()
print(json.dumps({"foundations": foundations - start, "varopt": end - foundations, "modules": list(sys.modules)}))
"""


def fresh(code: str, *arguments: str) -> Any:
    """What a new interpreter prints, as JSON."""
    command = [sys.executable, "-c", code, *arguments]
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True).stdout)


@benchmark
def import_time(config: Config) -> Iterator[Row]:
    """Importing varopt after numpy and the scipy parts that it uses, each time in a new interpreter."""
    foundations = json.dumps(fresh(FOUNDATIONS))
    runs = [fresh(IMPORT, foundations) for _ in range(config.pick(8, 3))]
    own = Timing(runs[0]["varopt"], tuple(run["varopt"] for run in runs[1:]))
    base = Timing(runs[0]["foundations"], tuple(run["foundations"] for run in runs[1:]))
    loaded = [name for name in UNWANTED if name in runs[-1]["modules"]]
    yield Row(
        problem="import varopt",
        solver="python",
        ratio_of=f"seconds beyond numpy and scipy / {LIMIT_SECONDS} s",
        ratio=statistics.median(own.warm) / LIMIT_SECONDS,
        target=1.0,
        timing=own,
        baseline=base,
        status=f"loads {', '.join(loaded)}" if loaded else "ok",
    )
