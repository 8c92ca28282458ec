"""Search a gallery of embeddings with images: the nearest photographs, and the labels that they vote for."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hgld.lazy import lazy_exports

if TYPE_CHECKING:
    from hgld.search.gallery import Gallery, read_gallery
    from hgld.search.query_model import QueryModel, load_query_model
    from hgld.search.searcher import Answers, Searcher

__all__ = ["Answers", "Gallery", "QueryModel", "Searcher", "load_query_model", "read_gallery"]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "Answers": "searcher",
        "Gallery": "gallery",
        "QueryModel": "query_model",
        "Searcher": "searcher",
        "load_query_model": "query_model",
        "read_gallery": "gallery",
    },
)
