"""Retrieval protocols: from input files to tasks.

A protocol is a module with an :class:`~hgld.evaluation.evaluation_files.EvaluationProtocol`, and a line here.
"""

from __future__ import annotations

from pkgutil import resolve_name
from typing import TYPE_CHECKING

from hgld.errors import ConfigurationError

if TYPE_CHECKING:
    from hgld.evaluation.evaluation_files import EvaluationProtocol

# Names of objects rather than objects: the command line lists the protocols without importing torch.
_PROTOCOLS = {
    "leave-one-out": "labels:LEAVE_ONE_OUT",
    "retrieval": "labels:RETRIEVAL",
    "gldv2-retrieval": "gldv2_retrieval:GLDV2_RETRIEVAL",
    "gldv2-recognition": "gldv2_recognition:GLDV2_RECOGNITION",
    "templates": "templates:TEMPLATES",
    "dyml": "dyml:DYML",
    "roxford": "revisited:ROXFORD",
    "rparis": "revisited:RPARIS",
}
PROTOCOL_NAMES = tuple(_PROTOCOLS)

__all__ = ["PROTOCOL_NAMES", "get_protocol"]


def get_protocol(name: str) -> EvaluationProtocol:
    """Return a protocol by its name.

    Raises:
        ConfigurationError: There is no such protocol.
    """
    if name not in _PROTOCOLS:
        raise ConfigurationError(f"there is no protocol {name!r}; expected one of {', '.join(PROTOCOL_NAMES)}")
    protocol: EvaluationProtocol = resolve_name(f"{__name__}.{_PROTOCOLS[name]}")
    return protocol
