"""Train embedding models: settings, the loop, checkpoints and the folder of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hgld.lazy import lazy_exports

if TYPE_CHECKING:
    from hgld.training.publish_model import PushConfig, PushSummary, push_model
    from hgld.training.run import TrainingSummary, is_finished, read_training_settings, train
    from hgld.training.run_folder import RunFolder
    from hgld.training.trainer import Trainer
    from hgld.training.training_settings import TrainingSettings

__all__ = [
    "PushConfig",
    "PushSummary",
    "RunFolder",
    "Trainer",
    "TrainingSettings",
    "TrainingSummary",
    "is_finished",
    "push_model",
    "read_training_settings",
    "train",
]

__getattr__, __dir__ = lazy_exports(
    __name__,
    {
        "PushConfig": "publish_model",
        "PushSummary": "publish_model",
        "RunFolder": "run_folder",
        "Trainer": "trainer",
        "TrainingSettings": "training_settings",
        "TrainingSummary": "run",
        "is_finished": "run",
        "push_model": "publish_model",
        "read_training_settings": "run",
        "train": "run",
    },
)
