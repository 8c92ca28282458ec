"""Search a gallery of embeddings with images: the nearest photographs, and the labels that they vote for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hgld.lazy import lazy_exports

if TYPE_CHECKING:
    from hgld.search.calibration import CalibrationFiles
    from hgld.search.detector_fit import IndexFiles, fit_detector
    from hgld.search.gallery import Gallery, read_gallery
    from hgld.search.query_model import QueryModel, load_query_model
    from hgld.search.searcher import Answers, Searcher

__all__ = [
    "Answers",
    "CalibrationFiles",
    "Gallery",
    "IndexFiles",
    "QueryModel",
    "Searcher",
    "fit_detector",
    "load_query_model",
    "read_gallery",
]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "Answers": "searcher",
        "CalibrationFiles": "calibration",
        "Gallery": "gallery",
        "IndexFiles": "detector_fit",
        "QueryModel": "query_model",
        "Searcher": "searcher",
        "fit_detector": "detector_fit",
        "load_query_model": "query_model",
        "read_gallery": "gallery",
    },
)
