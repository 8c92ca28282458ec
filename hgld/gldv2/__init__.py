"""Google Landmarks Dataset v2: its files, single photographs by id, reading tar files, and its ground truth."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
