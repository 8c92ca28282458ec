"""Readers of published datasets and of one's own images; :mod:`~hgld.datasets.readers.registry` lists them.

To add one: write a class that fulfils :class:`~hgld.datasets.readers.base.Reader`, for lists in text files a
:class:`~hgld.datasets.readers.base.TextListReader`, and add a line to the registry. ``hgld manifest`` then has a
command for it, whose options are the settings of the class.
"""
