"""Settings of an evaluation, which are the options of ``hgld evaluate``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Literal

from hgld.errors import ConfigurationError, require_at_least, require_choice

#: Module of :mod:`hgld.evaluation` and object of each protocol, named without importing torch.
PROTOCOLS = {
    "leave-one-out": "protocols:LEAVE_ONE_OUT",
    "retrieval": "protocols:RETRIEVAL",
    "gldv2-retrieval": "gldv2_retrieval:GLDV2_RETRIEVAL",
    "gldv2-recognition": "recognition:GLDV2_RECOGNITION",
    "dyml": "protocols:DYML",
    "roxford": "protocols:ROXFORD",
    "rparis": "protocols:RPARIS",
}
SeveralLabels = Literal["mean", "best"]
RerankMethod = Literal["aqe", "alpha-qe", "dba"]


def as_names(names: str | Sequence[str] | None) -> tuple[str, ...] | None:
    """Return names as a tuple; a text is one name."""
    if names is None:
        return None
    if isinstance(names, str):
        return (names,)
    return tuple(names)


@dataclass(frozen=True)
class EvaluationFiles:
    """Input files of an evaluation.

    Args:
        embeddings: Embeddings of all images: .npy, .safetensors or .parquet, or a folder of such parts.
        query_embeddings: Embeddings of the queries; requires embeddings of the gallery.
        gallery_embeddings: Embeddings of the gallery, in separate files from the queries.
        predictions: Predictions to score instead of embeddings, in the form of the public landmark challenges;
            requires the ground truth. For retrieval: .csv with id and images, ids separated by spaces; for
            gldv2-recognition: with id and landmarks, a landmark and its score separated by a space.
        distractor_embeddings: Embeddings of images to add to the gallery that are relevant to no query, such as R1M;
            a file, or a folder of parts. For retrieval, roxford and rparis.
        labels: Manifest of the images, or another table of their labels: .csv or .parquet with id and landmark_id
            (GLDv2's own files) or with id and a column per level, finest first, of lists where images have several
            labels; or .npy, row by row. Default: landmark_id of the embeddings.
        query_labels: Labels of the queries, in the same formats. Default: the labels of the images.
        label_separator: Separator between the labels of an image in these files, such as a semicolon.
            Default: one label.
        hierarchy: Levels above landmarks: the output of hgld build, or H-GLDv2's CSV files.
        split: Split of the landmark ids, if the hierarchy has several, or split of the manifest ``labels`` whose
            images are used.
        ground_truth: Ground truth of the protocol: the folder of GLDv2's or DyML's files, gnd_roxford5k.pkl, or
            recognition_solution_v2.1.csv.

    Raises:
        ConfigurationError: The given files are not ``embeddings``, or ``query_embeddings`` with
            ``gallery_embeddings``, or ``predictions``; or there is a separator without labels.
    """

    embeddings: Path | None = None
    query_embeddings: Path | None = None
    gallery_embeddings: Path | None = None
    predictions: Path | None = None
    distractor_embeddings: Path | None = None
    labels: Path | None = None
    query_labels: Path | None = None
    label_separator: str | None = None
    hierarchy: Path | None = None
    split: str | None = None
    ground_truth: Path | None = None

    def __post_init__(self) -> None:
        sources = ("embeddings", "query_embeddings", "gallery_embeddings", "predictions")
        given = [name for name in sources if getattr(self, name) is not None]
        accepted = (["embeddings"], ["query_embeddings", "gallery_embeddings"], ["predictions"])
        if given not in accepted:
            shown = " and ".join(f"`{name}`" for name in given) or "none of them"
            raise ConfigurationError(
                "expected either `embeddings`, or `query_embeddings` and `gallery_embeddings`, or `predictions`; "
                f"found {shown}"
            )
        if self.label_separator is not None and self.labels is None:
            raise ConfigurationError(
                "`label_separator` is for the columns of `labels`, which is not given"
            )

    def given(self) -> set[str]:
        """Return the names of the inputs that are given."""
        return {field.name for field in fields(self) if getattr(self, field.name) is not None}


@dataclass(frozen=True, eq=False)
class MetricSettings:
    """Metrics of an evaluation, and weights of levels in them.

    Args:
        metrics: Metric to report; may be repeated: AP, mAP@R, mAP@K, R@K, TR@K, P@K (with _lN for a level N that is
            not the finest), wAP, H-AP, H-AP_selfcount, H-R@K, H-P@K, NDCG, NDCG@K, SI@K, ASI, HP@K, AHP, AHP@K,
            WUP@K, hF, mistake_severity, avg_hdist@K, min_hdist@K; docs/reference/metrics.md defines them and their
            variants. Default: the metrics of the papers.
        relevance_alpha: Exponent alpha of the relevance in H-AP (Eq. 20).
        level_weights: Weights of the levels in wAP, coarsest first and separated by commas, such as 0.2,0.3,0.5;
            scaled to add up to 1. Default: equal.
        several_labels: Relevance of images with several labels in H-AP and NDCG: the mean over the labels of the
            query (Algorithm 1 of the thesis), or Eq. 20 for the best level that any labels share.
    """

    metrics: tuple[str, ...] | None = None
    relevance_alpha: float = 1.0
    level_weights: tuple[float, ...] | None = None
    several_labels: SeveralLabels = "mean"

    def __post_init__(self) -> None:
        require_at_least(0, relevance_alpha=self.relevance_alpha)
        require_choice(SeveralLabels, several_labels=self.several_labels)


@dataclass(frozen=True)
class RerankSettings:
    """Re-ranking by embeddings, see :mod:`hgld.evaluation.reranking`.

    Args:
        rerank: Re-ranking: average query expansion, query expansion with the weights cos^alpha, or database
            augmentation with these weights. Default: no re-ranking.
        rerank_neighbours: Number of neighbours of an image.
        rerank_alpha: Exponent alpha of alpha-qe and dba.

    Raises:
        ConfigurationError: There is no such method, or a number is too low.
    """

    rerank: RerankMethod | None = None
    rerank_neighbours: int = 10
    rerank_alpha: float = 3.0

    def __post_init__(self) -> None:
        if self.rerank is not None:
            require_choice(RerankMethod, rerank=self.rerank)
        require_at_least(1, rerank_neighbours=self.rerank_neighbours)
        require_at_least(0, rerank_alpha=self.rerank_alpha)

    def describe(self) -> str | None:
        """Return the method and the settings that it uses; None without a method."""
        if self.rerank is None:
            return None
        description = f"{self.rerank}, {self.rerank_neighbours} neighbours"
        if self.rerank != "aqe":
            description += f", alpha {self.rerank_alpha:g}"
        return description
