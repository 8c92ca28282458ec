"""Smooth-AP's Table 4 in miniature: VGGFace2's layout, its comparison, and a model's weights handed on."""

from pathlib import Path

import pytest
from safetensors.torch import save_file

from hgld.benchmark.runs import read_benchmark, table_runs
from hgld.benchmark.worker import WorkerTask, read_evaluated, work
from hgld.models.embedding_model import EmbeddingModel
from hgld.models.model_loading import load_checkpoint_model
from tests.commands import run_hgld
from tests.datasets.pictures import save_pictures

SMALL = (
    *("model.backbone=test_resnet", "model.pretrained=false", "model.dim=8", "image.size=16", "image.resize=16"),
    *("image.train_resize=18", "batch_size=8", "epochs=null", "steps=2", "workers=0"),
)


def write_vggface2(root: Path) -> None:
    """Write eight identities with four photographs each for training, and four for testing."""
    for split, identities in (("train", range(8)), ("test", range(8, 12))):
        paths = [f"n{identity:06}/{number:04}_01.jpg" for identity in identities for number in range(1, 5)]
        save_pictures(root, *(f"{split}/{path}" for path in paths))
        (root / f"{split}_list.txt").write_text("".join(f"{path}\n" for path in paths))
        boxes = [f'"{path.removesuffix(".jpg")}",4,2,12,10\n' for path in paths]
        (root / "bb_landmark").mkdir(exist_ok=True)
        (root / "bb_landmark" / f"loose_bb_{split}.csv").write_text("NAME_ID,X,Y,W,H\n" + "".join(boxes))


@pytest.mark.slow
def test_the_comparison_of_faces_in_miniature(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    write_vggface2(tmp_path / "VGGFace2")
    command = ["manifest", "vggface2", "VGGFace2", "-o", "data/faces/vggface2.parquet"]
    run_hgld(*command)
    settings = read_benchmark("smooth_ap_faces")
    runs = table_runs(settings, tmp_path / "out", SMALL)
    assert set(runs) == {"softmax", "pairwise", "triplet", "smooth_ap"}
    for (run,) in runs.values():
        work(WorkerTask(benchmark=settings, run=run))
        evaluated = read_evaluated(settings, run)
        assert evaluated is not None
        assert 0 < evaluated.result.means["AP"] <= 1
        assert evaluated.result.counts["queries"] == 16

    # The network of softmax is what the other methods continue from.
    network = load_checkpoint_model(runs["softmax"][0].folder / "last.pt").network
    assert isinstance(network, EmbeddingModel)
    weights = tmp_path / "softmax.safetensors"
    save_file(network.backbone.state_dict(), weights)
    overrides = (*SMALL, f"model.pretrained={weights}", "steps=0")
    (run,) = table_runs(settings, tmp_path / "continued", overrides)["smooth_ap"]
    work(WorkerTask(benchmark=settings, run=run))
    continued = load_checkpoint_model(run.folder / "last.pt").network.state_dict()
    for name, value in network.backbone.state_dict().items():
        assert continued[f"backbone.{name}"].equal(value)
