"""Google Landmarks Dataset v2: files, single photographs by id, tar files, and ground truth."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
