"""Networks of other runtimes as backbones: files of ONNX and LiteRT (TensorFlow Lite), and functions in Python.

They embed images, and are neither trained nor published. :func:`hgld.load_model` takes them by name only: they are no
setting of a model, as a checkpoint or a repository of the hub that names a function would then run its code.
"""

from __future__ import annotations

import hashlib
import sys
import warnings
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from textwrap import shorten
from types import ModuleType
from typing import Any

import numpy as np
import torch
from numpy.typing import DTypeLike, NDArray
from torch import nn

from hgld.errors import ConfigurationError, InputError
from hgld.io.files import sha256_of
from hgld.models.backbones import require_size, valid_image_settings
from hgld.models.embedding_model import EmbeddingModel
from hgld.models.image_embedder import ImageEmbedder
from hgld.models.model_settings import ModelSettings, ModelSource

#: Before the name of a function in Python.
PYTHON = "python:"
_ONNX, _LITERT = "onnx:", "litert:"

#: Input size in pixels of a network that takes any.
_DEFAULT_SIZE = 224


class ExternalNetwork(nn.Module):
    """A network of another runtime, without parameters; the SHA-256 of its files is a buffer.

    Args:
        name: What it is called in messages and in the provenance of embeddings, without folders.
        source: What :func:`hgld.load_model` loads it by, from any folder.
        function: Function from normalised images, float32, shape (B, 3, h, w), to features, any type, shape (B, C).
        size: Height and width of the images in pixels; None if it takes any.
        normalisation: ``mean`` and ``std`` of :class:`~hgld.datasets.transforms.ImageSettings`.
    """

    def __init__(
        self,
        name: str,
        source: str,
        files: Sequence[Path],
        function: Callable[[NDArray[np.float32]], Any],
        size: int | None,
        normalisation: Mapping[str, tuple[float, ...]],
    ) -> None:
        super().__init__()
        self.name, self.source, self.size, self.normalisation = name, source, size, normalisation
        self._function = function
        digest = hashlib.sha256("".join(map(sha256_of, files)).encode()).digest()
        self.register_buffer("sha256", torch.tensor([*digest], dtype=torch.uint8))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        """Compute features on the CPU: float, shape (B, 3, h, w) -> float32, shape (B, C)."""
        if self.size is not None:
            require_size(images, self.size, self.name)
        try:
            # A copy, which a function may change.
            output = self._function(images.detach().float().cpu().numpy().copy(order="C"))
            features = torch.as_tensor(output).detach().to(images.device, torch.float32)
        except Exception as error:  # whatever runtimes and functions raise
            raise ConfigurationError(f"{self.name} cannot embed images: {_reason(error)}") from error
        if features.ndim != 2 or len(features) != len(images):
            raise ConfigurationError(
                f"{self.name} returns the shape {tuple(features.shape)} for {len(images)} images; expected "
                f"({len(images)}, d), a row for each"
            )
        return features


def is_external(model: str | Path) -> bool:
    """Return whether a model is the name of a network of another runtime."""
    return isinstance(model, str) and model.startswith((PYTHON, _ONNX, _LITERT))


def load_external(model: str, image_settings: Mapping[str, Any]) -> ImageEmbedder:
    """Load a network of another runtime.

    Args:
        image_settings: Image settings by name, in place of those that the file states.

    Returns:
        The model on the CPU. Its settings cannot build it again.
    """
    kind, place = model.split(":", 1)
    load = {PYTHON: _load_function, _ONNX: _load_onnx, _LITERT: _load_litert}[f"{kind}:"]
    network = load(place)
    size = image_settings.get("size", network.size or _DEFAULT_SIZE)
    images = valid_image_settings({"size": size, "resize": size, **network.normalisation, **image_settings})
    n_channels = network(torch.zeros(1, 3, images.size, images.size)).shape[1]
    settings = ModelSettings(backbone=network.name, pretrained=False)
    return ImageEmbedder(EmbeddingModel(network, n_channels, settings), images, ModelSource(network.source))


