"""Models that are published as folders and on the hub, a local server here, and loaded from there."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import huggingface_hub.constants
import numpy as np
import pytest
import timm
import torch
import yaml
from numpy.typing import NDArray
from safetensors.torch import load_file, save_file

import hgld
from hgld.datasets.settings import Fit
from hgld.errors import ConfigurationError, InputError, SourceError
from hgld.io.files import sha256_of
from hgld.models.model_loading import write_model
from hgld.training.model_card import CardFacts, ModelEvaluation, model_card
from hgld.training.publish_model import push_model, read_evaluations, training_record
from hgld.training.push_settings import PushConfig
from hgld.training.run import train
from hgld.training.training_settings import RandomSplitSettings
from tests.commands import run_hgld
from tests.hub_server import Hub, hub_server
from tests.training import toy

#: The hub's client hands files to its HTTP client in a way that the latter will give up.
pytestmark = pytest.mark.filterwarnings("ignore:Use 'content=<...>':DeprecationWarning")

MODEL = {"backbone": "test_resnet", "pretrained": False, "pooling": "gem", "dim": 8}
PICTURES = [np.random.default_rng(number).integers(0, 256, (40, 50, 3), dtype=np.uint8) for number in range(3)]


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Train for two epochs, and return the folder."""
    folder = tmp_path_factory.mktemp("publish")
    manifest = toy.write_images(folder / "images", n_classes=8, per_class=4, n_val=2)
    train(toy.settings(manifest, model=MODEL, image={"size": 32, "resize": 40}), folder / "run")
    return folder / "run"


def embeddings(model: str | Path) -> NDArray[np.float32]:
    return hgld.load_model(model).embed(PICTURES)


def card_metadata(card: str) -> dict[str, Any]:
    metadata: dict[str, Any] = yaml.safe_load(card.split("---\n")[1])
    return metadata


def test_a_published_folder_gives_the_same_embeddings_and_describes_the_training(run: Path, tmp_path: Path) -> None:
    out = tmp_path / "model"
    summary = push_model(run, out=out, config=PushConfig(license="apache-2.0", datasets=["ada/images"]))
    assert {path.name for path in out.iterdir()} == {
        "README.md", "config.json", "model.safetensors", "training.json"
    }  # fmt: skip
    assert summary.n_bytes == sum(path.stat().st_size for path in out.iterdir())
    assert (summary.url, summary.evaluations) == (None, 1)
    assert len({path.stat().st_mode for path in out.iterdir()}) == 1, "who may read one file may read all"
    np.testing.assert_array_equal(embeddings(out), embeddings(run))
    assert hgld.load_model(out).image_settings == hgld.load_model(run).image_settings

    training = json.loads((out / "training.json").read_text())
    manifest = run.parent / "images" / "manifest.parquet"
    assert training["digests"] == {"manifest": sha256_of(manifest)}
    assert training["settings"]["loss"]["name"] == "happier"
    assert training["checkpoint"] == "best.pt"
    text = "".join(path.read_text() for path in out.iterdir() if path.suffix != ".safetensors")
    assert str(run.parent) not in text, "folders of this machine are nobody's business"

    card = (out / "README.md").read_text()
    best = torch.load(run / "best.pt", weights_only=True)
    history = map(json.loads, (run / "history.jsonl").read_text().splitlines())
    (row,) = [row for row in history if row["kind"] == "test" and row["step"] == best["step"]]
    metadata = card_metadata(card)
    assert (metadata["license"], metadata["library_name"], metadata["datasets"]) == (
        "apache-2.0", "hgld", ["ada/images"]
    )  # fmt: skip
    assert metadata["pipeline_tag"] == "image-feature-extraction"
    (result,) = metadata["model-index"][0]["results"]
    assert {metric["type"]: metric["value"] for metric in result["metrics"]} == {
        name: pytest.approx(row[name], abs=1e-6) for name in ("H-AP", "R@1")
    }
    assert result["dataset"]["revision"] == sha256_of(manifest)
    assert result["dataset"]["name"] == "manifest (test)"
    assert f"| {best['epoch']}, {best['step']} (selected by H-AP on the split `val`) |" in card
    assert 'hgld.load_model("path/to/this/folder")' in card


