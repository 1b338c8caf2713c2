"""Total variation of a signal by Condat's direct algorithm (2013), which does nothing else."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks._rivals import Fit, Rival

Vector = NDArray[np.float64]


def _condat(_: Any, signal: Vector, penalty: float) -> Fit:
    from condat_tv import tv_denoise

    return lambda: np.asarray(tv_denoise(signal, penalty))


CONDAT = Rival("Condat's direct algorithm", _condat, modules=("condat_tv",), packages=("condat-tv",))
