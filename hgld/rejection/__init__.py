"""Scores that say "not in the index": fitted on the embeddings of an index, higher for what is less like it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hgld.lazy import lazy_exports

if TYPE_CHECKING:
    from hgld.rejection.detector import Detector, NeighbourDetector
    from hgld.rejection.detector_files import SavedDetector, load_detector, save_detector
    from hgld.rejection.detector_record import DetectorModel, DetectorRecord
    from hgld.rejection.registry import DETECTORS, build_detector

__all__ = [
    "DETECTORS",
    "Detector",
    "DetectorModel",
    "DetectorRecord",
    "NeighbourDetector",
    "SavedDetector",
    "build_detector",
    "load_detector",
    "save_detector",
]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "DETECTORS": "registry",
        "Detector": "detector",
        "DetectorModel": "detector_record",
        "DetectorRecord": "detector_record",
        "NeighbourDetector": "detector",
        "SavedDetector": "detector_files",
        "build_detector": "registry",
        "load_detector": "detector_files",
        "save_detector": "detector_files",
    },
)
