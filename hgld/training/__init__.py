"""Train embedding models: settings, the loop, checkpoints and the folder of a run."""

from hgld.training.run import TrainingSummary, is_finished, read_training_settings, train
from hgld.training.run_folder import RunFolder
from hgld.training.trainer import Trainer
from hgld.training.training_settings import TrainingSettings

__all__ = [
    "RunFolder",
    "Trainer",
    "TrainingSettings",
    "TrainingSummary",
    "is_finished",
    "read_training_settings",
    "train",
]
