"""SSD+: Mahalanobis distance of embeddings of length 1."""

from __future__ import annotations

from hgld.rejection.scores.mahalanobis import Mahalanobis


class SsdPlus(Mahalanobis):
    """The squared Mahalanobis distance to the nearest landmark, of embeddings of length 1.

    SSD+ (Sehwag et al., ICLR 2021) as the thesis's Table 5.5 and heatood have it: the classes are the labels. The
    original has k-means clusters of a self-supervised model in their place (SSD), and labels for SSD+.

    Args:
        shrinkage: See :class:`~hgld.rejection.scores.mahalanobis.Mahalanobis`.
    """

    name = "ssd_plus"
    normalize = True
