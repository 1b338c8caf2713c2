"""The version, written once: packaging, the documentation and the tests read it here."""

__version__ = "0.1.0"
