"""The version of hgld."""

__version__ = "0.3.0"
