"""Google Landmarks Dataset v2: its files, single photographs by id, reading tar files, and its ground truth."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hgld.lazy import lazy_exports

if TYPE_CHECKING:
    from hgld.gldv2.fetch import FetchConfig, FetchSummary, fetch_gldv2
    from hgld.gldv2.ground_truth import read_image_to_landmark, read_retrieval_solution
    from hgld.gldv2.image_index import IndexSummary, index_images
    from hgld.gldv2.photograph_list import PhotographList, read_photograph_list
    from hgld.gldv2.photographs import PhotographsConfig, PhotographsSummary, fetch_photographs
    from hgld.gldv2.tar_images import ImageReader

__all__ = [
    "FetchConfig",
    "FetchSummary",
    "ImageReader",
    "IndexSummary",
    "PhotographList",
    "PhotographsConfig",
    "PhotographsSummary",
    "fetch_gldv2",
    "fetch_photographs",
    "index_images",
    "read_image_to_landmark",
    "read_photograph_list",
    "read_retrieval_solution",
]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "FetchConfig": "fetch",
        "FetchSummary": "fetch",
        "ImageReader": "tar_images",
        "IndexSummary": "image_index",
        "PhotographList": "photograph_list",
        "PhotographsConfig": "photographs",
        "PhotographsSummary": "photographs",
        "fetch_gldv2": "fetch",
        "fetch_photographs": "photographs",
        "index_images": "image_index",
        "read_image_to_landmark": "ground_truth",
        "read_photograph_list": "photograph_list",
        "read_retrieval_solution": "ground_truth",
    },
)
