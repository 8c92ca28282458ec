"""Readers of published datasets and of one's own images; :mod:`~hgld.datasets.readers.registry` lists them.

To add one: write a class that fulfils :class:`~hgld.datasets.readers.base.Reader`, and add a line to the registry.
``hgld manifest`` then has a command for it, whose options are the settings of the class. Lists in text files are read
by :func:`~hgld.datasets.readers.base.read_text_lists`.
"""
