"""Random problems of every kind, checked in exact arithmetic: `python -m fuzz`."""

import os

for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"):  # before NumPy is loaded: workers would share the cores
    os.environ.setdefault(_name, "1")
