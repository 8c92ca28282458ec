"""Train embedding models: settings, the loop, checkpoints and the folder of a run."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
