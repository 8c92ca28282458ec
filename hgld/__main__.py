"""``python -m hgld`` runs ``hgld``, as ``torchrun -m hgld`` needs it."""

from hgld.cli import app

app()
