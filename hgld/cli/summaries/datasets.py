"""Format the output of ``hgld manifest`` and ``hgld extract-images``."""

from __future__ import annotations

from hgld.datasets.image_folders import format_suffixes
from hgld.datasets.manifest_files import ManifestSummary
from hgld.datasets.pixel_arrays import ExtractSummary
from hgld.io.columns import preview


def format_manifest(summary: ManifestSummary) -> str:
    """Format the number of images by split, of classes by level, and what else is to be known."""
    splits = ", ".join(f"{count:,} {split}" for split, count in summary.images.items())
    levels = ", ".join(f"{count:,} {name}" for name, count in summary.n_classes.items())
    notes = ""
    if summary.untrained:
        finest = next(iter(summary.n_classes))
        notes += f"\nin test but not in train: {len(summary.untrained):,} {finest} ({preview(summary.untrained)})"
    notes += "".join(f"\nexcluded: {count:,} images {reason}" for reason, count in summary.excluded.items())
    if summary.other_files:
        notes += f"\nleft out: files that are no images ({format_suffixes(summary.other_files)})"
    n_images, n_levels = sum(summary.images.values()), len(summary.n_classes)
    several = "" if summary.labels_per_image is None else f"{summary.labels_per_image:.2f} labels per image "
    return f"{n_images:,} images ({splits}) with {several or 'labels '}at {n_levels} levels ({levels}){notes}"


def format_extracted(summary: ExtractSummary) -> str:
    """Format the number of images by split, and the names of the levels."""
    splits = ", ".join(f"{count:,} {split}" for split, count in summary.images.items())
    return f"{sum(summary.images.values()):,} images ({splits}) with labels: {', '.join(summary.levels)}"
