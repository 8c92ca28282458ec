"""Publish a hierarchy: data files, dataset card, datasheet, Croissant metadata and checksums in one folder."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
