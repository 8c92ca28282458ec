"""The version of hgld."""

__version__ = "0.1.0"
