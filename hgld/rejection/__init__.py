"""Scores that say "not in the index": fitted on the embeddings of an index, higher for what is less like it."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
