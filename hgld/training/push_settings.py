"""Settings of ``hgld push-model``, in a module that is fast to import for help."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hgld.errors import ConfigurationError
from hgld.io.licences import model_fields


@dataclass(frozen=True)
class PushConfig:
    """Description of a published model.

    Args:
        license: Licence of the weights, by its identifier on the hub or of SPDX, such as apache-2.0. Default: not
            stated.
        datasets: Name of a data set on the hub that the model was trained on; may be repeated.
        evaluations: Output of hgld evaluate --json for the model card, in a file named like the data; may be
            repeated.
        private: Create a private repository.
        force: Replace the files of a repository without a model of hgld, or of a folder without this model.
    """

    license: str | None = None
    datasets: Sequence[str] = ()
    evaluations: Sequence[Path] = ()
    private: bool = False
    force: bool = False

    def __post_init__(self) -> None:
        if self.license is not None:
            try:
                model_fields(self.license)
            except ValueError as error:
                raise ConfigurationError(f"`license`: {error}") from error
