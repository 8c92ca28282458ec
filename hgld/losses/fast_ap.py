"""FastAP, average precision of a histogram of squared distances."""

from __future__ import annotations

from hgld.errors import ConfigurationError
from hgld.losses.soft_bin_ap import SoftBinAP


class FastAP(SoftBinAP):
    """1 - AP of a histogram of squared distances (Cakir et al., CVPR 2019).

    Squared distances of unit vectors are 2 - 2 s, so their ``n_bins`` + 1 bins from 0 to 4 are those of
    :class:`~hgld.losses.SoftBinAP` from 1 to -1. The query is excluded from its own retrieval set.
    pytorch-metric-learning has the same loss, but without references.

    Args:
        n_bins: Number of intervals between bin centres, at least 1.

    Raises:
        ConfigurationError: There are too few bins.
        InputError: (when called) No query has a positive.

    >>> import torch
    >>> embeddings = torch.tensor([[1.0, 0.0], [0.6, 0.8], [0.8, 0.6]])
    >>> FastAP()(embeddings, torch.tensor([[0], [0], [1]]))
    tensor(0.5000)
    """

    def __init__(self, n_bins: int = 10) -> None:
        if n_bins < 1:
            raise ConfigurationError(f"`n_bins` is {n_bins}; expected at least 1")
        super().__init__(n_bins + 1, include_query=False)
