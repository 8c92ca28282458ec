"""Settings of a comparison of methods, read from its YAML file.

The file lists the trainings, as rows of ``trainings`` that say what differs from the settings under ``shared``, or
names those of other files, and says how they are evaluated and drawn.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Literal

from pydantic import Field, NonNegativeInt, model_validator

from hgld.benchmark.evaluations import (
    ByFileName,
    Evaluation,
    PicturedEvaluation,
    RevisitedEvaluation,
    SplitEvaluation,
)
from hgld.io.settings import Settings


class MethodSettings(Settings):
    """A method of the table.

    Args:
        title: Title in tables and figures.
        latex: Title in LaTeX; None to escape ``title``.
        training: Settings file of the training, relative to the file that names it, or a row in one, such as
            ``mine.yaml/happier``; or the name of a preset, such as ``own_images/happier``. None for the row of
            ``trainings`` in the same file that has the name of the method.
        baseline: Whether other methods are compared with this one.
        space: Settings that ``hgld tune`` searches, such as ``loss.lambda=0..0.9``.
    """

    title: str
    latex: str | None = None
    training: Path | None = None
    baseline: bool = False
    space: tuple[str, ...] = ()


class CurveSettings(Settings):
    """A curve of a sweep.

    Args:
        method: Name of a method of the table.
        set: Changes to its training, such as ``loss.lambda=0``.
    """

    method: str
    set: tuple[str, ...] = ()


class SweepSettings(Settings):
    """A sweep over the values of one setting of trainings, as in the paper's Figs. 6 to 8.

    Args:
        title: Title of the figure.
        key: Setting, such as ``loss.lambda``.
        label: Label of the x axis.
        values: Values of the setting, in order.
        curves: Curves by title.
        metrics: Metrics, each in its own panel.
        scale: Scale of the x axis.
        relative_to: Title of the curve that the others are drawn relative to, in percent (Fig. 6); None to draw
            values.
    """

    title: str
    key: str
    label: str
    values: tuple[int | float | str, ...] = Field(min_length=1)
    curves: Mapping[str, CurveSettings] = Field(min_length=1)
    metrics: tuple[str, ...] = ("H-AP",)
    scale: Literal["linear", "log"] = "linear"
    relative_to: str | None = None

    @model_validator(mode="after")
    def _check_relative_to(self) -> SweepSettings:
        if self.relative_to is not None and self.relative_to not in self.curves:
            raise ValueError(f'relative_to is "{self.relative_to}"; expected one of {", ".join(self.curves)}')
        return self


class PictureSettings(Settings):
    """Figures drawn besides the table.

    Args:
        baseline: Name of a method without the hierarchy.
        method: Name of a hierarchical method, shown side by side with ``baseline``.
        curves: Names of the methods whose curves are drawn; all if empty.
        n_queries: Number of queries on the page of those that the two methods rank most differently.
        hierarchy: Hierarchy of GLDv2, whose categories name the landmarks on that page; None to show ids.
    """

    baseline: str
    method: str
    curves: tuple[str, ...] = ()
    n_queries: NonNegativeInt = 12
    hierarchy: Path | None = None


class BenchmarkSettings(Settings):
    """A comparison of methods.

    Args:
        title: Title of the table.
        methods: Methods by name, in the order of the table; the names are those of folders.
        seeds: Seeds of the trainings: each method is trained once per seed, and an untrained model evaluated once.
        splits: Seeds of random splits of the images (``data.random_split.seed`` of the trainings): each method is
            trained with all seeds on each of them. Empty for the splits of the manifest.
        set: Changes to all trainings, such as ``data.manifest=mine.parquet``.
        evaluation: Evaluation of the trained models.
        metrics: Names of metrics as in ``hgld evaluate``; those of the papers if empty, as for ROxford and RParis.
        columns: Metrics of the LaTeX table, in order.
        pictures: Figures; None for none.
        sweeps: Sweeps over single settings, by name.
    """

    title: str
    methods: ByFileName[MethodSettings] = Field(min_length=1)
    seeds: tuple[NonNegativeInt, ...] = Field(default=(0, 1, 2), min_length=1)
    splits: tuple[NonNegativeInt, ...] = ()
    set: tuple[str, ...] = ()
    evaluation: Evaluation = SplitEvaluation()
    metrics: tuple[str, ...] = ()
    columns: tuple[str, ...] = ("mAP@100", "H-AP", "ASI", "NDCG")
    pictures: PictureSettings | None = None
    sweeps: ByFileName[SweepSettings] = Field(default={})

    @model_validator(mode="after")
    def _check_names(self) -> BenchmarkSettings:
        if self.pictures is not None and not isinstance(self.evaluation, PicturedEvaluation):
            raise ValueError(f"pictures are not drawn for the evaluation {self.evaluation.name}; omit them")
        if self.metrics and isinstance(self.evaluation, RevisitedEvaluation):
            raise ValueError(f"the evaluation {self.evaluation.name} has metrics of its own; omit `metrics`")
        references = {
            f"sweeps.{name}": [curve.method for curve in sweep.curves.values()] for name, sweep in self.sweeps.items()
        }
        if self.pictures is not None:
            references["pictures"] = [self.pictures.baseline, self.pictures.method, *self.pictures.curves]
        for key, methods in references.items():
            unknown = [method for method in methods if method not in self.methods]
            if unknown:
                raise ValueError(
                    f'{key}: there is no method "{unknown[0]}"; expected one of {", ".join(self.methods)}'
                )
        for name, values in (("seeds", self.seeds), ("splits", self.splits)):
            if len(dict.fromkeys(values)) < len(values):
                raise ValueError(f"the {name} are {', '.join(map(str, values))}; expected different {name}")
        return self
