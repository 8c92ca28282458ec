"""Comparison of retrieval methods over several seeds and splits: runs, evaluation, statistics, result files."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
