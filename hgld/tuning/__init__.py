"""Search of the settings of a training, such as learning rates and weights of losses, on its training classes."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
