import doctest
import importlib
import inspect
import pkgutil
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch.nn import functional

import hgld.losses
import hgld.losses.kernels
from hgld.errors import ConfigurationError
from hgld.losses import (
    HIER,
    LOSSES,
    ArcFace,
    BlackBoxAP,
    LabelSpace,
    LeakyStep,
    Loss,
    RankLoss,
    SiMix,
    SumOverLevels,
    SupHAP,
    XBMContrastive,
    build_loss,
)
from hgld.losses.registry import installed_losses, loss_settings
from tests.child_processes import run_child, single_thread_environment

LABELS = np.repeat([[0, 0, 0], [1, 0, 0], [2, 1, 0], [3, 2, 1]], 3, axis=0)
SPACE = LabelSpace.from_labels(8, LABELS)
WITH_SIMIX = [name for name, loss_spec in LOSSES.items() if "simix" in loss_spec.options]
#: Options with which a loss has a gradient here, and takes little time.
OPTIONS: dict[str, dict[str, Any]] = {"triplet": {"margin": 0.5}, "hier": {"n_proxies": 20, "n_neighbours": 5}}
WITHOUT_SECOND = (RankLoss, BlackBoxAP, HIER)
PER_LEVEL = [name for name, loss_spec in LOSSES.items() if "levels" in loss_spec.options]


def embeddings() -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    centres = functional.one_hot(torch.from_numpy(LABELS[:, 0]), 8).float()
    return functional.normalize(centres + 0.5 * torch.randn(12, 8, generator=generator)).requires_grad_()


def expect_gradients(loss: Loss) -> None:
    x = embeddings()
    value = loss(x, torch.from_numpy(LABELS))
    assert value.shape == ()
    assert value.isfinite()
    value.backward()
    for gradient in (x.grad, *(parameter.grad for parameter in loss.parameters())):
        assert gradient is not None
        assert gradient.isfinite().all()
        assert gradient.any()


@pytest.mark.parametrize("name", LOSSES)
def test_every_name_gives_a_loss_with_gradients(name: str) -> None:
    torch.manual_seed(0)
    expect_gradients(LOSSES[name](SPACE, **OPTIONS.get(name, {})))


@pytest.mark.parametrize("name", PER_LEVEL)
def test_sums_over_levels(name: str) -> None:
    torch.manual_seed(0)
    loss = LOSSES[name](SPACE, levels="all", **OPTIONS.get(name, {}))
    assert isinstance(loss, SumOverLevels)
    assert set(loss.weights.values()) == {1.0}
    expect_gradients(loss)


def test_mean_over_levels() -> None:
    loss = LOSSES["norm_softmax"](SPACE, levels="mean")
    assert isinstance(loss, SumOverLevels)
    assert set(loss.weights.values()) == {1 / len(SPACE.n_classes)}


@pytest.mark.parametrize("name", WITH_SIMIX)
def test_similarity_mixup(name: str) -> None:
    loss = LOSSES[name](SPACE, simix=True)
    assert isinstance(loss, SiMix)
    torch.manual_seed(0)
    expect_gradients(loss)


def test_options_reach_the_loss() -> None:
    loss: Any = LOSSES["happier_f"](SPACE, variant="cfg144", rho=10.0)
    assert loss.weights == {"sup_hap": 0.5, "decomposability": 0.5}
    assert loss.losses["sup_hap"].step.offset == 1.44
    assert loss.losses["sup_hap"].step.rho == 10.0
    relevance = loss.losses["sup_hap"].relevance(torch.tensor([[0, 1, 1, 1]], dtype=torch.float64))
    assert relevance[0, 1].item() == pytest.approx(3.0**-5)
    pairs: Any = LOSSES["roadmap"](SPACE, decomposability="pairs", lambda_=0.5, reduction="violating", alpha=0.8)
    assert (pairs.losses["decomposability"].alpha, pairs.losses["decomposability"].reduction) == (0.8, "violating")
    assert isinstance(LOSSES["xbm_contrastive"](SPACE), XBMContrastive)


def test_options_of_the_authors_that_the_papers_do_not_use() -> None:
    arcface: Any = LOSSES["happier"](SPACE, decomposability="arcface", margin=0.3, finer="leaky")
    assert isinstance(arcface.losses["decomposability"], ArcFace)
    assert arcface.losses["sup_hap"].finer == LeakyStep(beta=25, gamma=0.5, leak=10)
    expect_gradients(arcface)
    default: Any = LOSSES["happier"](SPACE)
    assert default.losses["sup_hap"].finer is None
    with pytest.raises(ConfigurationError, match='`finer` is "steep"; choose heaviside or leaky'):
        SupHAP(finer="steep")  # type: ignore[arg-type]