def test_a_random_split_is_on_the_card(run: Path) -> None:
    training, _ = training_record(run / "best.pt")
    card = model_card(hgld.load_model(run), CardFacts("model", "model", training))
    assert "random split" not in card
    card = model_card(hgld.load_model(run), CardFacts("model", "model", training | {"checkpoint": "last.pt"}))
    assert "(`last.pt`) |" in card
    card = model_card(hgld.load_model(run), CardFacts("model", "model", training | {"step": 0}))
    assert "hgld did not train it" in card
    split = RandomSplitSettings(level="group", test_share=0.5, seed=7).model_dump()
    training["settings"]["data"]["random_split"] = split
    card = model_card(hgld.load_model(run), CardFacts("model", "model", training))
    assert "0.5 of the classes of the level `group` for testing, seed 7" in card


@pytest.mark.parametrize(
    ("fit", "text"),
    [
        ("crop", "resized to shorter side 40 pixels, centre crop 32 x 32, bilinear interpolation"),
        ("squash", "resized to 40 x 40 pixels, centre crop 32 x 32, bilinear interpolation"),
        ("longest", "longer side at most 32 pixels, aspect ratio kept, bilinear interpolation"),
    ],
)
def test_folder_and_card_say_how_images_are_fitted(run: Path, tmp_path: Path, fit: Fit, text: str) -> None:
    embedder = hgld.load_model(run, fit=fit)
    assert f"| {text} |" in model_card(embedder, CardFacts("model", "model", None))
    write_model(embedder, tmp_path)
    assert hgld.load_model(tmp_path).image_settings == embedder.image_settings


def test_a_model_is_pushed_to_the_hub_and_loaded_from_there(run: Path, hub: Hub, tmp_path: Path) -> None:
    result = run_hgld("push-model", run, "ada/landmarks", "--private", "-o", tmp_path / "m")
    described, folder, url = result.stdout.splitlines()
    assert described.startswith("ImageEmbedder(test_resnet, 8 dimensions, images of 32 x 32), ")
    assert described.endswith(" MB, with 1 evaluation on its card")
    assert folder == str(tmp_path / "m")
    repository = hub.repositories["ada/landmarks"]
    assert url == f"{hub.url}/ada/landmarks/commit/{repository.main}"
    assert repository.private
    assert set(hub.head("ada/landmarks")) == {
        ".gitattributes", "README.md", "config.json", "model.safetensors", "training.json"
    }  # fmt: skip
    assert 'hgld.load_model("hf:ada/landmarks")' in hub.head("ada/landmarks")["README.md"].decode()
    first = repository.main
    expected = embeddings(run)
    np.testing.assert_array_equal(embeddings("hf:ada/landmarks"), expected)

    push_model("test_vit", "ada/landmarks", pretrained="none")
    assert "training.json" not in hub.head("ada/landmarks"), "it described another model"
    assert hgld.load_model("hf:ada/landmarks").settings.backbone == "test_vit"
    np.testing.assert_array_equal(embeddings(f"hf:ada/landmarks@{first}"), expected)


