"""Images for training and embedding: manifests, readers of datasets, loading, samplers and labels."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
