"""``hgld push-model``: publish a model as a folder or as a repository of the Hugging Face hub."""

from __future__ import annotations

import json
import math
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hgld.errors import ConfigurationError, InputError
from hgld.io.folder_replacement import folder_draft, replace_folder
from hgld.io.hub import hub_snapshot, require_replaceable_repository, upload_folder
from hgld.io.locks import exclusive_lock
from hgld.models.image_embedder import ImageEmbedder
from hgld.models.model_files import CONFIG, HUB_PREFIX, find_checkpoint, is_function, is_published
from hgld.models.model_loading import (
    CARD,
    TRAINING,
    is_written_by_hgld,
    load_model,
    read_checkpoint,
    write_model,
)
from hgld.training.model_card import CardFacts, ModelEvaluation, model_card
from hgld.training.push_settings import PushConfig
from hgld.training.run_folder import RunFolder, result_affecting
from hgld.version import __version__


@dataclass(frozen=True)
class PushSummary:
    """Result of publishing a model.

    Args:
        evaluations: Number of evaluations on the model card.
        url: URL of the commit; None if nothing was uploaded.
    """

    model: str
    n_bytes: int
    evaluations: int
    url: str | None


def push_model(
    model: str | Path,
    repository: str | None = None,
    *,
    out: Path | None = None,
    pretrained: str | None = None,
    config: PushConfig | None = None,
) -> PushSummary:
    """Write a model with its card to a folder, upload it to the Hugging Face hub, or both.

    The folder is written completely or not at all, and the upload is one commit.

    Args:
        model: The folder of a run of hgld train or a checkpoint; or an untrained model, which may be a preset, a
            timm model or open_clip:NAME. A model that is published already is refused, as its files can be copied as
            they are.
        repository: Repository of the Hugging Face hub to upload to; it is created if it does not exist.
            Default: no upload.
        out: Folder to write the files to.
        pretrained: Weights of a model given by name; see :func:`hgld.load_model`.
        config: Description of the model, and whether the repository is private and files of others are replaced.

    Raises:
        InputError: A file of evaluations cannot be read; or see :func:`hgld.load_model`.
        ConfigurationError: Neither ``repository`` nor ``out`` is given; the repository holds files that do not belong
            to a model of hgld, or the folder does not hold this model; a public repository was to be private; or see
            :func:`hgld.load_model`.
    """
    config = config or PushConfig()
    if repository is None and out is None:
        raise ConfigurationError("expected `repository`, `out` or both; found neither")
    if is_published(model):
        raise ConfigurationError(
            f"{model}: is published already; copy its files as they are, with hf upload"
        )
    if is_function(model):
        raise ConfigurationError(
            f"{model}: runs outside hgld, which cannot publish it; publish its file as it is"
        )
    if repository is not None:
        name, source = repository, f"{HUB_PREFIX}{repository}"

        def holds_model(names: Sequence[str]) -> bool:
            return CONFIG in names and is_written_by_hgld(hub_snapshot(repository, [CONFIG]))

        require_replaceable_repository(
            repository,
            "a model of hgld",
            holds_model,
            private=config.private,
            force=config.force,
        )
    else:
        name, source = (out or Path()).absolute().name, "path/to/this/folder"
    facts = _card_facts(find_checkpoint(model), name, source, config)
    embedder = load_model(model, pretrained)
    url, n_bytes = None, 0
    if out is not None:
        out = out.absolute()
        with exclusive_lock(out), folder_draft(out) as draft:
            n_bytes = _write_folder(draft, embedder, facts)
            _require_replaceable_folder(out, draft, config)
            replace_folder(draft, out)
    if repository is not None:
        with tempfile.TemporaryDirectory(prefix="hgld-push-") as temporary:
            folder = Path(temporary)
            n_bytes = _write_folder(folder, embedder, facts)
            message = f"Upload {embedder.settings.backbone} with hgld {__version__}"
            url = upload_folder(
                folder, repository, private=config.private, message=message, replaces=[TRAINING]
            )
    return PushSummary(repr(embedder), n_bytes, len(facts.evaluations), url)


