"""Search a gallery of embeddings with images: the nearest photographs, and the labels that they vote for."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
