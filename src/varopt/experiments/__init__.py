"""The paper, reproduced: its problems, the methods it compares with, its tables and figures, and a report.

``varopt reproduce`` runs it; so does ``python -m varopt.experiments``.
"""
