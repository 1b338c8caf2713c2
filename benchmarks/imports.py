"""What `import varopt` costs beyond the libraries that it stands on, and the first solve after it."""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

from benchmarks._measure import Timing
from benchmarks._registry import Config, Row, benchmark

LIMIT_SECONDS = 0.3
FIRST_SECONDS = 0.02
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

# The first solve and the one after it, with the parts of NumPy and SciPy that they load already there.
FIRST_SOLVE = """
import importlib, json, sys, time
for name in json.loads(sys.argv[1]):
    importlib.import_module(name)
import numpy as np, varopt as vo
rng = np.random.default_rng(0)
X = rng.standard_normal((200, 5))
y = X @ rng.standard_normal(5) + rng.standard_t(2, 200)
w, b = vo.Variable(5), vo.Variable()
build = {
    "quantile regression": lambda: vo.sum(vo.pinball(y - X @ w - b, 0.7)),
    "linear SVM": lambda: vo.sum_squares(w) + vo.sum(vo.hinge(np.sign(y) * (X @ w + b))),
    "lasso": lambda: vo.sum_squares(y - X @ w) + 5.0 * vo.norm1(w),
}[sys.argv[2]]
times = []
for _ in range(2):
    start = time.perf_counter()
    r = vo.minimize(build())
    times.append(time.perf_counter() - start)
parts = [name.split(".") for name in sys.modules]
libraries = [".".join(p) for p in parts if p[0] in ("numpy", "scipy") and len(p) <= 2 and p[-1][0] != "_"]
print(json.dumps({"first": times[0], "second": times[1], "gap": r.gap, "fun": r.fun, "libraries": sorted(libraries)}))
"""


def fresh(code: str, *arguments: str) -> Any:
    """What a new interpreter prints, as JSON; modules load from their bytecode, as they do for users."""
    command = [sys.executable, "-c", code, *arguments]
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return json.loads(subprocess.run(command, capture_output=True, text=True, check=True, env=environment).stdout)


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


@benchmark
def first_solve(config: Config) -> Iterator[Row]:
    """The first solve of a 200 x 5 problem in a new process, beyond importing the parts of NumPy and SciPy it uses."""
    for kind in ("quantile regression", "linear SVM", "lasso"):
        libraries = json.dumps(fresh(FIRST_SOLVE, "[]", kind)["libraries"])
        runs = [fresh(FIRST_SOLVE, libraries, kind) for _ in range(config.pick(8, 3))]
        first = Timing(runs[0]["first"], tuple(run["first"] for run in runs[1:]))
        yield Row(
            problem=f"first solve, {kind} 200 x 5",
            solver="python",
            ratio_of=f"seconds / {FIRST_SECONDS} s",
            ratio=first.median / FIRST_SECONDS,
            target=1.0,
            timing=first,
            baseline=Timing(runs[0]["second"], tuple(run["second"] for run in runs[1:])),
            objective=runs[-1]["fun"],
            gap=runs[-1]["gap"],
            note=f"the solve after it takes {1e3 * statistics.median(run['second'] for run in runs):.1f} ms",
        )
