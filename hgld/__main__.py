"""``python -m hgld`` is ``hgld``; ``torchrun`` starts it so."""

from hgld.cli import app

app()
