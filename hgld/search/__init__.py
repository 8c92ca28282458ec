"""Search of a gallery of embeddings: the nearest photographs, and their votes on labels."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
