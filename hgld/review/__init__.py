"""Review of labels by annotators: sessions and their events, the page, sheets, agreement and adjudication.

A decision, and the CSV files of decisions, are in :mod:`hgld.taxonomy.decisions`, as the stages before and after the
review read them, too.

The public names are loaded on first use, because some of them need packages that take long to import.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
