"""Audit a data set: copies of images, and labels that are probably wrong."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
