"""From scraped "instance of" values to clusters of labels with suggested groups: clean, embed, cluster, suggest."""

from hgld.labels.clean import CleanConfig, clean_file
from hgld.labels.clustering import ClusterConfig
from hgld.labels.clusters import cluster_file
from hgld.labels.embed import EmbedConfig, embed_file
from hgld.labels.encoders import TextEncoder, load_encoder
from hgld.labels.suggest import suggest_file
from hgld.labels.suggestion_quality import evaluate_suggestions

__all__ = [
    "CleanConfig",
    "ClusterConfig",
    "EmbedConfig",
    "TextEncoder",
    "clean_file",
    "cluster_file",
    "embed_file",
    "evaluate_suggestions",
    "load_encoder",
    "suggest_file",
]