def _card_facts(checkpoint: Path | None, name: str, source: str, config: PushConfig) -> CardFacts:
    """Collect the contents of the card: the training, if there was one, and all evaluations."""
    training = None
    evaluations = []
    if checkpoint is not None:
        training, evaluation = training_record(checkpoint)
        if evaluation is not None:
            evaluations.append(evaluation)
    for path in config.evaluations:
        evaluations += read_evaluations(path)
    return CardFacts(name.rpartition("/")[2], source, training, evaluations, config)


def training_record(checkpoint: Path) -> tuple[dict[str, Any], ModelEvaluation | None]:
    """Return the contents of ``training.json`` for a checkpoint, and its evaluation on the test images.

    Files are named without their folders, which have a meaning on one machine only. The evaluation is None if the
    checkpoint is not in the folder of its run, or was not evaluated.
    """
    state, run = read_checkpoint(checkpoint), RunFolder(checkpoint.parent)
    recorded = run.recorded_run()
    settings = _without_folders(state["settings"])
    record = {"settings": settings, "digests": state["digests"], "checkpoint": checkpoint.name}
    record |= {"epoch": state["epoch"], "step": state["step"], "versions": {}}
    if recorded is None:
        return record, None
    _, run_record = recorded
    if run_record["digests"] != state["digests"]:
        return record, None
    record["versions"] = run_record["versions"]
    means = None
    for line in run.history("test"):
        if line["step"] == state["step"]:
            means = run.means_of(line)
    if means is None:
        return record, None
    data = settings["data"]
    evaluation = ModelEvaluation(
        dataset=f"{Path(data['manifest']).stem} ({data['test'] or data['queries']})",
        protocol="leave-one-out" if data["test"] else f"gallery {data['gallery']}",
        means=means,
        digest=state["digests"]["manifest"],
    )
    return record, evaluation


def read_evaluations(path: Path) -> list[ModelEvaluation]:
    """Read the output of ``hgld evaluate --json``; the data set has the name of the file."""
    try:
        evaluations = []
        for result in json.loads(path.read_text(encoding="utf-8"))["results"]:
            means = {}
            for name, mean in result["means"].items():
                means[str(name)] = math.nan if mean is None else float(mean)
            n_queries = result["counts"].get("queries")
            evaluations.append(ModelEvaluation(path.stem, str(result["name"]), means, n_queries))
        return evaluations
    except OSError as error:
        raise InputError(
            f"{path}: {error.strerror}; expected the output of hgld evaluate --json"
        ) from error
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(f"{path}: not the output of hgld evaluate --json: {error!r}") from error


def _write_folder(folder: Path, embedder: ImageEmbedder, facts: CardFacts) -> int:
    """Write all files, and return their size in bytes."""
    write_model(embedder, folder)
    if facts.training is not None:
        text = json.dumps(facts.training, indent=2, ensure_ascii=False) + "\n"
        (folder / TRAINING).write_text(text, encoding="utf-8")
    (folder / CARD).write_text(model_card(embedder, facts), encoding="utf-8")
    return sum(path.stat().st_size for path in folder.iterdir())


def _without_folders(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a training with the names of files in place of their paths."""
    data, model = dict(settings["data"]), dict(settings["model"])
    for name in ("manifest", "features"):
        data[name] = data[name] and Path(data[name]).name
    data["root"] = None
    if isinstance(model["pretrained"], str):
        model["pretrained"] = Path(model["pretrained"]).name
    return {**settings, "data": data, "model": model}


def _require_replaceable_folder(out: Path, draft: Path, config: PushConfig) -> None:
    """Raise if a folder holds anything but an earlier version of the model in a draft."""
    if config.force or not out.exists() or not any(out.iterdir()):
        return
    if not is_written_by_hgld(out):
        contents = "files that are not those of a model of hgld"
    elif _identity(out) != _identity(draft):
        contents = "another model, or one that was trained with other settings"
    else:
        return
    raise ConfigurationError(
        f"{out}: contains {contents}; name another folder, or replace all of it with `force`"
    )


def _identity(folder: Path) -> list[Any]:
    """Return the settings of the model in a folder, and of its training if there was one."""
    model = json.loads((folder / CONFIG).read_text(encoding="utf-8")).get("model")
    if not (folder / TRAINING).is_file():
        return [model]
    training = json.loads((folder / TRAINING).read_text(encoding="utf-8"))
    values = {"settings": training.get("settings"), "digests": training.get("digests")}
    return [model, result_affecting(values)]
