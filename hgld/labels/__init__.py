"""Turn scraped values, or a plain list of labels, into clusters of labels with suggested groups.

The stages here are clean (or labels, for a plain list), embed, cluster and suggest. Each is imported on first use.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
