"""Losses for retrieval with hierarchical labels.

Each family of losses has a file of its own, under the name the field gives it.
:mod:`~hgld.losses.registry` lists the losses by their names in settings, and ``kernels`` has the
computations that several losses share. Call a loss as ``loss(embeddings, labels)``, see
:class:`Loss`.
"""

from typing import Any

import lazy_loader

from hgld.errors import similar_names

_load, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)


def __getattr__(name: str) -> Any:
    """Suggest a name for one that does not exist, such as ``happier`` for the paper's HAPPIER."""
    try:
        return _load(name)
    except AttributeError as error:
        message = f"module {__name__!r} has no attribute {name!r}"
        similar = similar_names(name, __all__)
        if similar:
            message += f"; did you mean {similar[0]}?"
        raise AttributeError(message) from error
