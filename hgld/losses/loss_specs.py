"""Specifications of losses: the options that a loss has in settings, and how it is built from them.

A :class:`LossSpec` is derived from the constructor of a loss, so that a default is written there alone. Every
parameter, which needs a default, becomes an option of the same name, type and default, except that

- parameters that describe the training data (``FROM_LABELS``) are filled in from a :class:`LabelSpace`;
- ``step`` is replaced by the options of its step: those of :func:`~hgld.losses.suprank_step` or
  :class:`~hgld.losses.Sigmoid`;
- of what a parameter accepts, settings have what can be written in a file (``SETTINGS_TYPES``);
- parameters that cannot be written in a settings file (``CODE_ONLY``) keep their defaults.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, get_args, get_origin

import numpy as np
import torch

from hgld.errors import ConfigurationError
from hgld.hierarchy.label_matrix import Labelling, LabelSets
from hgld.losses.base import Loss
from hgld.losses.decomposability import DecomposabilityLoss, ProxyLoss
from hgld.losses.hierarchical_ap import FinerStep, RelevanceName
from hgld.losses.kernels.steps import Sigmoid, SupRankStep, suprank_step
from hgld.losses.simix import SiMix
from hgld.losses.softmax import ArcFace
from hgld.losses.weighted_sum import SumOverLevels

#: Which levels a loss of classes sees: the finest, or the sum or the mean over all.
Levels = Literal["finest", "all", "mean"]
#: Decomposability losses: L*_DG (paper, Eq. 8), L_DG (Eq. 7), or ArcFace as in some of the authors' settings.
Decomposability = Literal["proxies", "pairs", "arcface"]
#: Those that suit losses of all levels.
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
    """The classes of the training labels and the dimension of the embeddings, which losses with proxies depend on.

    Args:
        dim: Dimension d of the embeddings.
        n_classes: Number of classes in each column of the labels, finest level first, numbered from 0.
        classes: int64 tensor of shape (n_classes[0], L): the labels of each finest class; needed by CSL only.
        labels_per_image: Most labels of an image, for label sets; None where each image has a single label.
    """

    dim: int
    n_classes: tuple[int, ...]
    classes: torch.Tensor | None = field(default=None, compare=False)
    labels_per_image: int | None = None

    @staticmethod
    def from_labels(dim: int, labels: Labelling) -> LabelSpace:
        """Return the space of training labels.

        Args:
            dim: Dimension d of the embeddings.
            labels: int64 array of shape (N, L), finest level first, numbered from 0 in each column; or label sets.

        >>> LabelSpace.from_labels(8, np.array([[1, 0], [0, 0], [2, 1], [1, 0]])).classes
        tensor([[0, 0],
                [1, 0],
                [2, 1]])
        """
        if isinstance(labels, LabelSets):
            n_of_sets = tuple(int(n) for n in labels.labels.max(axis=0) + 1)
            return LabelSpace(dim, n_of_sets, labels_per_image=labels.most_labels)
        _, first = np.unique(labels[:, 0], return_index=True)
        n_classes = tuple(int(n) for n in labels.max(axis=0) + 1)
        return LabelSpace(dim, n_classes, torch.from_numpy(labels[first]))

    def known_classes(self) -> torch.Tensor:
        """Return ``classes``.

        Raises:
            ConfigurationError: The space has none, as it is that of label sets or was created without.
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
    "classes": lambda space, column: space.known_classes(),
}
#: Functions whose parameters replace the parameter ``step``, by the type of its default.
STEP_FACTORIES: Mapping[type, Callable[..., Any]] = {SupRankStep: suprank_step, Sigmoid: Sigmoid}


class Option(NamedTuple):
    """An option of a loss in settings.

    Args:
        annotation: Type of its values.
        default: Default value.
        constructor: Function or class of which it is a parameter, and whose docstring explains it.
        meaning: What it says, if it is no parameter.
    """

    annotation: Any
    default: Any
    constructor: Callable[..., Any] | None = None
    meaning: str = ""


#: The options that are no parameters of a loss.
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


#: Builds a loss from the space of the labels and a value for every option.
Builder = Callable[[LabelSpace, Mapping[str, Any]], Loss]


