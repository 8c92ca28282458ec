import copy
import json
import math
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from hgld.cli.models import format_images, format_plan, format_training
from hgld.compute.processes import Processes
from hgld.datasets.loading import collate
from hgld.datasets.manifest import Manifest, write_manifest
from hgld.errors import ConfigurationError, InputError
from hgld.evaluation.ranking import RankingConfig
from hgld.io.settings import read_settings
from hgld.losses.base import Loss
from hgld.models.embedding_model import EmbeddingModel
from hgld.models.model_files import find_checkpoint
from hgld.models.model_loading import read_checkpoint
from hgld.models.model_settings import ModelSettings
from hgld.progress import NoProgress
from hgld.tables import Provenance
from hgld.training import run
from hgld.training.run_folder import RunFolder
from hgld.training.trainer import Trainer
from hgld.training.training_images import TrainingImages
from hgld.training.training_settings import TrainingSettings
from hgld.training.validation import embed_dataset, rank_embedded
from tests.datasets.pictures import manifest_of, picture, save_pictures
from tests.training import toy

State = dict[str, Any]


@pytest.fixture(autouse=True, scope="module")
def toy_model() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(run, "build_model", toy.build)
        yield


@pytest.fixture(scope="module")
def uninterrupted(manifest: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder of a run of 2 epochs of 4 steps."""
    out = tmp_path_factory.mktemp("runs") / "uninterrupted"
    run.train(toy.settings(manifest), out)
    return out


class ActionAfterStep(NoProgress):
    """Progress that runs an action after a number of steps."""

    def __init__(self, step: int, action: Callable[[], None]) -> None:
        self._remaining_steps, self._action = step, action

    def advance(self, units: int = 1, **details: float) -> None:
        self._remaining_steps -= 1
        if self._remaining_steps == 0:
            self._action()


class Killed(BaseException):
    """An exception that the library does not catch."""


def kill() -> None:
    raise Killed


def history(folder: Path, kind: str) -> list[State]:
    """Return lines of the history without what depends on the time."""
    lines = map(json.loads, (folder / "history.jsonl").read_text().splitlines())
    clock = ("images_per_s", "waiting_share")
    return [{key: value for key, value in line.items() if key not in clock} for line in lines if line["kind"] == kind]


def leaves(state: Any) -> list[Any]:
    if isinstance(state, dict):
        return [leaf for key, value in state.items() for leaf in [key, *leaves(value)]]
    if isinstance(state, list | tuple):
        return [leaf for value in state for leaf in leaves(value)]
    return [state.tolist() if isinstance(state, torch.Tensor) else state]


def assert_same(folder: Path, expected: Path) -> None:
    """Compare every byte of the last checkpoint and of the best one, and the history."""
    for name in ("last.pt", "best.pt"):
        assert leaves(read_checkpoint(folder / name)) == leaves(read_checkpoint(expected / name))
        assert (folder / name).read_bytes() == (expected / name).read_bytes()
    for kind in ("step", "val", "test"):
        assert history(folder, kind) == history(expected, kind)


def test_run_writes_settings_history_and_checkpoints(uninterrupted: Path, manifest: Path) -> None:
    steps, evaluations = (history(uninterrupted, kind) for kind in ("step", "val"))
    assert [line["step"] for line in steps] == list(range(1, 9))
    assert [(line["epoch"], line["step"]) for line in evaluations] == [(0, 0), (1, 4), (2, 8)]
    assert set(steps[0]["lr"]) == {"backbone", "head", "proxies"}
    assert steps[0]["loss"] != steps[7]["loss"]
    assert not any(name.startswith("memory") for name in steps[3]["parts"])  # which starts in the second epoch
    assert "memory" in steps[4]["parts"]
    state = read_checkpoint(uninterrupted / "last.pt")  # with weights_only
    assert (state["epoch"], state["batch"], state["step"]) == (2, 0, 8)
    assert state["best"] == max(line["H-AP"] for line in evaluations)
    assert int(state["loss"]["n_stored"]) == 64
    torch.manual_seed(0)
    before = toy.build(ModelSettings.model_validate(toy.SETTINGS["model"])).state_dict()
    assert before.keys() == state["model"].keys()
    assert all((before[name] != value).any() for name, value in state["model"].items())
    assert state["settings"]["loss"]["lambda"] == 0.1
    again = read_settings(TrainingSettings, uninterrupted / "settings.yaml")
    assert again == toy.settings(manifest)
    record = json.loads((uninterrupted / "run.json").read_text())
    assert set(record["versions"]) == {"hgld", "torch", "python"}
    assert len(record["digests"]["manifest"]) == 64
    assert list((uninterrupted / "tensorboard").iterdir())


def test_the_best_model_may_be_that_of_the_lowest_distance(manifest: Path, tmp_path: Path) -> None:
    evaluation = {"metrics": ["avg_hdist@3", "wAP"], "best": "avg_hdist@3"}
    summary = run.train(toy.settings(manifest, evaluation=evaluation, epochs=1), tmp_path / "run")
    evaluations = history(tmp_path / "run", "val")
    lowest = min(evaluations, key=lambda line: line["avg_hdist@3"])
    assert read_checkpoint(tmp_path / "run" / "best.pt")["best"] == lowest["avg_hdist@3"]
    assert summary.result == f"epoch {lowest['epoch']}"
    assert all(0 < line["wAP"] < 1 for line in history(tmp_path / "run", "test"))


def test_the_checkpoint_is_selected_on_validation_images_and_then_tested(manifest: Path, tmp_path: Path) -> None:
    settings = toy.settings(manifest, seed=7, epochs=4, memory=None)
    summary = run.train(settings, tmp_path / "run")
    h_ap = summary.val
    assert summary.result == max(h_ap, key=lambda name: h_ap[name]) == "epoch 1"
    assert list(h_ap) == [f"epoch {n}" for n in range(5)]
    state = read_checkpoint(tmp_path / "run" / "best.pt")
    assert (state["epoch"], state["best"]) == (1, h_ap["epoch 1"])
    assert RunFolder(tmp_path / "run").result == find_checkpoint(tmp_path / "run") == tmp_path / "run" / "best.pt"
    model, images = toy.build(settings.model), TrainingImages(settings)
    model.load_state_dict(state["model"])
    embedded = embed_dataset(model, images.test, batch_size=8, workers=0, processes=Processes())
    tested = rank_embedded(
        embedded, images.test, metrics=("H-AP", "R@1"), ranking=RankingConfig(), processes=Processes()
    )
    assert summary.test["epoch 1"] == pytest.approx(tested.means)
    assert summary.test["epoch 0"]["H-AP"] > tested.means["H-AP"], "the test images would select another one"
    lines = format_training(summary).splitlines()
    assert [line.split("  ")[0] for line in lines[2:-2]] == ["epoch 0", "epoch 1"]
    last = rf"16 steps; H-AP -\d\.\d\d from epoch 0 to epoch 1, the best on val \({100 * h_ap['epoch 1']:.2f}\)"
    assert re.fullmatch(last, lines[-1])


def test_without_validation_images_the_last_epoch_is_the_result(tmp_path: Path) -> None:
    manifest = toy.write_images(tmp_path / "images")
    summary = run.train(toy.settings(manifest), tmp_path / "run")
    assert (list(summary.test), summary.val, summary.result) == (["epoch 0", "epoch 1", "epoch 2"], {}, "epoch 2")
    assert not (tmp_path / "run" / "best.pt").exists(), "it would be selected on the test images"
    assert RunFolder(tmp_path / "run").result == find_checkpoint(tmp_path / "run") == tmp_path / "run" / "last.pt"
    lines = format_training(summary).splitlines()
    assert [line.split("  ")[0] for line in lines[2:-2]] == ["epoch 0", "epoch 2"]
    assert lines[-1].endswith("from epoch 0 to epoch 2, the last: there is no split val to select one on")


def test_validation_images_have_a_split_of_their_own(manifest: Path) -> None:
    def images(**splits: str) -> TrainingImages:
        return TrainingImages(toy.settings(manifest, data={"manifest": str(manifest), **splits}))

    assert images(test="val").val is None
    with pytest.raises(ValueError, match='val is "test", which is used otherwise; name a split of its own'):
        images(test="test", val="test")
    with pytest.raises(ConfigurationError, match='there is no split "dev" among the images; expected test or train'):
        images(test="test", val="dev")


def test_validation_images_that_cannot_select_end_the_training(tmp_path: Path) -> None:
    paths = [f"{n}.png" for n in range(18)]
    save_pictures(tmp_path, *paths)
    classes = [str(n // 2) for n in range(16)] + ["p", "q"]  # of both validation images, no other has a label
    split = ["train"] * 8 + ["test"] * 8 + ["val"] * 2
    pictures = manifest_of(paths, {"class": classes, "super": classes}, split=split)
    write_manifest(tmp_path / "manifest.parquet", pictures, Provenance("test"))
    undefined = pytest.raises(ConfigurationError, match="images cannot select a checkpoint: H-AP is undefined")
    with undefined, pytest.warns(UserWarning, match="none of 2 queries has a positive"):
        run.train(toy.settings(tmp_path / "manifest.parquet"), tmp_path / "run")


@pytest.mark.parametrize("step", [1, 4, 7])  # before a checkpoint, at the end of an epoch, between checkpoints
def test_killed_run_resumes_bit_identically(uninterrupted: Path, manifest: Path, tmp_path: Path, step: int) -> None:
    with pytest.raises(Killed):
        run.train(toy.settings(manifest), tmp_path / "run", progress=ActionAfterStep(step, kill))
    summary = run.train(toy.settings(manifest), tmp_path / "run", resume=True)
    assert_same(tmp_path / "run", uninterrupted)
    assert summary.n_steps == 8


#: Samplers of the authors, whose small classes repeat images; the toy images have one of a single image.
PUBLISHED_SAMPLERS: list[State] = [
    {"name": "hierarchical", "per_class": 4, "super_classes": 2, "batches_per_tuple": 3},
    {"name": "class_balanced", "per_class": 2, "packing": "greedy", "small_classes": "repeat"},
    {"name": "class_balanced", "per_class": 4, "packing": "independent", "small_classes": "repeat"},
]


@pytest.mark.parametrize(
    ("sampler", "memory"),
    [
        (PUBLISHED_SAMPLERS[0], {"start_epoch": 2, "unique": True, "reduction": "sum"}),
        pytest.param(PUBLISHED_SAMPLERS[1], {"start_epoch": 2, "size": 20}, marks=pytest.mark.slow),
        pytest.param(PUBLISHED_SAMPLERS[2], {"start_epoch": 2}, marks=pytest.mark.slow),
    ],
)
def test_published_samplers_and_schedules_train_and_resume(
    manifest: Path, tmp_path: Path, sampler: State, memory: State
) -> None:
    group = {"lr": 0.01, "schedule": "multi_step", "milestones": [1, 2], "gamma": 0.3}
    settings = toy.settings(
        manifest,
        sampler=sampler,
        memory=memory,
        optimiser={"backbone": group, "head": group, "proxies": {"lr": 0.1, "end_lr": 0.01}},
        warm_up_epochs=1,
        epochs=4,
        evaluation={"metrics": ["H-AP"], "every": 4},
    )
    run.train(settings, tmp_path / "whole")
    if memory.get("unique"):
        filled = read_checkpoint(tmp_path / "whole" / "last.pt")["loss"]["filled"]
        assert 30 <= filled.sum() <= len(filled) == len(TrainingImages(settings).train) == 37
    steps = history(tmp_path / "whole", "step")
    n_batches = [sum(line["epoch"] == epoch for line in steps) for epoch in range(4)]
    assert n_batches == [TrainingImages(settings).sampler.n_batches(epoch) for epoch in range(4)]
    rates = [0.01, 0.01, 0.003, 0.0009]  # the milestones are 1 and 2 epochs after the warm-up
    assert [line["lr"]["head"] for line in steps] == pytest.approx([rates[line["epoch"]] for line in steps])
    cosine = [0.01 + 0.09 * (1 + math.cos(math.pi * n / 4)) / 2 for n in (0, 0, 1, 2)]
    assert [line["lr"]["proxies"] for line in steps] == pytest.approx([cosine[line["epoch"]] for line in steps])
    with_memory = {line["epoch"] for line in steps if "memory" in line["parts"]}
    assert with_memory == {1, 2, 3}, "start_epoch 2 is the second epoch"

    with pytest.raises(Killed):
        run.train(settings, tmp_path / "run", progress=ActionAfterStep(n_batches[0] + 2, kill))
    run.train(settings, tmp_path / "run", resume=True)
    assert_same(tmp_path / "run", tmp_path / "whole")


def test_unreadable_image_of_a_small_class_is_skipped_as_often_as_it_is_repeated(tmp_path: Path) -> None:
    manifest = toy.write_images(tmp_path / "images")
    (tmp_path / "images" / "9" / "0.png").write_bytes(b"no picture")
    settings = toy.settings(manifest, sampler=PUBLISHED_SAMPLERS[1], evaluation={"metrics": ["H-AP"], "every": 2})
    summary = run.train(settings, tmp_path / "run")
    assert summary.n_skipped_images == 1
    listed = (tmp_path / "run" / "skipped.csv").read_text().splitlines()
    assert [line.partition(",")[0] for line in listed] == ["id", "9/0.png"]
    assert all("loss" in line for line in history(tmp_path / "run", "step"))


def test_run_killed_before_its_last_evaluation_resumes_with_it(
    uninterrupted: Path, manifest: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    evaluate = Trainer.evaluate
    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "evaluate", lambda self: kill() if self.step == 8 else evaluate(self))
        with pytest.raises(Killed):
            run.train(toy.settings(manifest), tmp_path / "run")
    run.train(toy.settings(manifest), tmp_path / "run", resume=True)
    assert_same(tmp_path / "run", uninterrupted)


@pytest.mark.parametrize("step", [0, 4, 8])
def test_stop_signal_during_an_evaluation_takes_effect_at_once(
    uninterrupted: Path, manifest: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, step: int
) -> None:
    evaluate, settings = Trainer.evaluate, toy.settings(manifest, checkpoint_steps=1000)

    def evaluate_and_stop(self: Trainer) -> None:
        if self.step == step:
            os.kill(os.getpid(), signal.SIGTERM)
            pytest.fail("went on")
        evaluate(self)

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "evaluate", evaluate_and_stop)
        with pytest.raises(KeyboardInterrupt):
            run.train(settings, tmp_path / "run")
    assert read_checkpoint(tmp_path / "run" / "last.pt")["step"] == step
    run.train(settings, tmp_path / "run", resume=True)
    assert_same_except_settings(tmp_path / "run", uninterrupted)
    assert history(tmp_path / "run", "val") == history(uninterrupted, "val")


def test_stop_signals_save_the_last_step(uninterrupted: Path, manifest: Path, tmp_path: Path) -> None:
    handler = signal.getsignal(signal.SIGTERM)
    for number, step, n_more in ((signal.SIGTERM, 3, 3), (signal.SIGINT, 5, 2)):
        with pytest.raises(KeyboardInterrupt):
            run.train(
                toy.settings(manifest, checkpoint_steps=1000),
                tmp_path / "run",
                resume=True,
                progress=ActionAfterStep(n_more, partial(os.kill, os.getpid(), number)),
            )
        assert read_checkpoint(tmp_path / "run" / "last.pt")["step"] == step
        assert signal.getsignal(signal.SIGTERM) is handler
    run.train(toy.settings(manifest), tmp_path / "run", resume=True)  # checkpoint_steps may differ
    assert_same_except_settings(tmp_path / "run", uninterrupted)


def assert_same_except_settings(folder: Path, expected: Path) -> None:
    for part in ("model", "loss", "optimiser", "rng", "step"):
        actual, wanted = (read_checkpoint(path / "last.pt")[part] for path in (folder, expected))
        assert leaves(actual) == leaves(wanted)


@pytest.mark.slow
def test_process_killed_at_any_moment_resumes(uninterrupted: Path, manifest: Path, tmp_path: Path) -> None:
    script = (
        "import sys; from pathlib import Path; from tests.training import toy; toy.use_toy_model(); "
        "toy.run.train(toy.settings(Path(sys.argv[1]), workers=1, checkpoint_steps=1), Path(sys.argv[2]))"
    )
    out = tmp_path / "run"
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    process = subprocess.Popen([sys.executable, "-c", script, str(manifest), str(out)], env=environment)
    deadline = time.monotonic() + 120
    while not (out / "last.pt").exists() and process.poll() is None:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    time.sleep(0.001 * (time.monotonic_ns() % 60))  # at a random moment of its work
    process.kill()
    process.wait()
    run.train(toy.settings(manifest), out, resume=True)
    assert_same_except_settings(out, uninterrupted)
    assert history(out, "val") == history(uninterrupted, "val")


def test_run_with_other_settings_or_data_is_not_resumed(uninterrupted: Path, tmp_path: Path) -> None:
    other = toy.write_images(tmp_path / "other", per_class=5)
    before = read_settings(TrainingSettings, uninterrupted / "settings.yaml")
    changed = toy.changed(
        before,
        data={"manifest": str(other), "test": "test"},
        loss={"name": "happier", "lambda": 0.4},
        memory=None,
        workers=3,
    )
    with pytest.raises(ConfigurationError) as caught:
        run.train(changed, uninterrupted, resume=True)
    message = str(caught.value)
    assert "last.pt: this run was started with other settings or data" in message
    assert "loss.lambda: 0.1 then, 0.4 now" in message
    assert "memory.size: 20 then, None now" in message
    assert "digests.manifest: " in message
    assert "data.manifest: " not in message
    assert "workers" not in message


def test_run_is_not_overwritten_without_force(uninterrupted: Path, manifest: Path, tmp_path: Path) -> None:
    settings = toy.settings(manifest)
    with pytest.raises(ConfigurationError, match=r"there is a run already .*`resume`.*`force`"):
        run.train(settings, uninterrupted)
    with pytest.raises(ConfigurationError, match="choose one"):
        run.train(settings, uninterrupted, resume=True, force=True)
    short = toy.settings(manifest, epochs=None, steps=1, memory=None)
    out = tmp_path / "run"
    run.train(short, out, resume=True)  # nothing to resume
    (out / "mine.txt").touch()
    run.train(short, out, force=True)
    assert [line["step"] for line in history(out, "step")] == [1]
    assert (out / "mine.txt").exists()
    assert len(list((out / "tensorboard").iterdir())) == 1


def test_unreadable_images_are_listed_and_skipped(tmp_path: Path) -> None:
    manifest = toy.write_images(tmp_path / "images")
    for path in ("3/1.png", "3/2.png", "0/1.png"):
        (tmp_path / "images" / path).write_bytes(b"no picture")
    for n in (1, 2, 3, 4, 5):  # of six; class 4 has one left
        (tmp_path / "images" / "4" / f"{n}.png").unlink()
    summary = run.train(toy.settings(manifest), tmp_path / "run")
    listed = (tmp_path / "run" / "skipped.csv").read_text().splitlines()
    assert listed[0] == "id,reason"
    assert sorted(line.partition(",")[0] for line in listed[1:]) == [
        "0/1.png", "3/1.png", "3/2.png", *(f"4/{n}.png" for n in range(1, 6))
    ]  # fmt: skip
    assert summary.n_skipped_images == 8
    assert (
        "8 images could not be read (skipped.csv); 0 batches were skipped, with too few images left"
        in format_training(summary)
    )


def test_batch_without_two_images_of_a_class_is_skipped(tmp_path: Path) -> None:
    manifest = toy.write_images(tmp_path / "images", n_classes=3, per_class=2)  # two training classes of two images
    for c in (1, 2):
        (tmp_path / "images" / str(c) / "0.png").unlink()
    settings = toy.settings(manifest, batch_size=4, epochs=2, evaluation={"metrics": ["H-AP"]})
    summary = run.train(settings, tmp_path / "run")
    assert summary.n_skipped_batches == 2
    assert all("loss" not in line for line in history(tmp_path / "run", "step"))


def test_missing_or_damaged_archive_stops_the_run(tmp_path: Path) -> None:
    n = 12
    levels = {"class": [f"c{i // 4}" for i in range(n)], "super": ["s"] * n}
    manifest = manifest_of(
        [f"{i}" for i in range(n)],
        levels,
        path=["a.tar"] * n,
        offset=[512 + 1024 * i for i in range(n)],
        size=[100] * n,
        split=["test"] * 4 + ["train"] * 8,
    )
    write_manifest(tmp_path / "manifest.parquet", manifest, Provenance("test"))
    settings = toy.settings(tmp_path / "manifest.parquet", batch_size=4)
    with pytest.raises(InputError, match=r"1 of the manifest's 1 tar files are not in this folder"):
        run.train(settings, tmp_path / "run")
    (tmp_path / "a.tar").write_bytes(b"short")
    with pytest.raises(InputError, match=r"a\.tar"):
        run.train(settings, tmp_path / "run")


@pytest.mark.parametrize(
    ("group", "finding"), [("head", "`embeddings` are .*"), ("proxies", r"the loss is nan \(.*\)")]
)
def test_numbers_that_are_not_finite_stop_the_run(manifest: Path, tmp_path: Path, group: str, finding: str) -> None:
    settings = toy.settings(manifest, optimiser={group: {"lr": 1e38, "name": "sgd"}}, memory=None)
    with pytest.raises(ConfigurationError, match=rf"at step \d+, {finding}; lower the learning rates"):
        run.train(settings, tmp_path / "run")


def test_gradient_that_is_not_finite_stops_the_run_before_an_update(
    manifest: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    models: list[EmbeddingModel] = []

    class NanGradient(Loss):
        def forward_batch(self, embeddings: torch.Tensor, *_: Any) -> torch.Tensor:
            embeddings.register_hook(lambda gradient: gradient * torch.nan)  # type: ignore[no-untyped-call]
            return embeddings.sum()

    def build(settings: ModelSettings) -> EmbeddingModel:
        models.append(toy.build(settings))
        models.append(copy.deepcopy(models[0]))
        return models[0]

    monkeypatch.setattr(run, "training_loss", lambda *_: NanGradient())
    monkeypatch.setattr(run, "build_model", build)
    with pytest.raises(ConfigurationError, match="at step 0, the gradient is not finite; lower the learning rates"):
        run.train(toy.settings(manifest), tmp_path / "run")
    trained, before = (dict(model.named_parameters()) for model in models)
    torch.testing.assert_close(trained, before, rtol=0, atol=0)


def test_out_of_memory_error_names_the_settings(
    manifest: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise torch.cuda.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(Loss, "__call__", fail)
    with pytest.raises(
        ConfigurationError, match="batch_size 8 in 1 processes, chunk_size not set, mixed_precision off"
    ):
        run.train(toy.settings(manifest), tmp_path / "run")


def test_missing_devices_are_refused(manifest: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="`device` is gpu; expected cpu, cuda or cuda:N"):
        run.train(toy.settings(manifest), tmp_path / "run", device="gpu")
    if not torch.cuda.is_available():
        with pytest.raises(ConfigurationError, match="the device is 'cuda', but torch sees 0 CUDA devices"):
            run.train(toy.settings(manifest), tmp_path / "run", device="cuda")


def test_backbone_is_frozen_in_the_warm_up(manifest: Path, tmp_path: Path) -> None:
    def trained(name: str, **changes: Any) -> State:
        run.train(toy.settings(manifest, memory=None, **changes), tmp_path / name)
        state: State = read_checkpoint(tmp_path / name / "last.pt")["model"]
        return state

    first, second, without = (
        trained("first", epochs=1, warm_up_epochs=1),
        trained("second", epochs=2, warm_up_epochs=1),
        trained("without", epochs=1, optimiser={name: {"lr": 0} for name in ("backbone", "head", "proxies")}),
    )
    name = "backbone.layers.0.weight"
    assert (first[name] == without[name]).all()
    assert (first["projection.weight"] != without["projection.weight"]).any()
    assert (second[name] != without[name]).any()
    nothing = {"model": {**toy.SETTINGS["model"], "dim": None}, "loss": {"name": "smooth_ap"}}
    with pytest.raises(ConfigurationError, match="there is nothing to train in the warm-up"):
        trained("nothing", warm_up_epochs=1, **nothing)


def test_queries_and_gallery_share_one_numbering(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    path = toy.write_images(tmp_path / "images")
    table = pq.read_table(path)
    ids = table["id"].to_pylist()
    splits = table["split"].to_pylist()
    kinds = [
        s if s == "train" else "query" if i == "1/0.png" else "gallery" for i, s in zip(ids, splits, strict=True)
    ]
    table = table.set_column(table.column_names.index("split"), "split", [kinds])
    write_manifest(path, Manifest.from_arrow(table), Provenance("test"))
    settings = toy.settings(path, data={"manifest": str(path), "queries": "query", "gallery": "gallery"}, epochs=1)
    images = TrainingImages(settings)
    assert images.is_query is not None
    assert (images.test.manifest.labels[images.is_query] == [[1, 1]]).all()  # the same number as in the gallery
    assert "1 queries, 17 in the gallery" in format_images(images)
    summary = run.train(settings, tmp_path / "run")
    assert all(np.isfinite(list(row.values())).all() for row in summary.test.values())
    wrong = toy.settings(path, data={"manifest": str(path), "queries": "query", "gallery": "index"})
    message = f'{path}: there is no split "index" among the images; expected gallery or query or train'
    with pytest.raises(ConfigurationError, match=f"^{re.escape(message)}$"):
        TrainingImages(wrong)


def test_images_that_cannot_be_read_end_a_training_before_it_begins(manifest: Path, tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    settings = toy.settings(
        manifest, data={"manifest": str(manifest), "root": str(tmp_path / "empty"), "test": "test"}
    )
    with pytest.raises(InputError, match=r"empty: none of the 37 images can be read; .*\n  3/0.png: .*No such file"):
        run.train(settings, tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("changes", [{"mixed_precision": "bf16"}, {"chunk_size": 3, "clip_norm": 0.1}])
def test_mixed_precision_chunks_and_clipping(
    uninterrupted: Path, manifest: Path, tmp_path: Path, changes: State
) -> None:
    run.train(toy.settings(manifest, **changes), tmp_path / "run")
    losses, reference = ([line["loss"] for line in history(at, "step")] for at in (tmp_path / "run", uninterrupted))
    assert losses != reference
    assert losses[0] == pytest.approx(reference[0], rel=0.2)  # chunks use other dropout


def test_projection_is_initialised_by_whitening(manifest: Path, tmp_path: Path) -> None:
    nothing = {name: {"lr": 0, "weight_decay": 0} for name in ("backbone", "head", "proxies")}
    settings = toy.settings(
        manifest, model={**toy.SETTINGS["model"], "projection": "whitening"}, epochs=1, optimiser=nothing, memory=None
    )
    run.train(settings, tmp_path / "run")
    images = TrainingImages(settings)
    model = toy.build(settings.model)
    model.load_state_dict(read_checkpoint(tmp_path / "run" / "last.pt")["model"])
    model.eval()
    assert model.projection is not None
    dataset = images.untransformed
    pictures = collate([dataset[row] for row in range(len(dataset))], dataset.normalisation).images
    with torch.no_grad():
        projected = model.projection(model.features(pictures))
    torch.testing.assert_close(projected.T.cov(), torch.eye(6), atol=1e-3, rtol=0)


def test_images_of_unequal_shape_are_trained_on(tmp_path: Path) -> None:
    manifest = toy.write_images(tmp_path)
    for n, path in enumerate(sorted(tmp_path.glob("*/*.png"))):
        path.write_bytes(picture(f"{path.parent.name}/{path.name}", (20 + n % 3, 16)))  # no two are the same
    image = {"fit": "longest", "size": 22, "crop_scale": None}
    whitened = {**toy.SETTINGS["model"], "projection": "whitening"}
    settings = toy.settings(manifest, image=image, model=whitened, epochs=1, chunk_size=3, memory=None)
    dataset = TrainingImages(settings).train
    batch = collate([dataset[row, 5] for row in range(8)], dataset.normalisation)
    assert not isinstance(batch.images, torch.Tensor)
    assert {tuple(pixels.shape) for pixels in batch.images} == {(3, 16, 20), (3, 16, 21), (3, 16, 22)}
    run.train(settings, tmp_path / "run")
    assert all(math.isfinite(line["loss"]) for line in history(tmp_path / "run", "step"))
    model = toy.build(settings.model)
    model.load_state_dict(read_checkpoint(tmp_path / "run" / "last.pt")["model"])
    images = TrainingImages(settings)
    batched, one_by_one = (
        embed_dataset(model, images.test, batch_size=n, workers=0, processes=Processes())
        for n in (settings.evaluation.batch_size, 1)
    )
    # Scores of two images can be so close that rounding orders them: ranks are compared for equal batches only.
    np.testing.assert_allclose(batched.vectors, one_by_one.vectors, atol=1e-4)
    ranked = rank_embedded(batched, images.test, metrics=("H-AP",), ranking=RankingConfig(), processes=Processes())
    assert history(tmp_path / "run", "test")[-1]["H-AP"] == pytest.approx(ranked.means["H-AP"])


def test_random_losses_draw_the_same_numbers_in_all_processes(manifest: Path, tmp_path: Path) -> None:
    """Their generators differ, for dropout; and each step draws other numbers."""
    settings = toy.settings(manifest, epochs=1)
    drawn: list[float] = []

    class RandomLoss(Loss):
        def forward_batch(self, embeddings: torch.Tensor, *_: Any) -> torch.Tensor:
            drawn.append(float(torch.rand(())))
            return embeddings.sum()

    for rank in (0, 1):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(run, "training_loss", lambda *_: RandomLoss())
            patch.setattr(run, "seed_generators", lambda seed, rank=rank: torch.manual_seed(seed + rank))
            run.train(settings, tmp_path / str(rank))
    assert drawn[:4] == drawn[4:]
    assert len(set(drawn)) == 4


def test_format_plan(manifest: Path) -> None:
    text = format_plan(TrainingImages(toy.settings(manifest)))
    assert "train: 37 images, classes by level: 7 class, 2 super" in text
    assert "val: 12 images ranked against each other\ntest: 18 images ranked against each other" in text
    assert "4 batches per epoch, 8 steps" in text
    assert "lambda: 0.1" in text
    greedy = format_plan(TrainingImages(toy.settings(manifest, sampler=PUBLISHED_SAMPLERS[1], steps=7, epochs=None)))
    assert re.search(r"\nabout [34] batches per epoch, 7 steps$", greedy)
    assert isinstance(toy.settings(manifest), TrainingSettings)
