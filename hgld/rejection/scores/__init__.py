"""Rejection scores, one per file; see :mod:`hgld.rejection.registry`."""
