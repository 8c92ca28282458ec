"""Review of labels by annotators: sessions and their events, the page, sheets, agreement and adjudication.

Decisions and their CSV files are in :mod:`hgld.taxonomy.decisions`, because the stages before and after the review
read them as well.

The public names are loaded on first use, because some names need packages that are slow to import.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
