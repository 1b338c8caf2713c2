"""Rows that live anywhere: on disk, on a cluster, on a GPU; each with the certificate of rows in memory.

The rows of a GPU run where PyTorch finds CUDA, and are reported as absent elsewhere: there,
``python -m benchmarks --suite anywhere --only gpu`` runs these alone, in a few minutes. Peak memory of files is that of
a process of their own, beyond what Python and the libraries take. Files are written to the folder of temporary files
(``TMPDIR``) and removed; those of the full size take 17 GB.
"""

from benchmarks.anywhere import _cluster, _files, _gpu, _rivals  # noqa: F401
