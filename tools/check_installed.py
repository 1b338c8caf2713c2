"""Try an installed varopt as a stranger would: import it, fit, search, and run the command; no test library needed."""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

import varopt as vo
from varopt.discrete import max_cut
from varopt.learn import QuantileRegressor


def check(name: str, holds: object) -> None:
    """Say what holds, and stop at what does not."""
    print(f"{'ok' if holds else 'FAILED'}  {name}")
    if not holds:
        sys.exit(1)


def main() -> None:
    """Everything that has to work without a checkout."""
    rng = np.random.default_rng(0)
    X = rng.standard_normal((200, 3))
    y = X @ [1.0, -2.0, 0.0] + rng.standard_t(2, 200)
    w = vo.Variable(3, name="w")
    check("not from a checkout", "site-packages" in vo.__file__)
    check("the version", importlib.metadata.version("varopt") == vo.__version__)
    check("types are shipped", (Path(vo.__file__).parent / "py.typed").is_file())
    check("minimize", vo.minimize(vo.norm1(y - X @ w)).success)
    check("an estimator", QuantileRegressor(quantile=0.7, alpha=0.0).fit(X, y).gap_ < 1e-9)
    check("bits", max_cut(np.ones((5, 5)) - np.eye(5)).fun == 6.0)
    check("a black box", vo.minimize(lambda x: float(x @ x), vo.Box(-1, 1, size=2), budget=300, seed=0).fun < 1e-4)
    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder) / "d.csv"
        np.savetxt(table, np.column_stack([X, y]), delimiter=",", header="a,b,c,y", comments="")
        command = [Path(sys.executable).with_name("varopt"), "fit", table, "--model", "lad", "--target", "y"]
        run = subprocess.run(command, capture_output=True, text=True, check=False)
        check("the command", run.returncode == 0 and "the optimum is" in run.stdout)


if __name__ == "__main__":
    main()
