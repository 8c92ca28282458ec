"""Settings of sheets and of agreement, in a module that is fast to import for help."""

from __future__ import annotations

from dataclasses import dataclass

from hgld.errors import ConfigurationError


@dataclass(frozen=True)
class ExportConfig:
    """Settings of the export.

    Args:
        annotators: Names of the annotators, after which their files are named.
        merge: Keep the entries in existing sheets.
    """

    annotators: tuple[str, ...]
    merge: bool = False

    def __post_init__(self) -> None:
        from hgld.taxonomy.decisions import check_annotator

        if not self.annotators:
            raise ConfigurationError("`annotators` is empty; give at least one name, e.g. ada,ben")
        for name in self.annotators:
            check_annotator(name)
        # Some file systems do not distinguish "Ada" from "ada".
        if len({name.casefold() for name in self.annotators}) < len(self.annotators):
            raise ConfigurationError(
                f"two annotators have the same name: {', '.join(self.annotators)}"
            )


@dataclass(frozen=True)
class ImportConfig:
    """Settings of the import.

    Args:
        annotator: Name of the annotator who filled in the sheet. Default: the name in the workbook.
        valid_rows_only: Import the valid rows of a sheet with problems.
    """

    annotator: str | None = None
    valid_rows_only: bool = False

    def __post_init__(self) -> None:
        from hgld.taxonomy.decisions import check_annotator

        if self.annotator is not None:
            check_annotator(self.annotator)


@dataclass(frozen=True)
class AgreementConfig:
    """Settings of the bootstrap intervals.

    Args:
        n_resamples: Number of bootstrap samples for the intervals.
        confidence: Share of the samples within the interval, between 0 and 1.
        seed: Seed of the bootstrap samples.
    """

    n_resamples: int = 1000
    confidence: float = 0.95
    seed: int = 0

    def __post_init__(self) -> None:
        from hgld.compute.resampling import check_resampling

        check_resampling(self.confidence, self.n_resamples)
