"""Figures drawn from plain data: arrays and small dataclasses of this package."""