@pytest.mark.parametrize("name", LOSSES)
def test_second_derivatives_are_exact_or_an_error(name: str) -> None:
    torch.manual_seed(0)
    loss, labels, x = (
        LOSSES[name](SPACE, **OPTIONS.get(name, {})).double(),
        torch.from_numpy(LABELS),
        embeddings().detach().double(),
    )
    batches = [(x.requires_grad_(),), (x, x.detach().roll(1, dims=1).requires_grad_())]
    if any(isinstance(module, WITHOUT_SECOND) for module in loss.modules()):
        for batch in batches:
            value = loss(*(part for tensor in batch for part in (tensor, labels)))
            with pytest.raises(ConfigurationError, match="`create_graph`, but rank losses, .* no second derivatives"):
                torch.autograd.grad(value, batch, create_graph=True)
        return

    def loss_of(*batch: torch.Tensor) -> Any:
        torch.manual_seed(1)  # some losses draw random numbers
        return loss(*(part for tensor in batch for part in (tensor, labels)))

    for batch in batches:
        assert torch.autograd.gradgradcheck(loss_of, batch, fast_mode=True)


def test_the_reference_names_the_losses_without_second_derivatives() -> None:
    page = (Path(__file__).parents[2] / "docs/reference/losses.md").read_text()
    section = page.partition("## Second derivatives")[2].partition("\n## ")[0]
    without = {
        name for name in LOSSES if any(isinstance(module, WITHOUT_SECOND) for module in LOSSES[name](SPACE).modules())
    }
    assert set(re.findall(r"`(\w+)`", section)) & set(LOSSES) == without


@pytest.mark.parametrize("name", LOSSES)
def test_every_option_has_a_type_and_a_default(name: str) -> None:
    for option in LOSSES[name].options.values():
        assert option.default is not inspect.Parameter.empty
        assert option.annotation is not inspect.Parameter.empty


@pytest.mark.parametrize("name", LOSSES)
def test_default_settings_build_the_default_loss(name: str) -> None:
    """A default is written once, in the constructor: settings repeat it, and the builder passes it on."""
    settings, options = loss_settings(name), OPTIONS.get(name, {})
    defaults = {key: option.default for key, option in LOSSES[name].options.items()}
    assert settings.model_validate({"name": name}).options() == defaults
    torch.manual_seed(0)
    built = build_loss(settings.model_validate({"name": name, **options}), SPACE)
    value = built(embeddings(), torch.from_numpy(LABELS))
    torch.manual_seed(0)
    assert value == LOSSES[name](SPACE, **options)(embeddings(), torch.from_numpy(LABELS))


def test_label_space_of_labels() -> None:
    assert (SPACE.dim, SPACE.n_classes) == (8, (4, 3, 2))
    assert SPACE.classes is not None
    assert SPACE.classes.tolist() == [[0, 0, 0], [1, 0, 0], [2, 1, 0], [3, 2, 1]]


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("sup_ap", {"variant": "eq5"}, "choose eq4, cfg144 or cfginat"),
        ("roadmap", {"decomposability": "triplets"}, "choose proxies, pairs or arcface"),
        ("triplet", {"levels": "coarsest"}, "choose finest, all or mean"),
        ("happier", {"lambda_": 2.0}, "expected 0 .* to 1"),
        ("csl", {"margins": (0.1, 0.2)}, "a margin for each of 3 levels"),
        ("sup_ap", {"alpha": 1.0, "level": 2}, "the loss has no option alpha, level"),
    ],
)
def test_invalid_options_are_errors(name: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        LOSSES[name](SPACE, **options)


def test_csl_without_the_labels_of_classes_is_an_error() -> None:
    with pytest.raises(ConfigurationError, match=r"create its space with `LabelSpace.from_labels`"):
        LOSSES["csl"](LabelSpace(8, (4, 3, 2)))


@pytest.mark.parametrize("name", LOSSES)
def test_autocast_and_half_precision_change_nothing_but_rounding_of_embeddings(name: str) -> None:
    torch.manual_seed(0)
    loss, labels = LOSSES[name](SPACE, **OPTIONS.get(name, {})), torch.from_numpy(LABELS)
    values = []
    for x, enabled in ((embeddings().half().float(), False), (embeddings().half(), True)):
        torch.manual_seed(0)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=enabled):
            values.append(loss(x, labels))
    assert values[0] == values[1]
    assert values[1].dtype == torch.float32


