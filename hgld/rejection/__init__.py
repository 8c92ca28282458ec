"""Scores that say "not in the index": fitted on the embeddings of an index, higher for what is less like it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hgld.lazy import lazy_exports

if TYPE_CHECKING:
    from hgld.rejection.detector import Detector, NeighbourDetector
    from hgld.rejection.registry import DETECTORS, build_detector

__all__ = ["DETECTORS", "Detector", "NeighbourDetector", "build_detector"]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "DETECTORS": "registry",
        "Detector": "detector",
        "NeighbourDetector": "detector",
        "build_detector": "registry",
    },
)
