"""What comparisons of models do to embeddings before they evaluate them: centring, PCA, linear adaptation."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import numpy.typing as npt
import torch
from sklearn.decomposition import PCA

from hgld.benchmark.model_comparison_settings import Treatment
from hgld.datasets.image_labels import read_labels
from hgld.errors import ConfigurationError
from hgld.hierarchy.label_sets import main_labels
from hgld.models import load_checkpoint_model
from hgld.tables.embeddings import Embeddings
from hgld.training import TrainingSettings, train
from hgld.training.run import is_finished

#: Images of each class in a batch of linear adaptation, and most classes in it.
_PER_CLASS, _MOST_CLASSES = 4, 32
#: Most dimensions after linear adaptation.
_MOST_DIMENSIONS = 512
Vectors = npt.NDArray[np.float32]


def apply_treatment(
    treatment: Treatment,
    images: Embeddings,
    *,
    manifest: Path,
    train_split: str,
    split: str | None,
    run: Path,
    device: str = "cpu",
    force: bool = False,
) -> Vectors:
    """Return the embeddings of images after a treatment, which is fitted to those of the training split.

    Args:
        treatment: One of :class:`~hgld.benchmark.model_comparison_settings.ModelComparisonConfig` but ``none``.
        images: Embeddings from a file, of all images.
        manifest: Table of the images, with their splits and labels.
        train_split: Split that the treatment is fitted to.
        split: Split that is evaluated; None for all images.
        run: Folder of the training of ``adapt``.
        device: Device of that training.
        force: Whether to train again what is trained.

    Returns:
        float32, shape (N, d).

    Raises:
        ConfigurationError: The embeddings have fewer dimensions, or the training split fewer images or classes, than
            the treatment needs; or the training in ``run`` was one with other data.
    """
    vectors: Vectors = torch.as_tensor(images.vectors).float().numpy()
    kind, value = treatment
    n_dims = int(value) if value.isdigit() else vectors.shape[1]
    if n_dims > vectors.shape[1]:
        raise ConfigurationError(f"{treatment}: the embeddings have {vectors.shape[1]:,} dimensions only")
    if kind == "truncate":
        return vectors[:, :n_dims]
    labels = read_labels(manifest, images, split=train_split)
    fitted = vectors[labels.labelled]
    if kind == "adapt":
        data = {"manifest": manifest, "features": images.path, "train": train_split, "test": split}
        classes = main_labels(labels.labelling)[labels.labelled, 0]
        settings = _adaptation(value, data, vectors.shape[1], classes)
        if force or not is_finished(settings, run):
            train(settings, run, resume=not force, force=force, device=device)
        network = load_checkpoint_model(run / "last.pt").network
        with torch.inference_mode():
            parts = [network(part) for part in torch.split(torch.from_numpy(vectors), 4096)]
        return torch.cat(parts).numpy()
    if kind == "center":
        centred: Vectors = vectors - fitted.mean(0)
        return centred
    if n_dims > len(fitted):
        raise ConfigurationError(f"{treatment}: the training split has {len(fitted):,} images only")
    pca = PCA(n_dims, whiten=kind == "whiten", svd_solver="covariance_eigh").fit(fitted)
    reduced: Vectors = pca.transform(vectors).astype(np.float32)
    return reduced


def _adaptation(
    loss: str, data: Mapping[str, object], n_features: int, classes: npt.NDArray[np.int64]
) -> TrainingSettings:
    """Return the settings of a linear layer that begins as a PCA.

    They are those of the heads for Washington's photographs, which were chosen on training landmarks alone. With few
    images or classes to train on, dimensions and batches are smaller.
    """
    sizes = np.unique(classes, return_counts=True)[1]
    n_classes = int(np.count_nonzero(sizes >= _PER_CLASS))
    head = {"name": "adam", "lr": 1e-4, "weight_decay": 0, "schedule": "cosine", "interval": "step"}
    values = {
        "model": {
            "backbone": "features",
            "n_features": n_features,
            "l2_norm": True,
            "dim": min(n_features, _MOST_DIMENSIONS, len(classes) - 1),
            "projection": "pca",
        },
        "data": data,
        "sampler": {"name": "class_balanced", "per_class": _PER_CLASS},
        "loss": {"name": loss},
        "optimiser": {"head": head},
        "batch_size": _PER_CLASS * max(1, min(_MOST_CLASSES, n_classes)),
        "steps": 300,
        "evaluation": {"every": 1000},
        "workers": 0,
        "loggers": [],
    }
    return TrainingSettings.model_validate(values)
