"""Evaluation of retrieval: tasks, ranking, relevance, metrics, protocols and result files."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
