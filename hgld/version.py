"""The version of hgld."""

__version__ = "0.2.0"
