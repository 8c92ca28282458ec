"""Records of finished trainings: steps, seconds, device, machine and software."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from hgld.benchmark.runs import Run
from hgld.errors import InputError
from hgld.training.run_folder import RunFolder


@dataclass(frozen=True)
class TrainingRecord:
    """Record of a finished training.

    Args:
        steps: Number of steps.
        train_seconds: Seconds of these steps, without evaluations.
        device: ``cpu``, or the name of a GPU.
        machine: Processor, cores and memory.
        versions: Versions of the software by name.
    """

    steps: int
    train_seconds: float
    device: str
    machine: str
    versions: Mapping[str, str]


def read_training_record(run: Run) -> TrainingRecord:
    """Read the record of a training from the files of its run.

    Raises:
        InputError: The folder holds no run.
    """
    folder = RunFolder(run.folder)
    recorded = folder.recorded_run()
    if recorded is None:
        raise InputError(f"{run.folder}: there is no run; train it first")
    _, record = recorded
    steps = folder.history("step")
    return TrainingRecord(
        steps=len(steps),
        train_seconds=sum(run.settings.batch_size / step["images_per_s"] for step in steps),
        device=record["device"],
        machine=record["machine"],
        versions=record["versions"],
    )