def _load_litert(place: str) -> ExternalNetwork:
    path, tensor = _file_and_tensor(place)
    interpreters = _package("ai_edge_litert.interpreter", "litert")
    try:
        with warnings.catch_warnings():  # about the memory that inner tensors take
            warnings.simplefilter("ignore")
            network = interpreters.Interpreter(
                str(path),
                num_threads=torch.get_num_threads(),
                experimental_preserve_all_tensors=tensor is not None,
            )
        network.allocate_tensors()
    except (ValueError, RuntimeError) as error:
        raise InputError(f"{path}: not a network of LiteRT, or an incomplete one: {_reason(error)}") from error
    output = _litert_tensor(network, path, tensor)
    inputs = network.get_input_details()
    # A length that is left open is 1 in the shape and -1 in the signature; one image at a time is open or 1.
    n, height, width, n_colours = [0, 0, 0, 0, *map(int, inputs[0]["shape_signature"])][-4:]
    if len(inputs) > 1 or abs(n) != 1 or n_colours != 3 or height != width or width < 1:
        shapes = " and ".join(map(_shape, inputs))
        raise ConfigurationError(f"{path}: takes {shapes}; expected a network of one square image in RGB")
    index, dtype = inputs[0]["index"], inputs[0]["dtype"]
    scale, zero_point = inputs[0]["quantization"]
    output_scale, output_zero_point = output["quantization"]

    def features(images: NDArray[np.float32]) -> NDArray[np.float32]:
        rows = []
        for image in images.transpose(0, 2, 3, 1):
            network.set_tensor(index, _quantised(image[None], dtype, scale, zero_point))
            network.invoke()
            values = network.get_tensor(output["index"]).astype(np.float32)
            if output_scale:
                values = (values - np.float32(output_zero_point)) * np.float32(output_scale)
            rows.append(values.mean((1, 2)) if values.ndim == 4 else values)
        return np.concatenate(rows)

    normalisation = _normalisation(dtype, scale, zero_point) or {"mean": (0.5,) * 3, "std": (0.5,) * 3}
    return _network_of_file(_LITERT, path, tensor, features, height, normalisation)


def _litert_tensor(network: Any, path: Path, tensor: str | None) -> Mapping[str, Any]:
    """Return the details of the tensor with the features: that of a name or index, or by default the only output."""
    chosen = network.get_output_details()
    if tensor is not None:
        # Other tensors are weights.
        computed = {index for operation in network._get_ops_details() for index in operation["outputs"]}
        inner = [each for each in network.get_tensor_details() if each["index"] in computed]
        chosen = [each for each in inner if tensor in (str(each["index"]), each["name"])]
    elif len(chosen) > 1:
        raise ConfigurationError(f"{path}: has {len(chosen)} outputs; choose one, or a tensor: {_hint(network)}")
    if not chosen or len(chosen[0]["shape"]) not in (2, 4):
        found = f"has the shape {_shape(chosen[0])}" if chosen else "does not exist"
        raise ConfigurationError(
            f"{path}: the tensor {tensor or 'of the output'} {found}; choose another one: {_hint(network)}"
        )
    return chosen[0]  # type: ignore[no-any-return]


def _hint(network: Any) -> str:
    """List tensors that are likely features: the last average pooling, and the map with the most channels."""
    details = {each["index"]: each for each in network.get_tensor_details()}
    operations = network._get_ops_details()
    pooled = [each["outputs"][0] for each in operations if each["op_name"] in ("AVERAGE_POOL_2D", "MEAN")]
    outputs = [details[index] for operation in operations for index in operation["outputs"] if index in details]
    maps = [each for each in outputs if len(each["shape"]) == 4 and each["shape"][1] > 1]
    likely = [details[index] for index in pooled[-1:]]
    likely += [max(reversed(maps), key=lambda each: each["shape"][3])] if maps else []
    shown = likely or network.get_output_details()
    return ", ".join(f"#{each['index']} ({_shape(each)}, {each['name'].partition(';')[0]})" for each in shown)


def _shape(tensor: Any) -> str:
    return " x ".join(map(str, tensor["shape"]))


def _load_onnx(place: str) -> ExternalNetwork:
    path, output = _file_and_tensor(place)
    runtime = _package("onnxruntime", "onnx")
    options = runtime.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    options.log_severity_level = 3  # errors, not advice about old files
    try:
        session = runtime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
    except Exception as error:  # of many classes, which onnxruntime hides in an inner module
        raise InputError(f"{path}: not a network of ONNX, or an incomplete one: {_reason(error)}") from error
    outputs = [each.name for each in session.get_outputs()]
    chosen = outputs if output is None else [output]
    if len(chosen) > 1 or chosen[0] not in outputs:
        found = f"has {len(outputs)} outputs" if output is None else f"has no output {output}"
        raise ConfigurationError(f"{path}: {found}; choose one: #{', #'.join(outputs)}")
    first, *others = session.get_inputs()
    dtypes: dict[str, DTypeLike] = {
        "tensor(float)": np.float32,
        "tensor(float16)": np.float16,
        "tensor(uint8)": np.uint8,
    }
    shape = [*first.shape, *[None] * 4]
    colours_last = shape[1] != 3
    height, width = (n if isinstance(n, int) else None for n in (shape[1:3] if colours_last else shape[2:4]))
    if others or first.type not in dtypes or shape[3 if colours_last else 1] != 3 or height != width:
        found = " and ".join(f"{each.type[7:-1]} {each.shape}" for each in (first, *others))
        raise ConfigurationError(f"{path}: takes {found}; expected a network of square images in RGB")
    dtype, one_by_one = dtypes[first.type], shape[0] == 1

    def features(images: NDArray[np.float32]) -> NDArray[np.float32]:
        values = _quantised(images.transpose(0, 2, 3, 1) if colours_last else images, dtype, 1, 0)
        batches = np.split(values, len(values)) if one_by_one else [values]
        rows = np.concatenate([session.run(chosen, {first.name: batch})[0] for batch in batches])
        return rows.mean((2, 3)) if rows.ndim == 4 else rows

    return _network_of_file(_ONNX, path, output, features, height, _normalisation(dtype, 1, 0))


