"""The hierarchy of landmarks, groups and roots: how it is built, loaded and compared, its levels and label matrix.

Names are imported on first use.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