def test_without_the_hub_the_last_download_is_loaded(run: Path, hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    push_model(run, "ada/landmarks")
    expected = embeddings("hf:ada/landmarks")
    monkeypatch.setattr(huggingface_hub.constants, "ENDPOINT", "http://127.0.0.1:9")
    np.testing.assert_array_equal(embeddings("hf:ada/landmarks"), expected)
    with pytest.raises(SourceError, match="ada/other: files cannot be downloaded: the hub cannot be reached"):
        hgld.load_model("hf:ada/other")


def test_a_cut_upload_changes_nothing_and_can_be_repeated(run: Path, hub: Hub) -> None:
    hub.cut_uploads = 100
    with pytest.raises(
        SourceError, match=r"ada/landmarks: cannot be uploaded: .*No file of the repository was changed"
    ):
        push_model(run, "ada/landmarks")
    assert set(hub.head("ada/landmarks")) == {".gitattributes"}
    hub.cut_uploads = 2  # fewer than the client retries
    push_model(run, "ada/landmarks")
    np.testing.assert_array_equal(embeddings("hf:ada/landmarks"), embeddings(run))


def test_refusals_of_the_hub_are_explained(run: Path, hub: Hub, monkeypatch: pytest.MonkeyPatch) -> None:
    def expect(repository: str, message: str, **config: Any) -> None:
        before = {name: held.main for name, held in hub.repositories.items()}
        with pytest.raises((SourceError, ConfigurationError), match=message):
            push_model(run, repository, config=PushConfig(**config))
        assert {name: held.main for name, held in hub.repositories.items()} == before

    expect("somebody/model", r"somebody/model: .*the hub refuses access \(403\); set HF_TOKEN")
    hub.add("ada/other", {"config.json": b'{"model_type": "bert"}', "model.safetensors": b"x"})
    expect("ada/other", r"holds something else than a model of hgld \(config.json, model.safetensors\); .*`force`")
    hub.add("ada/public", {"README.md": b"Soon."})
    expect("ada/public", "ada/public: exists and is public, which `private` does not change", private=True)
    for name in ("landmarks", "a/b/c", "ada/land marks", "ada/"):
        expect(name, f'"{name}" is no name of a repository; expected owner/name')
    monkeypatch.setenv("HF_TOKEN", "wrong")
    expect("ada/landmarks", r"the hub refuses access \(401\); set HF_TOKEN to a token with write access")
    monkeypatch.setenv("HF_TOKEN", "write")
    push_model(run, "ada/public")
    push_model(run, "ada/other", config=PushConfig(force=True))
    np.testing.assert_array_equal(embeddings("hf:ada/other"), embeddings("hf:ada/public"))


def test_repositories_that_cannot_be_loaded_are_explained(
    run: Path, hub: Hub, monkeypatch: pytest.MonkeyPatch
) -> None:
    push_model(run, "ada/landmarks")
    files = dict(hub.head("ada/landmarks"))
    config = json.loads(files["config.json"])

    def expect(message: str, **changes: bytes | None) -> None:
        changed = files | {name.replace("_", ".", 1): data for name, data in changes.items()}
        hub.add("ada/broken", {name: data for name, data in changed.items() if data is not None})
        with pytest.raises(InputError, match=f"^hf:ada/broken: {message}"):
            hgld.load_model("hf:ada/broken")

    def with_config(**changes: Any) -> bytes:
        return json.dumps(config | changes).encode()

    expect("config.json is missing; expected a model of hgld push-model, timm or open_clip", config_json=None)
    expect("config.json is not JSON", config_json=b"{")
    expect("config.json is that of another library", config_json=b'{"model_type": "bert"}')
    expect("has no model.safetensors; weights in other formats are not loaded", model_safetensors=None)
    expect("does not fit .*model.safetensors is not the file that config.json", model_safetensors=b"x")
    expect("does not fit .*hgld.model/1", config_json=with_config(format="hgld.model/2"))
    expect(
        "does not fit .*size mismatch for projection.weight",
        config_json=with_config(model=config["model"] | {"pooling": "own", "dim": 9}),
    )
    expect("does not fit .*Extra inputs", config_json=with_config(code="import os"))
    features = {"backbone": "features", "n_features": 96}
    expect("does not fit .*a head of features takes no images", config_json=with_config(model=features))
    with pytest.raises(
        SourceError, match="ada/landmarks: files of the revision v9 cannot .*there is no such revision"
    ):
        hgld.load_model("hf:ada/landmarks@v9")
    with pytest.raises(
        SourceError, match="ada/absent: .*there is no such repository, or it is private; set HF_TOKEN"
    ):
        hgld.load_model("hf:ada/absent")
    with pytest.raises(ConfigurationError, match="is no name of a repository"):
        hgld.load_model("hf:landmarks")
    with pytest.raises(ConfigurationError, match="hf:ada/landmarks has its own weights"):
        hgld.load_model("hf:ada/landmarks", "none")


def test_a_file_of_initial_weights_that_a_config_names_is_never_read(run: Path, tmp_path: Path) -> None:
    push_model(run, out=tmp_path / "model")
    config = json.loads((tmp_path / "model" / "config.json").read_text())
    config["model"]["pretrained"] = "/etc/hostname"
    (tmp_path / "model" / "config.json").write_text(json.dumps(config))
    np.testing.assert_array_equal(embeddings(tmp_path / "model"), embeddings(run))


def test_repositories_of_timm_are_loaded_as_the_model_of_that_name(hub: Hub, tmp_path: Path) -> None:
    model = hgld.load_model("test_resnet", "none")
    weights = model.network.backbone.state_dict() | {"fc.weight": torch.zeros(10, 96), "fc.bias": torch.zeros(10)}
    save_file(weights, tmp_path / "model.safetensors")
    config = {
        "architecture": "test_resnet",
        "num_classes": 10,
        "pretrained_cfg": timm.models.get_pretrained_cfg("test_resnet").to_dict(),
    }
    files = {
        "config.json": json.dumps(config).encode(),
        "model.safetensors": (tmp_path / "model.safetensors").read_bytes(),
    }
    hub.add("timm/test_resnet", files)
    assert hgld.load_model("hf:timm/test_resnet").image_settings == model.image_settings
    np.testing.assert_array_equal(embeddings("hf:timm/test_resnet"), model.embed(PICTURES))
    hub.add(
        "timm/test_resnet", {**files, "config.json": b'{"architecture": "hf-hub:ada/code", "pretrained_cfg": {}}'}
    )
    with pytest.raises(ConfigurationError, match="timm knows no model 'hf-hub:ada/code'"):
        hgld.load_model("hf:timm/test_resnet")


def test_untrained_models_are_published_the_same_way(tmp_path: Path) -> None:
    push_model("test_vit", out=tmp_path / "vit", pretrained="none")
    np.testing.assert_array_equal(embeddings(tmp_path / "vit"), hgld.load_model("test_vit", "none").embed(PICTURES))
    assert not (tmp_path / "vit" / "training.json").exists()
    assert "hgld did not train it" in (tmp_path / "vit" / "README.md").read_text()
    with pytest.raises(ConfigurationError, match="vit: is published already; copy its files as they are"):
        push_model(tmp_path / "vit", out=tmp_path / "again")


def test_evaluations_of_the_command_are_on_the_card(run: Path, tmp_path: Path) -> None:
    """`hgld evaluate --json` writes what `--evaluation` reads."""
    embedded, labels = tmp_path / "e.parquet", run.parent / "images" / "manifest.parquet"
    command = ["embed-images", "--model", str(run), "--manifest", str(labels), "-o", str(embedded), "--workers", "0"]
    run_hgld(*command)
    evaluated = run_hgld("evaluate", "--embeddings", embedded, "--manifest", labels, "--json", "--no-intervals")
    (tmp_path / "noise.json").write_text(evaluated.stdout)
    push_model(run, out=tmp_path / "model", config=PushConfig(evaluations=[tmp_path / "noise.json"]))
    means = json.loads(evaluated.stdout)["results"][0]["means"]
    card = (tmp_path / "model" / "README.md").read_text()
    results = card_metadata(card)["model-index"][0]["results"]
    assert {result["dataset"]["name"] for result in results} == {"manifest (test)", "noise"}
    assert f"| noise | leave-one-out | {100 * means['H-AP']:.2f} " in card


def test_distances_on_the_card_are_in_levels() -> None:
    evaluation = ModelEvaluation("animals", "leave-one-out", {"R@1": 0.5, "avg_hdist@5": 1.25})
    card = model_card(hgld.load_model("test_vit", "none"), CardFacts("model", "model", None, [evaluation]))
    assert "| mean in % | protocol | R@1 | avg_hdist@5 in levels | queries |" in card
    assert "| animals | leave-one-out | 50.00 | 1.25 |" in card


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "e.json: No such file or directory; expected the output of hgld evaluate --json"),
        ("{", "e.json: not the output of hgld evaluate --json"),
        ("[]", "e.json: not the output of hgld evaluate --json"),
        ('{"results": [{"name": "x"}]}', "e.json: not the output of hgld evaluate --json: KeyError"),
    ],
)
def test_other_files_than_evaluations_are_refused(tmp_path: Path, content: str | None, message: str) -> None:
    if content is not None:
        (tmp_path / "e.json").write_text(content)
    with pytest.raises(InputError, match=message):
        read_evaluations(tmp_path / "e.json")