def _load_function(place: str) -> ExternalNetwork:
    module_name, _, function_name = place.rpartition(":")
    name = source = f"{PYTHON}{place}"
    path = Path(module_name)
    is_file = path.suffix == ".py"
    if not module_name or not function_name:
        raise ConfigurationError(f"{name}: expected python:MODULE:FUNCTION or python:FILE.py:FUNCTION")
    if is_file:
        _require_file(path)
        name, source = f"{PYTHON}{path.name}:{function_name}", f"{PYTHON}{path.absolute()}:{function_name}"
    try:
        module = _run_file(path) if is_file else import_module(module_name)
    except Exception as error:  # whatever the code of the module raises
        raise ConfigurationError(
            f"{name} cannot be imported: {_reason(error)}; a module has to be installed or below PYTHONPATH, and a "
            "file is named by python:FILE.py:FUNCTION"
        ) from error
    function = getattr(module, function_name, None)
    if not callable(function):
        raise ConfigurationError(f"{name}: {module_name} has no function {function_name}")
    file = getattr(module, "__file__", None)  # modules of C in the interpreter have none
    normalisation = {"mean": (0.0,) * 3, "std": (1.0,) * 3}
    return ExternalNetwork(name, source, [Path(file)] if file else [], function, None, normalisation)


def _run_file(path: Path) -> ModuleType:
    spec = spec_from_file_location(f"hgld_model_{path.stem}", path)
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[spec.name] = module_from_spec(spec)  # before it is run, as dataclasses look it up
    spec.loader.exec_module(module)
    return module


def _network_of_file(
    kind: str,
    path: Path,
    tensor: str | None,
    function: Callable[[NDArray[np.float32]], NDArray[Any]],
    size: int | None,
    normalisation: Mapping[str, tuple[float, ...]],
) -> ExternalNetwork:
    suffix = "" if tensor is None else f"#{tensor}"
    # ONNX may keep weights beside the file: torch in FILE.data, other programs in FILE_data.
    beside = sorted(each for each in path.parent.iterdir() if each.name in (f"{path.name}.data", f"{path.name}_data"))
    names = f"{kind}{path.name}{suffix}", f"{kind}{path.absolute()}{suffix}"
    return ExternalNetwork(*names, [path, *beside], function, size, normalisation)


def _file_and_tensor(place: str) -> tuple[Path, str | None]:
    name, _, tensor = place.partition("#")
    _require_file(Path(name))
    return Path(name), tensor or None


def _require_file(path: Path) -> None:
    if not path.is_file():
        raise InputError(f"{path}: no such file; expected a model")


def _package(module: str, extra: str) -> Any:
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"{extra}: needs the package {error.name}, which is not installed; type pip install '.[{extra}]' in a "
            "clone of hgld"
        ) from error


def _quantised(values: NDArray[np.float32], dtype: DTypeLike, scale: float, zero_point: int) -> NDArray[Any]:
    """Return the input of a network: integers q that mean scale * (q - zero_point), or numbers as they are."""
    if not np.issubdtype(dtype, np.integer):
        return values.astype(dtype)
    limits = np.iinfo(np.dtype(dtype))
    integers: NDArray[Any] = np.rint(values / (scale or 1) + zero_point).clip(limits.min, limits.max).astype(dtype)
    return integers


def _normalisation(dtype: DTypeLike, scale: float, zero_point: int) -> dict[str, tuple[float, ...]]:
    """Return the normalisation by which integers of a network are pixel values from 0, or for int8 from -128."""
    if not np.issubdtype(dtype, np.integer):
        return {}
    offset = float(zero_point - np.iinfo(np.dtype(dtype)).min)
    return {"mean": (offset / 255,) * 3, "std": (1 / (255 * (scale or 1)),) * 3}


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {shorten(str(error), 300)}"
