"""What `make reproduce` runs: until the paper's experiments are here, a short certified tour of the library.

Run ``python -m varopt.experiments``, or name sections: ``python -m varopt.experiments lasso bits``.
"""
