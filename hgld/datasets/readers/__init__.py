"""Readers of datasets and of the user's own images, see :mod:`hgld.datasets.readers.registry`.

To add one: write a class that fulfils :class:`~hgld.datasets.readers.base.Reader`, derived from a dataclass of its
settings in :mod:`~hgld.datasets.readers.settings` if it has any, and add both to the registry. ``hgld manifest`` then
has a command for it, whose options are these settings. Lists in text files are read by
:func:`~hgld.datasets.readers.base.read_text_lists`.
"""
