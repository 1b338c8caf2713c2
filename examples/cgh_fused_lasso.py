"""Copy numbers of a tumour by the fused lasso: the picture of Tibshirani and Wang (2008), with a certificate.

Run ``python examples/cgh_fused_lasso.py [CGH.npz]``; it needs Matplotlib and writes ``cgh_fused_lasso.png``. The
measurements (GBM, 990 positions) come with the R package ``cghFLasso`` and are not ours to hand on: save its
``CGH$GBM.y`` as the array ``GBM_y`` of an npz file. Without them a signal like them is generated.
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import scipy.sparse as sp

from varopt.learn import FusedLasso

DATA = Path(__file__).resolve().parents[2] / "shared" / "data" / "fused" / "CGH.npz"


def measured_or_generated(path: Path) -> tuple[np.ndarray, str]:
    """The log-ratios along the genome, and what they are."""
    if path.is_file():
        return np.load(path)["GBM_y"], "GBM data"
    levels = np.repeat([0.0, 0.9, 0.0, 4.5, 0.0, -0.6, 0.0], [85, 100, 240, 25, 300, 140, 100])
    return levels + 0.45 * np.random.default_rng(0).standard_normal(levels.size), "generated"


def main(data: Path = DATA, output: Path = Path("cgh_fused_lasso.png")) -> FusedLasso:
    y, source = measured_or_generated(data)
    # The log-ratio is zero but for stretches that were gained or lost: sparse, and piecewise constant.
    model = FusedLasso(alpha=0.1 / y.size, fusion=3.0 / y.size, fit_intercept=False).fit(sp.eye_array(y.size), y)

    figure, axes = plt.subplots(figsize=(9, 3.6), layout="constrained")
    axes.plot(y, ".", color="0.6", ms=3, label=f"log-ratios ({source})")
    axes.plot(model.coef_, color="C3", lw=1.8, label="fused lasso")
    axes.axhline(0.0, color="0.8", lw=0.8, zorder=0)
    axes.set(
        xlabel="position along the genome", ylabel="log-ratio of copy numbers",
        title=f"objective {model.objective_:.6f}, at most {model.gap_:.1g} above the optimum",
    )  # fmt: skip
    axes.legend(frameon=False)
    figure.savefig(output, dpi=120)
    plt.close(figure)
    return model


if __name__ == "__main__":
    print(main(Path(sys.argv[1]) if len(sys.argv) > 1 else DATA).certificate_)
