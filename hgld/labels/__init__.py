"""From scraped "instance of" values to clusters of labels with suggested groups, and groups from photographs.

The stages are clean, embed, cluster, suggest and complete. Each is imported on first use: the last one needs torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hgld.lazy import lazy_exports

if TYPE_CHECKING:
    from hgld.labels.clean import CleanConfig, clean_file
    from hgld.labels.clustering import ClusterConfig
    from hgld.labels.clusters import cluster_file
    from hgld.labels.complete import complete_file
    from hgld.labels.completion_inputs import CompletionFiles, find_completion_files
    from hgld.labels.completion_quality import evaluate_completion
    from hgld.labels.embed import EmbedConfig, embed_file
    from hgld.labels.encoders import TextEncoder, load_encoder
    from hgld.labels.landmark_classifier import CompleteConfig
    from hgld.labels.suggest import suggest_file
    from hgld.labels.suggestion_quality import evaluate_suggestions

__all__ = [
    "CleanConfig",
    "ClusterConfig",
    "CompleteConfig",
    "CompletionFiles",
    "EmbedConfig",
    "TextEncoder",
    "clean_file",
    "cluster_file",
    "complete_file",
    "embed_file",
    "evaluate_completion",
    "evaluate_suggestions",
    "find_completion_files",
    "load_encoder",
    "suggest_file",
]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "CleanConfig": "clean",
        "ClusterConfig": "clustering",
        "CompleteConfig": "landmark_classifier",
        "CompletionFiles": "completion_inputs",
        "EmbedConfig": "embed",
        "TextEncoder": "encoders",
        "clean_file": "clean",
        "cluster_file": "clusters",
        "complete_file": "complete",
        "embed_file": "embed",
        "evaluate_completion": "completion_quality",
        "evaluate_suggestions": "suggestion_quality",
        "find_completion_files": "completion_inputs",
        "load_encoder": "encoders",
        "suggest_file": "suggest",
    },
)
