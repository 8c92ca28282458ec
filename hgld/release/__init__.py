"""Publish a hierarchy as a folder of data files, documents, metadata and checksums."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
