"""Networks of LiteRT (TensorFlow Lite) as functions of images, for the page on models.

Files are those of https://github.com/google-coral/test_data and, for Open Images, the one inside the npm package
``@mediapipe/objectron``, in the folder ``models`` or that of the variable ``LITERT_MODELS``. A function takes images
of one size::

    hgld embed-images --model python:benchmarks/litert_networks.py:mobilenet_v1_025_128 --size 128 ...
"""

from __future__ import annotations

import os
import warnings
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import torch
from ai_edge_litert.interpreter import Interpreter
from numpy.typing import NDArray

MODELS = Path(os.environ.get("LITERT_MODELS", "models"))


class LiteRTNetwork:
    """A function from images, float32, shape (B, 3, size, size), values from 0 to 1, to features, shape (B, C).

    Args:
        file: Name of the file.
        tensor: Index of the tensor that holds the features, which are averaged over positions; None for the output.
    """

    def __init__(self, file: str, tensor: int | None = None) -> None:
        self._file, self._tensor = file, tensor

    def __call__(self, images: NDArray[np.float32]) -> NDArray[np.float32]:
        """Compute the features."""
        network = self._network
        expected = network.get_input_details()[0]
        if self._tensor is None:
            output = network.get_output_details()[0]
        else:
            (output,) = (
                each for each in network.get_tensor_details() if each["index"] == self._tensor
            )
        scale, zero_point = output["quantization"]
        rows = []
        for image in images.transpose(0, 2, 3, 1):
            if expected["dtype"] == np.uint8:
                pixels = np.rint(255 * image).astype(np.uint8)
            else:
                pixels = (image - np.float32(0.5)) / np.float32(0.5)
            network.set_tensor(expected["index"], pixels[None])
            network.invoke()
            values = network.get_tensor(output["index"]).astype(np.float32)
            if scale:
                values = (values - np.float32(zero_point)) * np.float32(scale)
            rows.append(values.reshape(-1, values.shape[-1]).mean(axis=0))
        return np.stack(rows)

    @cached_property
    def _network(self) -> Any:
        with warnings.catch_warnings():  # about the memory that inner tensors take
            warnings.simplefilter("ignore")
            network = Interpreter(
                str(MODELS / self._file),
                num_threads=torch.get_num_threads(),
                experimental_preserve_all_tensors=self._tensor is not None,
            )
        network.allocate_tensors()
        return network


mobilenet_v1_025_128 = LiteRTNetwork("mobilenet_v1_0.25_128_quant.tflite", 84)
mobilenet_v1_050_160 = LiteRTNetwork("mobilenet_v1_0.5_160_quant.tflite", 84)
mobilenet_v1_075_192 = LiteRTNetwork("mobilenet_v1_0.75_192_quant.tflite", 84)
mobilenet_v1_100_224 = LiteRTNetwork("mobilenet_v1_1.0_224_quant_embedding_extractor.tflite")
mobilenet_v2_100_224 = LiteRTNetwork("mobilenet_v2_1.0_224_quant.tflite", 169)
mobilenet_v2_anew = LiteRTNetwork("tf2_mobilenet_v2_1.0_224_ptq.tflite", 172)
mobilenet_v2_birds = LiteRTNetwork("mobilenet_v2_1.0_224_inat_bird_quant.tflite", 168)
mobilenet_v2_insects = LiteRTNetwork("mobilenet_v2_1.0_224_inat_insect_quant.tflite", 168)
open_images = LiteRTNetwork("ssd_mobilenetv2_oidv4_fp16.tflite", 213)  # images of 300 x 300 pixels
