"""The S&P 500 by l1 trend filtering: the picture of Kim, Koh, Boyd and Gorinevsky (2009), with a certificate.

Needs the data sets beside the project (``../shared/data``) and Matplotlib. Writes ``snp500_trend_filter.png``.
"""

from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from varopt.learn import TrendFilter

DATA = Path(__file__).resolve().parents[2] / "shared" / "data" / "fused" / "snp500_log.txt"


def main(output: Path = Path("snp500_trend_filter.png")) -> TrendFilter:
    y = np.loadtxt(DATA)
    days = np.arange(y.size)[:, None]
    # lambda = 50 of the paper, whose loss is a sum and not a mean.
    model = TrendFilter(alpha=50.0 / y.size).fit(days, y)
    trend = model.predict(days)
    kinks = np.flatnonzero(np.abs(np.diff(trend, 2)) > 1e-8) + 1

    _, axes = plt.subplots(figsize=(9, 3.6), layout="constrained")
    axes.plot(y, color="0.7", lw=0.8, label="log of the index")
    axes.plot(trend, color="C0", lw=1.6, label=f"trend: {kinks.size + 1} straight lines")
    axes.plot(kinks, trend[kinks], "o", color="C0", ms=3)
    axes.set(
        xlabel="trading day", ylabel="log price",
        title=f"objective {model.objective_:.8f}, at most {model.gap_:.1g} above the optimum",
    )  # fmt: skip
    axes.legend()
    plt.savefig(output, dpi=120)
    return model


if __name__ == "__main__":
    print(main().certificate_)
