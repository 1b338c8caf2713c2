"""Copy numbers of a tumour by the fused lasso: the picture of Tibshirani and Wang (2008), with a certificate.

Needs the data sets beside the project (``../shared/data``) and Matplotlib. Writes ``cgh_fused_lasso.png``.
"""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import scipy.sparse as sp

from varopt.learn import FusedLasso

DATA = Path(__file__).resolve().parents[2] / "shared" / "data" / "fused" / "CGH.npz"


def main(output: Path = Path("cgh_fused_lasso.png")) -> FusedLasso:
    y = np.load(DATA)["GBM_y"]
    # The log-ratio along the genome is zero but for stretches that were gained or lost: sparse, and piecewise constant.
    model = FusedLasso(alpha=0.1 / y.size, fusion=3.0 / y.size, fit_intercept=False).fit(sp.eye_array(y.size), y)

    _, axes = plt.subplots(figsize=(9, 3.6), layout="constrained")
    axes.plot(y, ".", color="0.6", ms=3, label="measured")
    axes.plot(model.coef_, color="C3", lw=1.8, label="fused lasso")
    axes.axhline(0.0, color="0.8", lw=0.8, zorder=0)
    axes.set(
        xlabel="position along the genome", ylabel="log ratio of copy numbers",
        title=f"objective {model.objective_:.6f}, at most {model.gap_:.1g} above the optimum",
    )  # fmt: skip
    axes.legend()
    plt.savefig(output, dpi=120)
    return model


if __name__ == "__main__":
    print(main().certificate_)