def test_licences_are_named_as_on_the_hub(run: Path, tmp_path: Path) -> None:
    push_model(run, out=tmp_path / "model", config=PushConfig(license="AGPL-3.0-only"))
    assert card_metadata((tmp_path / "model" / "README.md").read_text())["license"] == "agpl-3.0"
    with pytest.raises(ConfigurationError, match='`license`: expected .*, found "CC-BY"; did you mean CC-BY-4.0'):
        PushConfig(license="CC-BY")


def test_folders_of_others_are_not_replaced(run: Path, tmp_path: Path) -> None:
    (tmp_path / "thesis").mkdir()
    (tmp_path / "thesis" / "chapter.tex").write_text("precious")
    with pytest.raises(ConfigurationError, match=r"thesis: contains files that are not those of a model of hgld"):
        push_model(run, out=tmp_path / "thesis")
    assert (tmp_path / "thesis" / "chapter.tex").read_text() == "precious"
    push_model(run, out=tmp_path / "model")
    push_model(run, out=tmp_path / "model", config=PushConfig(license="mit"))
    with pytest.raises(
        ConfigurationError, match=r"model: contains another model, or one that was trained with other"
    ):
        push_model("test_vit", out=tmp_path / "model", pretrained="none")
    assert hgld.load_model(tmp_path / "model").settings.backbone == "test_resnet"
    push_model("test_vit", out=tmp_path / "model", pretrained="none", config=PushConfig(force=True))
    assert hgld.load_model(tmp_path / "model").settings.backbone == "test_vit"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["model", "thesis"]
    with pytest.raises(ConfigurationError, match="expected `repository`, `out` or both; found neither"):
        push_model(run)