@dataclass(frozen=True)
class LossSpec:
    """Options of a loss in settings, and its builder; call it with a space and options to build the loss.

    Args:
        options: Options by name.
        build: Builder of the loss.
        constructor: Function or class that makes the loss, and whose docstring describes it.
    """

    options: Mapping[str, Option]
    build: Builder
    constructor: Callable[..., Loss]

    def __call__(self, space: LabelSpace, **options: Any) -> Loss:
        """Return the loss with these options; all others have their defaults.

        Args:
            space: Classes of the training labels and dimension of the embeddings.
            **options: Values of options by name.

        Raises:
            ConfigurationError: An option does not exist, or a value is out of range.
        """
        if unknown := options.keys() - self.options.keys():
            raise ConfigurationError(f"the loss has no option {', '.join(sorted(unknown))}")
        values = {name: options.get(name, option.default) for name, option in self.options.items()}
        for name, value in values.items():
            choices = get_args(self.options[name].annotation)
            if get_origin(self.options[name].annotation) is Literal and value not in choices:
                raise ConfigurationError(f'`{name}` is "{value}"; choose {", ".join(choices[:-1])} or {choices[-1]}')
        return self.build(space, values)


def spec(constructor: Callable[..., Loss]) -> LossSpec:
    """Return the specification of a loss that its constructor describes completely.

    >>> from hgld.losses import SupHAP
    >>> list(spec(SupHAP).options)
    ['alpha', 'relevance', 'level_weights', 'variant', 'tau', 'rho', 'delta', 'finer', 'include_query']
    """
    return LossSpec(
        _options(constructor), lambda space, options: _construct(constructor, space, options), constructor
    )


def per_level(constructor: Callable[..., Loss]) -> LossSpec:
    """Return the specification of a loss of classes, with the option ``levels`` for its sum or mean over all.

    >>> from hgld.losses import ArcFace
    >>> list(per_level(ArcFace).options)
    ['levels', 'scale', 'margin']
    """

    def build(space: LabelSpace, options: Mapping[str, Any]) -> Loss:
        if options["levels"] == "finest":
            return _construct(constructor, space, options)
        return SumOverLevels(
            lambda column: _construct(constructor, space, options, column),
            len(space.n_classes),
            mean=options["levels"] == "mean",
        )

    return LossSpec({"levels": _LEVELS, **_options(constructor)}, build, constructor)


def with_simix(loss_spec: LossSpec) -> LossSpec:
    """Return the specification of a loss with the further option ``simix`` for similarity mixup.

    >>> from hgld.losses import FastAP
    >>> list(with_simix(per_level(FastAP)).options)
    ['levels', 'n_bins', 'simix']
    """

    def build(space: LabelSpace, options: Mapping[str, Any]) -> Loss:
        loss = loss_spec.build(space, options)
        return SiMix(loss) if options["simix"] else loss

    return LossSpec({**loss_spec.options, "simix": _SIMIX}, build, loss_spec.constructor)


def decomposable(
    compose: Callable[..., Loss], rank_loss: Callable[..., Loss], *, pairs: bool = False, **defaults: Any
) -> LossSpec:
    """Return the specification of a rank loss with a decomposability loss.

    An option of both, such as ``include_query``, is passed to both.

    Args:
        compose: Function that builds the sum from the decomposability loss, ``lambda_`` and the keyword arguments of
            the rank loss, such as :func:`~hgld.losses.happier`.
        rank_loss: Constructor of the rank loss.
        pairs: Offer the decomposability loss of pairs too, next to those of proxies.
        **defaults: Defaults that differ from those of the constructors.

    >>> from hgld.losses import SupNDCG, rod_ndcg
    >>> list(decomposable(rod_ndcg, SupNDCG).options)
    ['lambda_', 'decomposability', 'variant', 'tau', 'rho', 'delta', 'include_query', 'eta', 'scale', 'margin']
    """
    weight = inspect.signature(compose, eval_str=True).parameters["lambda_"]
    choices = Decomposability if pairs else ProxyDecomposability
    options = {
        "lambda_": Option(weight.annotation, weight.default, compose),
        "decomposability": Option(choices, "proxies", meaning=_DECOMPOSABILITY_MEANING),
    }
    for constructor in (rank_loss, *(DECOMPOSABILITY_LOSSES[name] for name in get_args(choices))):
        options |= {name: option for name, option in _options(constructor).items() if name not in options}
    options |= {name: options[name]._replace(default=default) for name, default in defaults.items()}

    def build(space: LabelSpace, options: Mapping[str, Any]) -> Loss:
        second_term = DECOMPOSABILITY_LOSSES[options["decomposability"]]
        arguments = _arguments(rank_loss, space, options)
        return compose(_construct(second_term, space, options), options["lambda_"], **arguments)

    return LossSpec(options, build, compose)


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


def _construct(
    constructor: Callable[..., Loss], space: LabelSpace, options: Mapping[str, Any], column: int = 0
) -> Loss:
    return constructor(**_arguments(constructor, space, options, column))
