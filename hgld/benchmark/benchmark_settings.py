"""All settings of a comparison of methods, as its YAML file has them.

The file says which trainings there are, each by the file that ``hgld train`` takes, and how they are evaluated and
shown. What the trainings share is in the files that theirs build upon.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field, NonNegativeInt, model_validator

from hgld.io.settings import Settings

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]*")


class MethodSettings(Settings):
    """A method of the table.

    Args:
        title: its name in tables and pictures.
        latex: the same in LaTeX, where it is more than text.
        training: the file of the settings of its training, relative to the file that names it.
        baseline: whether it is one of those that the others are compared with.
    """

    title: str
    latex: str | None = None
    training: Path
    baseline: bool = False


class SplitEvaluation(Settings):
    """The images that the trainings are evaluated with, by the landmarks' labels.

    These are ``data.test`` of the trainings, ranked for each other, or ``data.queries`` and ``data.gallery``.
    """

    name: Literal["split"] = "split"


class Gldv2Evaluation(Settings):
    """GLDv2's retrieval: its test images against its index, see :mod:`hgld.evaluation.protocols.gldv2_retrieval`.

    Args:
        queries: the table from ``hgld index-images`` of the test images, in the folder of their tar files.
        gallery: likewise, of the index.
        ground_truth: the folder of ``retrieval_solution_v2.1.csv`` and ``index_image_to_landmark.csv``.
        hierarchy: H-GLDv2's levels of the index landmarks.
    """

    name: Literal["gldv2-retrieval"]
    queries: Path
    gallery: Path
    ground_truth: Path
    hierarchy: Path


class CurveSettings(Settings):
    """A curve of a study.

    Args:
        method: the name of a method of the table.
        set: what is changed in its training, such as ``loss.lambda=0``.
    """

    method: str
    set: tuple[str, ...] = ()


class SweepSettings(Settings):
    """A study of a setting of trainings, as in the paper's Figs. 6 to 8.

    Args:
        title: of the picture.
        key: the setting, such as ``loss.lambda``.
        label: of its axis.
        values: that it takes, in order.
        curves: by their titles.
        metrics: a picture of each.
        scale: of the axis.
        relative_to: the title of a curve; the others are shown as relative differences from it, in percent (Fig. 6).
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
    def _known_curve(self) -> SweepSettings:
        if self.relative_to is not None and self.relative_to not in self.curves:
            raise ValueError(f'relative_to is "{self.relative_to}"; expected one of {", ".join(self.curves)}')
        return self


class PictureSettings(Settings):
    """What is drawn besides the table.

    Args:
        baseline: the name of a method that knows landmarks only, and
        method: of a hierarchical one, which are shown side by side.
        curves: the names of the methods of precision-recall and learning curves; all if there are none.
        n_queries: of the page of queries that the two rank most differently.
        hierarchy: of GLDv2's landmarks, whose categories name the landmarks on that page; ids do unless given.
    """

    baseline: str
    method: str
    curves: tuple[str, ...] = ()
    n_queries: NonNegativeInt = 12
    hierarchy: Path | None = None


class BenchmarkSettings(Settings):
    """A comparison of methods.

    Args:
        title: above the table.
        methods: by their names, which are those of folders, in the order of the table.
        seeds: of the trainings; each method is trained once with each. What is not trained is evaluated once.
        evaluation: of the trained models.
        metrics: by the names that ``hgld evaluate`` knows; those of the papers if there are none.
        columns: the metrics of the table in LaTeX, in their order.
        pictures: which ones; None for none.
        sweeps: studies of single settings, by their names.
    """

    title: str
    methods: Mapping[str, MethodSettings] = Field(min_length=1)
    seeds: tuple[NonNegativeInt, ...] = Field(default=(0, 1, 2), min_length=1)
    evaluation: Annotated[SplitEvaluation | Gldv2Evaluation, Field(discriminator="name")] = SplitEvaluation()
    metrics: tuple[str, ...] = ()
    columns: tuple[str, ...] = ("mAP@100", "H-AP", "ASI", "NDCG")
    pictures: PictureSettings | None = None
    sweeps: Mapping[str, SweepSettings] = {}

    @model_validator(mode="after")
    def _check_names(self) -> BenchmarkSettings:
        for name in (*self.methods, *self.sweeps):
            if not _NAME.fullmatch(name):
                raise ValueError(f'"{name}" is to name a folder; expected small letters, digits, - and _')
        named = {
            f"sweeps.{name}": [curve.method for curve in sweep.curves.values()] for name, sweep in self.sweeps.items()
        }
        if self.pictures is not None:
            named["pictures"] = [self.pictures.baseline, self.pictures.method, *self.pictures.curves]
        for where, methods in named.items():
            unknown = [method for method in methods if method not in self.methods]
            if unknown:
                raise ValueError(f'{where}: there is no method "{unknown[0]}"; there are {", ".join(self.methods)}')
        if len(set(self.seeds)) < len(self.seeds):
            raise ValueError(f"the seeds are {', '.join(map(str, self.seeds))}; expected each once")
        return self
