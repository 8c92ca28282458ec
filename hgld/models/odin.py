"""Images whose pixels ODIN perturbs before they are embedded, as the score odin needs them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch.nn import functional

from hgld.datasets.batch import Images, map_images
from hgld.errors import ConfigurationError, InputError
from hgld.models.image_embedder import ImageEmbedder

#: Temperature, and step in units of pixels from 0 to 1, of the paper.
TEMPERATURE, STEP = 1000.0, 0.0014


def odin_perturbation(model: ImageEmbedder, classifier: Path) -> Callable[[Images], Images]:
    """Return the function from normalised images to those that ODIN perturbs (Liang et al., ICLR 2018, Eq. 2).

    ``x' = x - 0.0014 sign(grad_x CE(l(x) / 1000, argmax_c l_c(x)))`` for pixels x from 0 to 1, where l are the
    logits of a classifier of the embeddings. Each image takes a backward pass through the network.

    Args:
        model: The model, on its device.
        classifier: File of :func:`hgld.rejection.classifiers.save_classifier`.

    Raises:
        InputError: The file is not that of a classifier of such embeddings.
        ConfigurationError: (when called) The network has no gradients, such as one of ONNX.
    """
    try:
        tensors = load_file(classifier)
        weight, bias = tensors["weight"].float(), tensors["bias"].float()
        functional.linear(torch.zeros(1, model.dim), weight, bias)
    except (OSError, SafetensorError, KeyError, RuntimeError) as error:
        raise InputError(
            f"{classifier}: no file of `weight` (C, {model.dim}) and `bias` (C,) of a classifier: {error}"
        ) from error
    std = torch.tensor(model.image_settings.std)[:, None, None]

    def perturb(images: Images) -> Images:
        with torch.inference_mode(False), torch.enable_grad():
            inputs = map_images(lambda image: image.clone().requires_grad_(), images)
            embeddings = model.network(inputs)
            logits = functional.linear(embeddings, weight.to(embeddings), bias.to(embeddings)) / TEMPERATURE
            if not logits.requires_grad:
                raise ConfigurationError("ODIN needs gradients of the pixels, which this network does not have")
            error = functional.cross_entropy(logits, logits.argmax(dim=1), reduction="sum")
            gradients = iter(torch.autograd.grad(error, inputs))
            step = STEP / std.to(embeddings.device)
            return map_images(lambda image: (image - step * next(gradients).sign()).detach(), inputs)

    return perturb
