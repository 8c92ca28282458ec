"""All losses by the names that settings give them.

To add a loss to hgld, write it in a file of its own and enter it here: its options in settings are the parameters of
its constructor (:mod:`~hgld.losses.loss_specs`). Other packages declare theirs as entry points
(:func:`installed_losses`). Defaults are what the authors of the papers ran on most datasets, except h^-,
which is that of Eq. 4; the option ``variant`` chooses another (:func:`~hgld.losses.suprank_step`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from functools import cached_property
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Literal

from pydantic import Field, create_model

from hgld.errors import ConfigurationError
from hgld.io.settings import Settings
from hgld.losses.average_precision import SmoothAP, SupAP, roadmap
from hgld.losses.base import Loss
from hgld.losses.blackbox_ap import BlackBoxAP
from hgld.losses.csl import CSL
from hgld.losses.decomposability import ProxyLoss
from hgld.losses.hierarchical_ap import SmoothHAP, SupHAP, happier
from hgld.losses.hmlc import HMLC
from hgld.losses.hyperbolic import HyperbolicContrastive, hyperbolic_hier
from hgld.losses.koleo import irt
from hgld.losses.loss_specs import LabelSpace, LossSpec, decomposable, per_level, spec, with_simix
from hgld.losses.margin import MarginLoss
from hgld.losses.multi_sup_con import MultiSupCon
from hgld.losses.ndcg import SmoothNDCG, SupNDCG, rod_ndcg
from hgld.losses.pair_losses import ContrastiveLoss, LiftedStructureLoss, MultiSimilarityLoss, XBMContrastive
from hgld.losses.proxy_gml import ProxyGML
from hgld.losses.proxy_nca import ProxyNCA, ProxyNCAPP
from hgld.losses.recall import SmoothRecall, SupRecall, rod_recall
from hgld.losses.soft_bin_ap import FastAP, SoftBinAP
from hgld.losses.softmax import ArcFace, CrossEntropy
from hgld.losses.triplet import SelectivelyContrastiveTriplet, TripletLoss

#: Group of the entry points: ``name = "module:constructor"``, where the name is that of the loss in settings.
GROUP = "hgld.losses"

_OWN_LOSSES: Mapping[str, LossSpec] = {
    "smooth_ap": with_simix(spec(SmoothAP)),
    "sup_ap": with_simix(spec(SupAP)),
    "roadmap": decomposable(roadmap, SupAP, pairs=True),
    "recall": with_simix(spec(SmoothRecall)),
    "sup_recall": with_simix(spec(SupRecall)),
    "rod_recall": decomposable(rod_recall, SupRecall, pairs=True),
    "sup_hap": spec(SupHAP),
    "smooth_hap": spec(SmoothHAP),
    "happier": decomposable(happier, SupHAP),
    "happier_f": decomposable(happier, SupHAP, lambda_=0.5, alpha=5.0),  # as run on SOP; alpha is 3 on iNaturalist
    "sup_ndcg": spec(SupNDCG),
    "smooth_ndcg": spec(SmoothNDCG),
    "rod_ndcg": decomposable(rod_ndcg, SupNDCG),
    "softbin_ap": with_simix(per_level(SoftBinAP)),
    "fast_ap": with_simix(per_level(FastAP)),
    "blackbox_ap": with_simix(per_level(BlackBoxAP)),
    "triplet": per_level(TripletLoss),
    "triplet_sct": per_level(SelectivelyContrastiveTriplet),
    "contrastive": with_simix(per_level(ContrastiveLoss)),
    "xbm_contrastive": with_simix(per_level(XBMContrastive)),
    "irt": spec(irt),
    "lifted_structure": per_level(LiftedStructureLoss),
    "margin": with_simix(per_level(MarginLoss)),
    "multi_similarity": with_simix(per_level(MultiSimilarityLoss)),
    "cross_entropy": per_level(CrossEntropy),
    "norm_softmax": with_simix(per_level(ProxyLoss)),
    "arcface": per_level(ArcFace),
    "proxy_nca": with_simix(per_level(ProxyNCA)),
    "proxy_nca_pp": with_simix(per_level(ProxyNCAPP)),
    "proxy_gml": per_level(ProxyGML),
    "csl": spec(CSL),
    "hmlc": spec(HMLC),
    "multi_sup_con": spec(MultiSupCon),
    "hyperbolic_contrastive": per_level(HyperbolicContrastive),
    "hier": spec(hyperbolic_hier),
}


class _Losses(Mapping[str, LossSpec]):
    """The losses of hgld, then those of other packages; these are imported when they are first asked for."""

    @cached_property
    def _specs(self) -> Mapping[str, LossSpec]:
        return {**_OWN_LOSSES, **installed_losses(_OWN_LOSSES)}

    def __getitem__(self, name: str) -> LossSpec:
        return self._specs[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._specs)

    def __len__(self) -> int:
        return len(self._specs)


#: Specifications of all losses, by name; those of other packages are the last.
LOSSES: Mapping[str, LossSpec] = _Losses()


def installed_losses(taken: Collection[str]) -> dict[str, LossSpec]:
    """Return the specifications of losses that installed packages declare, by their names in settings.

    A constructor is a subclass of :class:`~hgld.losses.Loss`, whose parameters become options as those of hgld's own
    losses do (:func:`~hgld.losses.loss_specs.spec`); or it is a :class:`~hgld.losses.loss_specs.LossSpec`.

    Args:
        taken: Names of hgld's own losses.

    Raises:
        ConfigurationError: A name is taken or declared twice, or a declared loss cannot be imported or is none.
    """
    found: dict[str, LossSpec] = {}
    for entry in sorted(entry_points(group=GROUP), key=lambda entry: (entry.name, entry.value)):
        if entry.name in taken or entry.name in found:
            raise ConfigurationError(f"{_origin(entry)}: there is another loss of this name; choose a new one")
        found[entry.name] = _load(entry)
    return found


def _load(entry: EntryPoint) -> LossSpec:
    try:
        loaded = entry.load()
        if isinstance(loaded, LossSpec):
            return loaded
        if isinstance(loaded, type) and issubclass(loaded, Loss):
            return spec(loaded)
    except Exception as error:  # whatever the import of somebody's module may raise
        raise ConfigurationError(f"{_origin(entry)}: {type(error).__name__}: {error}") from error
    raise ConfigurationError(f"{_origin(entry)}: it is no subclass of hgld.losses.Loss")


def _origin(entry: EntryPoint) -> str:
    package = f" of {entry.dist.name}" if entry.dist is not None else ""
    return f"the loss {entry.name} ({entry.value}){package}"


class LossSettings(Settings):
    """A loss in settings: its name and options."""

    name: str

    def options(self) -> dict[str, Any]:
        """Return the options by name."""
        return {key: getattr(self, key) for key in type(self).model_fields if key != "name"}


def loss_settings(name: str) -> type[LossSettings]:
    """Return the type of the settings of a loss: a field per option, with its type and default.

    An option whose name is reserved in Python, such as ``lambda_``, is written without the underscore.

    >>> loss_settings("happier").model_validate({"name": "happier", "lambda": 0.3}).options()["lambda_"]
    0.3
    """
    fields: dict[str, Any] = {"name": (Literal[name], name)}
    fields |= {
        key: (option.annotation, Field(option.default, alias=key.rstrip("_")))
        for key, option in LOSSES[name].options.items()
    }
    return create_model(f"{name}_settings", __base__=LossSettings, **fields)


def build_loss(settings: LossSettings, space: LabelSpace) -> Loss:
    """Return the loss that settings describe.

    Args:
        settings: Settings of one loss, of a type from :func:`loss_settings`.
        space: Classes of the training labels and dimension of the embeddings.

    Raises:
        ConfigurationError: A value is out of range.

    >>> settings = loss_settings("norm_softmax")(name="norm_softmax", eta=0.1)
    >>> build_loss(settings, LabelSpace(dim=8, n_classes=(4, 2))).proxies.shape
    torch.Size([4, 8])
    """
    return LOSSES[settings.name](space, **settings.options())
