"""From scraped "instance of" values to clusters of labels with suggested groups, and groups from photographs.

The stages are clean, embed, cluster, suggest and complete. Each is imported on first use: the last one needs torch.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