def test_a_checkpoint_outside_of_its_run_is_published_without_evaluation(run: Path, tmp_path: Path) -> None:
    (tmp_path / "best.pt").write_bytes((run / "best.pt").read_bytes())
    summary = push_model(tmp_path / "best.pt", out=tmp_path / "model")
    assert summary.evaluations == 0
    assert "None was recorded." in (tmp_path / "model" / "README.md").read_text()
    assert (
        load_file(tmp_path / "model" / "model.safetensors").keys() == hgld.load_model(run).network.state_dict().keys()
    )


@pytest.mark.slow
def test_the_variables_of_the_hub_apply(run: Path, tmp_path: Path) -> None:
    """In fresh processes, without any replaced setting."""
    script = "import sys, hgld; model = hgld.load_model(sys.argv[1]); print(model)"
    with hub_server() as hub:
        variables = {
            "HF_ENDPOINT": hub.url, "HF_HOME": str(tmp_path), "HF_TOKEN": "write", "HF_HUB_DISABLE_XET": "1"
        }  # fmt: skip
        for command in (["-m", "hgld", "push-model", str(run), "ada/landmarks"], ["-c", script, "hf:ada/landmarks"]):
            child = subprocess.run(
                [sys.executable, *command], env=os.environ | variables, capture_output=True, text=True, check=False
            )
            assert child.returncode == 0, child.stderr
    assert child.stdout == "ImageEmbedder(test_resnet, 8 dimensions, images of 32 x 32)\n"