@pytest.mark.parametrize(
    "name", sorted(name for name in dir(hgld.losses) if inspect.isclass(getattr(hgld.losses, name)))
)
def test_methods_are_described(name: str) -> None:
    """By their docstring, or by that of the method that they override."""
    public = getattr(hgld.losses, name)
    methods = {
        attribute: inspect.getdoc(getattr(public, attribute))
        for attribute, value in vars(public).items()
        if not attribute.startswith("_") and (inspect.isroutine(value) or isinstance(value, property))
    }
    assert all(methods.values()), methods


@pytest.mark.parametrize("name", sorted(set(dir(hgld.losses)) - {"LOSSES", "Loss", "RankLoss", "Step"}))
def test_public_names_have_an_example(name: str) -> None:
    tests = doctest.DocTestFinder().find(getattr(hgld.losses, name), name)
    assert any(test.examples for test in tests)


@pytest.mark.parametrize("name", sorted(set(dir(hgld.losses)) - {"LOSSES", "Step"}))
def test_public_names_describe_their_parameters(name: str) -> None:
    public = getattr(hgld.losses, name)
    docstring = inspect.getdoc(public) or ""
    section = re.search(r"^Args:\n((?:    .+\n|\n)*)", f"{docstring}\n", re.MULTILINE)
    described = re.findall(r"^    \**(\w+):", section[1], re.MULTILINE) if section else []
    assert described == list(inspect.signature(public).parameters)


def test_every_loss_is_public() -> None:
    """All classes of losses are exported, except the base classes, which are in ``kernels``."""
    for module in pkgutil.walk_packages(hgld.losses.__path__, "hgld.losses."):
        members = vars(importlib.import_module(module.name)).values()
        losses = [each for each in members if inspect.isclass(each) and issubclass(each, Loss)]
        defined = {each.__name__ for each in losses if each.__module__ == module.name}
        if not module.name.startswith("hgld.losses.kernels"):
            assert defined <= set(dir(hgld.losses))
    assert all(hasattr(hgld.losses, name) for name in dir(hgld.losses))


MODULE = """
from hgld.losses import Loss, SupAP, pair_levels


class Squared(Loss):
    def __init__(self, *, power: float = 2.0) -> None:
        super().__init__()
        self.power = power

    def forward_batch(self, embeddings, labels, reference_embeddings=None, reference_labels=None):
        levels = pair_levels(labels, labels)
        return ((embeddings @ embeddings.T - levels / labels.shape[1]).abs() ** self.power).mean()


not_a_loss = SupAP()
"""


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., Path]]:
    """``install(name="module:class")``: install a package with the module above and these entry points."""

    def write(**entries: str) -> Path:
        (tmp_path / "others.py").write_text(MODULE)
        metadata = tmp_path / "others-1.0.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: others\nVersion: 1.0\n")
        lines = "".join(f"{name} = {value}\n" for name, value in entries.items())
        (metadata / "entry_points.txt").write_text(f"[hgld.losses]\n{lines}")
        monkeypatch.syspath_prepend(tmp_path)
        return tmp_path

    yield write
    sys.modules.pop("others", None)


def test_options_are_the_parameters(install: Callable[..., Path]) -> None:
    install(squared="others:Squared")
    specification = installed_losses(())["squared"]
    assert list(specification.options) == ["power"]
    loss = specification(LabelSpace(dim=2, n_classes=(2,)), power=1.0)
    # Two pairs of an item with itself are exact, two have a cosine of 0 instead of 1.
    assert loss(torch.eye(2), torch.tensor([0, 0])).item() == pytest.approx(0.5)


@pytest.mark.slow
def test_hgld_train_knows_the_loss(install: Callable[..., Path]) -> None:
    """Named in settings, its options are checked as those of any loss."""
    environment = single_thread_environment()
    environment["PYTHONPATH"] = f"{install(squared='others:Squared')}:{environment['PYTHONPATH']}"
    command = [sys.executable, "-m", "hgld", "train", "happier", "--manifest", "none.csv", "-o", "run"]
    child = run_child([*command, "--set", "loss={name: squared, powr: 3}"], exit_code=1, environment=environment)
    assert "loss.powr" in child.stderr
    assert "power" in child.stderr


@pytest.mark.parametrize(
    ("entries", "message"),
    [
        ({"happier": "others:Squared"}, "the loss happier (others:Squared) of others: there is another loss"),
        ({"new": "others:missing"}, "the loss new (others:missing) of others: AttributeError"),
        ({"new": "absent:Loss"}, "the loss new (absent:Loss) of others: ModuleNotFoundError"),
        ({"new": "others:not_a_loss"}, "it is no subclass of hgld.losses.Loss"),
    ],
)
def test_wrong_declarations_are_named(install: Callable[..., Path], entries: dict[str, str], message: str) -> None:
    install(**entries)
    with pytest.raises(ConfigurationError) as caught:
        installed_losses({"happier"})
    assert message in str(caught.value)
