"""Random problems of every kind, checked in exact arithmetic: `python -m fuzz`."""
