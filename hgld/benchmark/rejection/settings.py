"""Settings of a comparison of rejection scores, read from its YAML file.

Paths are relative to the working directory, as in settings of trainings. In files of embeddings and heads,
``{split}`` stands for the seed of the split, so each split can have models of its own.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, PositiveInt, model_validator

from hgld.benchmark.evaluations import ByFileName, Seeds
from hgld.errors import ConfigurationError
from hgld.io.settings import Settings, read_settings
from hgld.rejection.registry import DETECTORS, build_detector

#: Key of the index in the files of embeddings.
INDEX = "index"
#: Names of the sets of images that an open-set split makes; sets of other unknown images have other names.
CALIBRATION, KNOWN, NEAR = "calibration", "known", "near"
#: Stands for all unknown images together.
ALL_UNKNOWN = "all"
_RESERVED = (INDEX, CALIBRATION, KNOWN, NEAR, ALL_UNKNOWN)


class OpenSetIndex(Settings):
    """Images of landmarks that are divided at random, by the seed of each split.

    Some landmarks are near unknown: all of their photographs are queries that the index cannot answer. The
    photographs of the other landmarks are divided into index, known queries, and calibration queries, on which
    thresholds are chosen. The landmarks of each group are divided alike, so near landmarks look like the landmarks of
    the index.

    Args:
        manifest: Table from ``hgld manifest``, whose finest level is the landmark.
        root: Folder of the photographs; None for the folder of the manifest.
        split: Split of the manifest whose images are used; None for all images.
        test_share: Share of test landmarks in the random split of trainings (``data.random_split.test_share``), whose
            test images are used; it has the seed of the split. None for the splits of the manifest.
        near_share: Share of the landmarks that the index lacks.
        known_share: Share of the photographs of the other landmarks that are known queries.
        calibration_share: Share of the same photographs that are calibration queries.
    """

    name: Literal["open_set"] = "open_set"
    manifest: Path
    root: Path | None = None
    split: str | None = None
    test_share: float | None = Field(default=None, gt=0, lt=1)
    near_share: float = Field(default=0.5, gt=0, lt=1)
    known_share: float = Field(default=0.3, gt=0, lt=1)
    calibration_share: float = Field(default=0.15, gt=0, lt=1)

    @model_validator(mode="after")
    def _check_shares(self) -> OpenSetIndex:
        if self.known_share + self.calibration_share >= 1:
            raise ValueError(
                f"known_share {self.known_share} and calibration_share {self.calibration_share} leave no photographs "
                "for the index; their sum is to be below 1"
            )
        if self.split is not None and self.test_share is not None:
            raise ValueError(
                "test_share replaces the splits of the manifest; omit it, or omit split"
            )
        return self


class FixedIndex(Settings):
    """Images that a manifest divides into splits, such as the training and test images of CIFAR-10.

    Args:
        manifest: Table from ``hgld manifest``.
        root: Folder of the photographs; None for the folder of the manifest.
        index: Split of the images that scores are fitted on.
        known: Split of the known queries.
        calibration: Split of the calibration queries, on which thresholds are chosen; None if there is no such split.
    """

    name: Literal["splits"]
    manifest: Path
    root: Path | None = None
    index: str = "train"
    known: str = "test"
    calibration: str | None = None


class UnknownImages(Settings):
    """Images of landmarks or other classes that the index does not have.

    Args:
        kind: ``near`` for images of the same kind as the index's, ``far`` for images of another kind.
        manifest: Table from ``hgld manifest``.
        root: Folder of the images; None for the folder of the manifest.
        split: Split of the manifest; None for all images.
    """

    kind: Literal["near", "far"]
    manifest: Path
    root: Path | None = None
    split: str | None = None


class EmbeddingSettings(Settings):
    """Embeddings to compare.

    Args:
        title: Title in tables and figures.
        files: Embeddings or features from ``hgld embed-images``: of the manifest of the index under ``index``, of
            unknown images under their names. Standard deviations of the feature maps are read from beside them
            (``hgld embed-images --with-std``) where all files have them.
        head: Run of ``hgld train`` or checkpoint of a head on features, which turns the features of the files into
            embeddings; None for the files as they are.
        baseline: Whether differences of the other embeddings are taken from this one.
    """

    title: str
    files: Mapping[str, Path]
    head: Path | None = None
    baseline: bool = False


class ScoreSettings(Settings):
    """A score to compare.

    Args:
        score: Name of the score (:data:`hgld.rejection.registry.DETECTORS`); None for its name in the settings.
        title: Title in tables and figures; None for its name in the settings.
        options: Options that differ from the defaults.
        index_share: Share of the images of each class of the index that the score is fitted on, drawn by the seed of
            the split (thesis, Figs. 5.4 and C.2). A classifier that is fitted on the index has all its images.
    """

    score: str | None = None
    title: str | None = None
    options: Mapping[str, Any] = {}
    index_share: float = Field(default=1, gt=0, le=1)


class MistakesSettings(Settings):
    """The page of the most confident mistakes.

    Args:
        embedding: Name of the embeddings.
        score: Name of the score.
        n: Number of queries in each section of the page.
        hierarchy: Hierarchy whose categories name the landmarks; None to show ids.
    """

    embedding: str
    score: str
    n: PositiveInt = 6
    hierarchy: Path | None = None


class RejectionSettings(Settings):
    """A comparison of rejection scores on one or several embeddings.

    Args:
        title: Title of the table.
        index: Images of the index and of known queries.
        unknown: Other unknown images by name.
        embeddings: Embeddings by name, in the order of the table.
        scores: Scores by name, in the order of the table; all that the embeddings allow if empty.
        splits: Seeds of the splits.
        accepted: Share of the calibration queries that are accepted; the shares of known and unknown queries that the
            same threshold accepts are reported.
        n_resamples: Number of bootstrap samples of landmarks for intervals.
        mistakes: Page of the most confident mistakes; None to write no page.
    """

    title: str
    index: Annotated[OpenSetIndex | FixedIndex, Field(discriminator="name")]
    unknown: ByFileName[UnknownImages] = Field(default={})
    embeddings: ByFileName[EmbeddingSettings] = Field(min_length=1)
    scores: ByFileName[ScoreSettings] = Field(default={})
    splits: Seeds = Field(default=(0, 1, 2), min_length=1)
    accepted: float = Field(default=0.95, gt=0, lt=1)
    n_resamples: PositiveInt = 1000
    mistakes: MistakesSettings | None = None

    @model_validator(mode="after")
    def _check_names(self) -> RejectionSettings:
        for name in self.unknown:
            if name in _RESERVED:
                raise ValueError(
                    f'unknown images are called "{name}", which means other images; rename them'
                )
        if not self.unknown and isinstance(self.index, FixedIndex):
            raise ValueError(
                "there are no unknown images; add `unknown`, or divide the landmarks (`open_set`)"
            )
        for name, embedding in self.embeddings.items():
            if set(embedding.files) != set(self.sources):
                raise ValueError(
                    f"embeddings.{name}.files names {', '.join(embedding.files) or 'none'}; expected a file each for "
                    f"{', '.join(sorted(self.sources))}"
                )
        if sum(embedding.baseline for embedding in self.embeddings.values()) > 1:
            raise ValueError("several embeddings are the baseline; expected at most one")
        if self.mistakes is not None:
            shown_embedding, shown_score = self.mistakes.embedding, self.mistakes.score
            if shown_embedding not in self.embeddings:
                raise ValueError(
                    f'mistakes.embedding is "{shown_embedding}"; expected one of {", ".join(self.embeddings)}'
                )
            scores = self.score_settings()
            if shown_score not in scores:
                raise ValueError(
                    f'mistakes.score is "{shown_score}"; expected one of {", ".join(scores)}'
                )
        return self

    @property
    def sources(self) -> dict[str, OpenSetIndex | FixedIndex | UnknownImages]:
        """Images by the key of their embeddings: the index, and other unknown images."""
        return {INDEX: self.index, **self.unknown}

    def score_title(self, score: str) -> str:
        """Return the title of a score."""
        return self.score_settings()[score].title or score

    def score_settings(self) -> Mapping[str, ScoreSettings]:
        """Return the scores by name: the scores in the settings, or all scores."""
        return self.scores or dict.fromkeys(DETECTORS, ScoreSettings())


def read_rejection_settings(path: Path) -> RejectionSettings:
    """Read the settings of a comparison of rejection scores from a YAML file.

    Raises:
        InputError: See :func:`~hgld.io.settings.read_settings`.
        ConfigurationError: Settings are invalid, or a score or one of its options does not exist.
    """
    settings = read_settings(RejectionSettings, path)
    for name, score in settings.score_settings().items():
        try:
            build_detector(score.score or name, score.options)
        except ConfigurationError as error:
            raise ConfigurationError(f"{path}: scores.{name}: {error}") from error
    return settings


def root_of(images: OpenSetIndex | FixedIndex | UnknownImages) -> Path:
    """Return the folder of photographs."""
    return images.root or images.manifest.parent


def for_split(path: Path, split: int) -> Path:
    """Return a path for the seed of a split.

    >>> for_split(Path("runs/split{split}"), 2)
    PosixPath('runs/split2')
    """
    return Path(str(path).replace("{split}", str(split)))
