"""Options of ``--plan`` that describe GPUs."""

from __future__ import annotations

from typing import Annotated

from hgld.cli.base import option
from hgld.errors import ConfigurationError

GpuCount = Annotated[
    int | None,
    option(
        "With --images-per-second: number of GPUs to plan for.",
        metavar="N",
        default="1, or those of all jobs at the same time",
    ),
]
ImagesPerSecond = Annotated[
    float | None,
    option(
        "With --plan: images that a GPU trains on per second, as measured or published.",
        metavar="N",
        default="no hours are estimated",
    ),
]


def require_plan(*, plan: bool, gpus: int | None, images_per_second: float | None) -> None:
    """Raise a :class:`ConfigurationError` where GPUs are described, but not to plan for them."""
    if images_per_second is not None and not plan:
        raise ConfigurationError("--images-per-second is for --plan; training measures by itself")
    if gpus is not None and images_per_second is None:
        raise ConfigurationError("--gpus are those of an estimate; add --plan and --images-per-second")
