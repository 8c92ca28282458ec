"""Comparison of rejection scores and embeddings on open-set splits: scores, statistics, result files, pages."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
