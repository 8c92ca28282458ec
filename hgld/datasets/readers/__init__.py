"""Readers of published datasets, one module each; :mod:`~hgld.datasets.readers.registry` lists them.

To add one: write a module with a class that fulfils :class:`~hgld.datasets.readers.base.Reader`, and add a line to
the registry. ``hgld manifest`` then has a command for it, whose options are the settings of the class.
"""
