"""The S&P 500 by l1 trend filtering: the picture of Kim, Koh, Boyd and Gorinevsky (2009), with a certificate.

Run ``python examples/snp500_trend_filter.py [snp500.txt]``; it needs Matplotlib and writes
``snp500_trend_filter.png``. The 2,000 daily log prices come with the paper's software ``l1_tf`` and are not ours to
hand on: one number per line. Without them a walk like them is generated.
"""

import sys
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from varopt.learn import TrendFilter

DATA = Path(__file__).resolve().parents[2] / "shared" / "data" / "fused" / "snp500_log.txt"


def measured_or_generated(path: Path) -> tuple[np.ndarray, str]:
    """The log prices by day, and what they are."""
    if path.is_file():
        return np.loadtxt(path), "S&P 500"
    rng = np.random.default_rng(0)
    slopes = np.repeat(rng.normal(0.0, 6e-4, 16), 125)
    return 7.0 + np.cumsum(slopes) + 0.2 * np.cumsum(rng.normal(0.0, 0.011, slopes.size)), "generated"


def main(data: Path = DATA, output: Path = Path("snp500_trend_filter.png")) -> TrendFilter:
    y, source = measured_or_generated(data)
    days = np.arange(y.size)[:, None]
    # lambda = 50 of the paper, whose loss is a sum and not a mean.
    model = TrendFilter(alpha=50.0 / y.size).fit(days, y)
    trend = model.predict(days)
    kinks = np.flatnonzero(np.abs(np.diff(trend, 2)) > 1e-8) + 1
    kinks = kinks[np.diff(kinks, prepend=-1) > 1]  # one that falls between two days bends at both

    figure, axes = plt.subplots(figsize=(9, 3.6), layout="constrained")
    axes.plot(y, color="0.7", lw=0.8, label=f"log price ({source})")
    axes.plot(trend, color="C0", lw=1.6, label=f"trend: {kinks.size + 1} straight lines")
    axes.plot(kinks, trend[kinks], "o", color="C0", ms=3)
    axes.set(
        xlabel="trading day", ylabel="log price",
        title=f"objective {model.objective_:.8f}, at most {model.gap_:.1g} above the optimum",
    )  # fmt: skip
    axes.legend(frameon=False)
    figure.savefig(output, dpi=120)
    plt.close(figure)
    return model


if __name__ == "__main__":
    print(main(Path(sys.argv[1]) if len(sys.argv) > 1 else DATA).certificate_)
