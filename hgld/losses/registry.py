"""Registry of losses: names in settings, options, and construction of losses from options.

To add a loss to hgld, enter it in the table ``_OWN_LOSSES``. A :class:`LossSpec` is derived from
the constructor of a loss, which is the only place of its defaults: every parameter becomes an
option of the same name, type and default, with four exceptions:

- parameters that describe the training data (``FROM_LABELS``) are filled in from a
  :class:`LabelSpace`;
- ``step`` is replaced by the parameters of :func:`~hgld.losses.suprank_step` or
  :class:`~hgld.losses.Sigmoid`;
- parameters that also accept functions have the types of ``SETTINGS_TYPES``, which can be written
  in a file;
- parameters that cannot be written in a settings file (``CODE_ONLY``) keep their defaults.

Other packages declare losses as entry points (:func:`installed_losses`). Defaults are the settings
that the authors of the papers used on most datasets, except the step h^-, which is Eq. 4; the
option ``variant`` chooses another one.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Literal, NamedTuple, get_args, get_origin

import numpy as np
import torch
from pydantic import Field, create_model
from torch import Tensor

from hgld.errors import ConfigurationError, require_choice
from hgld.hierarchy.label_sets import Labelling, LabelSets
from hgld.io.settings import Settings
from hgld.losses.ap_baselines import BlackBoxAP, FastAP, SoftBinAP
from hgld.losses.base import Loss, SumOverLevels
from hgld.losses.hyperbolic import HyperbolicContrastive, hyperbolic_hier
from hgld.losses.kernels.class_losses import ClassLoss
from hgld.losses.kernels.steps import Sigmoid, SupRankStep, suprank_step
from hgld.losses.pair_losses import (
    ContrastiveLoss,
    LiftedStructureLoss,
    MarginLoss,
    MultiSimilarityLoss,
    SelectivelyContrastiveTriplet,
    TripletLoss,
    XBMContrastive,
)
from hgld.losses.proxy_losses import CSL, ArcFace, CrossEntropy, ProxyGML, ProxyNCA, ProxyNCAPP
from hgld.losses.rank_losses import (
    DecomposabilityLoss,
    FinerStep,
    ProxyLoss,
    RelevanceName,
    SmoothAP,
    SmoothHAP,
    SmoothNDCG,
    SmoothRecall,
    SupAP,
    SupHAP,
    SupNDCG,
    SupRecall,
    happier,
    roadmap,
    rod_ndcg,
    rod_recall,
)
from hgld.losses.regularisers import irt
from hgld.losses.simix import SiMix
from hgld.losses.supervised_contrastive import HMLC, MultiSupCon

#: Which levels a loss of classes sees: the finest, or the sum or the mean over all.
Levels = Literal["finest", "all", "mean"]
#: Decomposability losses: L*_DG (paper, Eq. 8), L_DG (Eq. 7), or ArcFace as in some of the authors'
#: settings.
Decomposability = Literal["proxies", "pairs", "arcface"]
#: Decomposability losses that suit rank losses of all levels.
ProxyDecomposability = Literal["proxies", "arcface"]
DECOMPOSABILITY_LOSSES: Mapping[str, Callable[..., Loss]] = {
    "proxies": ProxyLoss,
    "pairs": DecomposabilityLoss,
    "arcface": ArcFace,
}

#: Parameters that only make sense in code.
CODE_ONLY = frozenset({"level", "mixup", "n_views", "plus"})
#: Types in settings of parameters that also accept functions in code.
SETTINGS_TYPES: Mapping[str, Any] = {"relevance": RelevanceName, "finer": FinerStep}


@dataclass(frozen=True)
class LabelSpace:
    """Classes of the training labels and dimension of the embeddings, for losses with proxies.

    Args:
        dim: Dimension d of the embeddings.
        n_classes: Number of classes in each column of the labels, finest level first, numbered from
            0.
        classes: int64 tensor of shape (n_classes[0], L): the labels of each finest class; needed by
            CSL only.
        labels_per_image: Most labels of an image, for label sets; None where each image has a
            single label.
    """

    dim: int
    n_classes: tuple[int, ...]
    classes: Tensor | None = field(default=None, compare=False)
    labels_per_image: int | None = None

    @staticmethod
    def from_labels(dim: int, labels: Labelling) -> LabelSpace:
        """Return the space of training labels.

        Args:
            labels: Integer array of shape (N, L), finest level first, numbered from 0 in each
                column; or label sets.

        >>> LabelSpace.from_labels(8, np.array([[1, 0], [0, 0], [2, 1], [1, 0]])).classes
        tensor([[0, 0],
                [1, 0],
                [2, 1]])
        """
        if isinstance(labels, LabelSets):
            n_classes = tuple((labels.labels.max(axis=0) + 1).tolist())
            return LabelSpace(dim, n_classes, labels_per_image=labels.most_labels)
        n_classes = tuple((labels.max(axis=0) + 1).tolist())
        _, first_rows = np.unique(labels[:, 0], return_index=True)
        return LabelSpace(dim, n_classes, torch.from_numpy(labels[first_rows].astype(np.int64)))

    def require_classes(self) -> Tensor:
        """Return ``classes``.

        Raises:
            ConfigurationError: The space has no ``classes``: images have label sets, or it was
                created without them.
        """
        if self.labels_per_image is not None:
            raise ConfigurationError(
                "the loss is for images with one label each, and these may have several; choose a rank loss, such as "
                "happier, roadmap or sup_hap"
            )
        if self.classes is None:
            raise ConfigurationError(
                "the loss needs the labels of each class; create its space with `LabelSpace.from_labels`"
            )
        return self.classes


#: Parameters that describe the training data, by name: their value for a column of the labels.
FROM_LABELS: Mapping[str, Callable[[LabelSpace, int], Any]] = {
    "dim": lambda space, column: space.dim,
    "n_classes": lambda space, column: space.n_classes[column],
    "classes": lambda space, column: space.require_classes(),
}
#: Functions whose parameters replace the parameter ``step``, by the type of its default.
STEP_FACTORIES: Mapping[type, Callable[..., Any]] = {SupRankStep: suprank_step, Sigmoid: Sigmoid}


class Option(NamedTuple):
    """An option of a loss in settings.

    Args:
        annotation: Type of the values.
        default: Default value.
        constructor: Function or class that has the option as a parameter; its docstring explains
            the option.
        meaning: Explanation of an option that is not a parameter of a constructor.
    """

    annotation: Any
    default: Any
    constructor: Callable[..., Any] | None = None
    meaning: str = ""


#: The options that are not parameters of a loss.
_LEVELS = Option(
    Levels,
    "finest",
    meaning="``finest`` for the finest level alone, ``all`` for the sum of the loss over all levels (Σ in the "
    "papers' tables), or ``mean``, which the authors' code takes where their files give no weights.",
)
_SIMIX = Option(
    bool,
    False,
    meaning="Similarity mixup (Patel et al., CVPR 2022): virtual items of all pairs of a class are queries, "
    "positives and negatives, see :class:`~hgld.losses.SiMix`.",
)
_DECOMPOSABILITY_MEANING = (
    "Decomposability loss: L*_DG of proxies (Eq. 8), L_DG of pairs (Eq. 7), or ArcFace as in some of the authors' "
    "settings."
)


@dataclass(frozen=True)
class LossSpec:
    """Specification of a loss; call it with a label space and options to build the loss.

    A loss of classes (:class:`~hgld.losses.kernels.class_losses.ClassLoss`) also has the option
    ``levels``.

    Args:
        constructor: The class of the loss, or a function that returns the loss.
        simix: Whether the loss has the option ``simix`` for similarity mixup.

    >>> list(LossSpec(SupHAP).options)
    ['alpha', 'relevance', 'level_weights', 'variant', 'tau', 'rho', 'delta', 'finer', 'include_query']
    >>> list(LossSpec(ArcFace).options)
    ['levels', 'scale', 'margin']
    >>> list(LossSpec(FastAP, simix=True).options)
    ['levels', 'n_bins', 'simix']
    """

    constructor: Callable[..., Loss]
    simix: bool = False

    @cached_property
    def options(self) -> Mapping[str, Option]:
        """Parameters of the constructor by name, and ``levels`` and ``simix`` where they apply."""
        options = {}
        if self._is_class_loss:
            options["levels"] = _LEVELS
        options |= _options(self.constructor)
        if self.simix:
            options["simix"] = _SIMIX
        return options

    @property
    def _is_class_loss(self) -> bool:
        return isinstance(self.constructor, type) and issubclass(self.constructor, ClassLoss)

    def __call__(self, space: LabelSpace, **options: Any) -> Loss:
        """Return the loss with the given options and defaults for the other options.

        Raises:
            ConfigurationError: An option is unknown, or a value is out of range.
        """
        unknown = options.keys() - self.options.keys()
        if unknown:
            raise ConfigurationError(f"the loss has no option {', '.join(sorted(unknown))}")
        values = {}
        for name, option in self.options.items():
            value = options.get(name, option.default)
            if get_origin(option.annotation) is Literal:
                require_choice(option.annotation, **{name: value})
            values[name] = value
        loss = self._build(space, values)
        if values.get("simix"):
            return SiMix(loss)
        return loss

    def _build(self, space: LabelSpace, options: Mapping[str, Any]) -> Loss:
        def build_for_column(column: int) -> Loss:
            return self.constructor(**_arguments(self.constructor, space, options, column))

        if not self._is_class_loss or options["levels"] == "finest":
            return build_for_column(0)
        is_mean = options["levels"] == "mean"
        return SumOverLevels(build_for_column, len(space.n_classes), mean=is_mean)


@dataclass(frozen=True)
class DecomposableSpec(LossSpec):
    """Specification of a rank loss with a decomposability loss.

    The options are lambda, the choice of the decomposability loss, and the options of both losses.
    An option that both losses have, such as ``include_query``, is passed to both.

    Args:
        constructor: Function such as :func:`~hgld.losses.happier`, which takes the decomposability
            loss, lambda and the parameters of the rank loss.
        rank_loss: Class of the rank loss.
        pairs: Whether settings may choose the decomposability loss of pairs.
        defaults: Defaults by option name that replace the defaults of the constructors.

    >>> list(DecomposableSpec(rod_ndcg, rank_loss=SupNDCG).options)
    ['lambda_', 'decomposability', 'variant', 'tau', 'rho', 'delta', 'include_query', 'eta', 'scale', 'margin']
    """

    rank_loss: Callable[..., Loss] = field(kw_only=True)
    pairs: bool = False
    defaults: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def options(self) -> Mapping[str, Option]:
        """Options by name."""
        weight = inspect.signature(self.constructor, eval_str=True).parameters["lambda_"]
        choices = Decomposability if self.pairs else ProxyDecomposability
        options = {
            "lambda_": Option(weight.annotation, weight.default, self.constructor),
            "decomposability": Option(choices, "proxies", meaning=_DECOMPOSABILITY_MEANING),
        }
        options |= _options(self.rank_loss)
        for name in get_args(choices):
            for key, option in _options(DECOMPOSABILITY_LOSSES[name]).items():
                options.setdefault(key, option)
        for name, default in self.defaults.items():
            options[name] = options[name]._replace(default=default)
        return options

    def _build(self, space: LabelSpace, options: Mapping[str, Any]) -> Loss:
        second_term = DECOMPOSABILITY_LOSSES[options["decomposability"]]
        decomposability = second_term(**_arguments(second_term, space, options))
        return self.constructor(
            decomposability, options["lambda_"], **_arguments(self.rank_loss, space, options)
        )


def _parameters(function: Callable[..., Any]) -> list[inspect.Parameter]:
    parameters = inspect.signature(function, eval_str=True).parameters.values()
    return [parameter for parameter in parameters if parameter.name not in CODE_ONLY]


def _options(constructor: Callable[..., Any]) -> dict[str, Option]:
    options: dict[str, Option] = {}
    for parameter in _parameters(constructor):
        if parameter.name == "step":
            options |= _options(STEP_FACTORIES[type(parameter.default)])
        elif parameter.name not in FROM_LABELS:
            annotation = SETTINGS_TYPES.get(parameter.name, parameter.annotation)
            options[parameter.name] = Option(annotation, parameter.default, constructor)
    return options


def _arguments(
    constructor: Callable[..., Any], space: LabelSpace, options: Mapping[str, Any], column: int = 0
) -> dict[str, Any]:
    arguments: dict[str, Any] = {}
    for parameter in _parameters(constructor):
        if parameter.name == "step":
            factory = STEP_FACTORIES[type(parameter.default)]
            arguments["step"] = factory(**_arguments(factory, space, options))
        elif parameter.name in FROM_LABELS:
            arguments[parameter.name] = FROM_LABELS[parameter.name](space, column)
        else:
            arguments[parameter.name] = options[parameter.name]
    return arguments


#: Group of the entry points ``name = "module:constructor"``; the name is the name of the loss in
#: settings.
GROUP = "hgld.losses"

_OWN_LOSSES: Mapping[str, LossSpec] = {
    "smooth_ap": LossSpec(SmoothAP, simix=True),
    "sup_ap": LossSpec(SupAP, simix=True),
    "roadmap": DecomposableSpec(roadmap, rank_loss=SupAP, pairs=True),
    "recall": LossSpec(SmoothRecall, simix=True),
    "sup_recall": LossSpec(SupRecall, simix=True),
    "rod_recall": DecomposableSpec(rod_recall, rank_loss=SupRecall, pairs=True),
    "sup_hap": LossSpec(SupHAP),
    "smooth_hap": LossSpec(SmoothHAP),
    "happier": DecomposableSpec(happier, rank_loss=SupHAP),
    # as run on SOP; alpha is 3 on iNaturalist
    "happier_f": DecomposableSpec(
        happier, rank_loss=SupHAP, defaults={"lambda_": 0.5, "alpha": 5.0}
    ),
    "sup_ndcg": LossSpec(SupNDCG),
    "smooth_ndcg": LossSpec(SmoothNDCG),
    "rod_ndcg": DecomposableSpec(rod_ndcg, rank_loss=SupNDCG),
    "softbin_ap": LossSpec(SoftBinAP, simix=True),
    "fast_ap": LossSpec(FastAP, simix=True),
    "blackbox_ap": LossSpec(BlackBoxAP, simix=True),
    "triplet": LossSpec(TripletLoss),
    "triplet_sct": LossSpec(SelectivelyContrastiveTriplet),
    "contrastive": LossSpec(ContrastiveLoss, simix=True),
    "xbm_contrastive": LossSpec(XBMContrastive, simix=True),
    "irt": LossSpec(irt),
    "lifted_structure": LossSpec(LiftedStructureLoss),
    "margin": LossSpec(MarginLoss, simix=True),
    "multi_similarity": LossSpec(MultiSimilarityLoss, simix=True),
    "multi_sup_con": LossSpec(MultiSupCon),
    "cross_entropy": LossSpec(CrossEntropy),
    "norm_softmax": LossSpec(ProxyLoss, simix=True),
    "arcface": LossSpec(ArcFace),
    "proxy_nca": LossSpec(ProxyNCA, simix=True),
    "proxy_nca_pp": LossSpec(ProxyNCAPP, simix=True),
    "proxy_gml": LossSpec(ProxyGML),
    "csl": LossSpec(CSL),
    "hmlc": LossSpec(HMLC),
    "hyperbolic_contrastive": LossSpec(HyperbolicContrastive),
    "hier": LossSpec(hyperbolic_hier),
}


class _Losses(Mapping[str, LossSpec]):
    """Losses of hgld, then losses of other packages, which are imported at the first access."""

    @cached_property
    def _specs(self) -> Mapping[str, LossSpec]:
        return {**_OWN_LOSSES, **installed_losses(_OWN_LOSSES)}

    def __getitem__(self, name: str) -> LossSpec:
        return self._specs[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._specs)

    def __len__(self) -> int:
        return len(self._specs)


#: Specifications of all losses, by name; losses of other packages come last.
LOSSES: Mapping[str, LossSpec] = _Losses()


def installed_losses(taken: Collection[str]) -> dict[str, LossSpec]:
    """Return the losses that installed packages declare, by their names in settings.

    A constructor is a subclass of :class:`~hgld.losses.Loss`, whose parameters become options as
    for hgld's own losses; or it is a :class:`LossSpec` that states how the loss is built.

    Args:
        taken: Names of hgld's own losses.

    Raises:
        ConfigurationError: A name is taken or declared twice, or a declared object cannot be
            imported or is not a loss.
    """
    specs: dict[str, LossSpec] = {}
    for entry in sorted(entry_points(group=GROUP), key=lambda entry: (entry.name, entry.value)):
        if entry.name in taken or entry.name in specs:
            raise ConfigurationError(
                f"{_origin(entry)}: there is another loss of this name; choose a new one"
            )
        specs[entry.name] = _load(entry)
    return specs


def _load(entry: EntryPoint) -> LossSpec:
    try:
        loaded = entry.load()
        if isinstance(loaded, LossSpec):
            return loaded
        if isinstance(loaded, type) and issubclass(loaded, Loss):
            return LossSpec(loaded)
    except Exception as error:  # importing a third-party module may raise any exception
        raise ConfigurationError(f"{_origin(entry)}: {type(error).__name__}: {error}") from error
    raise ConfigurationError(f"{_origin(entry)}: it is no subclass of hgld.losses.Loss")


def _origin(entry: EntryPoint) -> str:
    origin = f"the loss {entry.name} ({entry.value})"
    if entry.dist is not None:
        origin += f" of {entry.dist.name}"
    return origin


class LossSettings(Settings):
    """The name and options of a loss in settings."""

    name: str

    def options(self) -> dict[str, Any]:
        """Return the options by name."""
        return {key: getattr(self, key) for key in type(self).model_fields if key != "name"}


def loss_settings(name: str) -> type[LossSettings]:
    """Return the settings class of a loss: a field per option, with its type and default.

    An option whose name is a Python keyword with an underscore, such as ``lambda_``, is written
    without the underscore in settings.

    >>> loss_settings("happier").model_validate({"name": "happier", "lambda": 0.3}).options()["lambda_"]
    0.3
    """
    fields: dict[str, Any] = {"name": (Literal[name], name)}
    for key, option in LOSSES[name].options.items():
        fields[key] = option.annotation, Field(option.default, alias=key.rstrip("_"))
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
