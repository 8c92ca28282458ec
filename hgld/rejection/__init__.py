"""Rejection scores: fitted on the embeddings of an index, higher for images less like the index."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
