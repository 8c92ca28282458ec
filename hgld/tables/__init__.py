"""Tables that stages exchange: schemas, provenance, and validated, atomic reading and writing.

A table on disk is complete and valid, or it is absent: it is written to a temporary file that is then renamed, and
rows that do not fit the schema are refused on writing as on reading. The Arrow metadata of a file hold the schema id
(``hgld.table``, such as ``clean/1``) and the provenance (``hgld.provenance``: command, version of hgld, parameters,
and the SHA-256 of every input), so that a stage can skip work that is already done.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
