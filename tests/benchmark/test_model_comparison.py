"""Comparisons of models, by the command."""

import json
import shutil
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
import pytest
import torch
from PIL import Image

from hgld.benchmark.model_comparison_settings import ModelComparisonConfig, parse_model, parse_treatment
from hgld.errors import ConfigurationError
from hgld.tables import MANIFEST, Provenance, read_provenance, write_table
from hgld.tables.embeddings import read_embeddings, write_embeddings
from tests.axe import violations
from tests.child_processes import run_hgld_without_torch
from tests.commands import run_hgld
from tests.datasets.pictures import manifest_table

if TYPE_CHECKING:
    from selenium.webdriver import Chrome

MODELS = ("a=test_resnet?pretrained=none&size=32&seen=no", "b=test_vit2?pretrained=none")


def hgld(*arguments: object, code: int = 0) -> str:
    return run_hgld(*arguments, code=code).output


def colour(number: int) -> tuple[int, int, int]:
    return 40 * (number % 6), 25 * (number // 2 % 10), 90 + 20 * (number % 3)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pictures of 16 classes in 4 groups, half of the classes to train on, with a manifest."""
    folder = tmp_path_factory.mktemp("pictures")
    rng = np.random.default_rng(0)
    names = [f"{number // 6}_{number % 6}.png" for number in range(96)]
    for number, name in enumerate(names):
        noise = rng.normal(colour(number // 6), 40, (40, 48, 3)).clip(0, 255).astype(np.uint8)
        Image.fromarray(noise).save(folder / name)
    classes = [number // 6 for number in range(96)]
    levels = {"class": [f"class {n}" for n in classes], "group": [f"group {n // 4}" for n in classes]}
    table = manifest_table(names, levels, ["train" if n % 2 else "test" for n in classes])
    write_table(folder / "manifest.parquet", MANIFEST, table, Provenance("manifest", {}, {}))
    return folder


@pytest.fixture(scope="module")
def compared(folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A comparison of two models, with one that is missing and one in a file."""
    out = tmp_path_factory.mktemp("compared")
    np.save(out / "zero.npy", np.zeros((96, 4), np.float32))
    (out / "zero.ids.txt").write_text("\n".join(sorted(path.name for path in folder.glob("*.png"))) + "\n")
    others = ["gone=missing.pt", f"zero={out / 'zero.npy'}"]
    options = ["--manifest", folder / "manifest.parquet", "--workers", 0, "-o", out]
    shown = hgld("compare-models", *MODELS, *others, "--treatment", "none", "--treatment", "pca-8", *options)
    assert "failed: gone: missing.pt: no such file" in shown
    assert "zero.npy: the embeddings of 96 images are zero" in shown
    return out


def test_numbers_are_those_of_the_commands_one_by_one(folder: Path, compared: Path, tmp_path: Path) -> None:
    manifest, embeddings = folder / "manifest.parquet", tmp_path / "a.parquet"
    model = ("--model", "test_resnet", "--pretrained", "none", "--size", 32, "--workers", 0)
    hgld("embed-images", *model, "--manifest", manifest, "-o", embeddings)
    names = ("H-AP", "mAP@R", "R@1", "AP_l1", "NDCG")
    metrics = [word for name in names for word in ("--metric", name)]
    files = ("--embeddings", embeddings, "--manifest", manifest, "--split", "test")
    means = json.loads(hgld("evaluate", *files, *metrics, "--json"))["results"][0]["means"]
    table = pd.read_parquet(compared / "results.parquet")
    ours = table.query("name == 'a'").set_index("metric")["mean"]
    assert {name: ours[name] for name in names} == means
    assert read_provenance(compared / "results.parquet").command == "compare-models"
    facts = json.loads((compared / "embeddings" / "a.json").read_text())
    assert (facts["dim"], facts["seen"]) == (96, "no")
    assert facts["parameters"] > 1000
    text = (compared / "results.md").read_text()
    assert "| a | test_resnet |" in text
    assert "- gone: missing.pt: no such file" in text
    assert "without labels" not in text.lower(), "the images of other splits have labels"


def test_models_are_compared_on_the_images_that_all_have(folder: Path, compared: Path, tmp_path: Path) -> None:
    """A file without 10 of 48 test images: all models are ranked among the other 38, and the page says so."""
    images = read_embeddings(compared / "embeddings" / "a.parquet")
    assert images.ids is not None
    ids = images.ids.tolist()
    is_test = [int(name.partition("_")[0]) % 2 == 0 for name in ids]
    lacking = [name for name, tested in zip(ids, is_test, strict=True) if tested][::5]
    rows = [row for row, name in enumerate(ids) if name not in lacking]
    np.save(tmp_path / "fewer.npy", np.asarray(images.vectors)[rows])
    (tmp_path / "fewer.ids.txt").write_text("\n".join(ids[row] for row in rows) + "\n")
    options = ["--manifest", folder / "manifest.parquet", "--workers", 0, "-o", tmp_path / "out"]
    hgld("compare-models", MODELS[0], f"fewer={tmp_path / 'fewer.npy'}", *options)
    table = pd.read_parquet(tmp_path / "out" / "results.parquet")
    assert table["queries"].unique().tolist() == [sum(is_test) - len(lacking)]
    # Both are embeddings of the same network.
    h_ap = table[table["metric"] == "H-AP"].set_index("name")["mean"]
    assert h_ap["a"] == pytest.approx(h_ap["fewer"])
    text = (tmp_path / "out" / "results.md").read_text()
    assert f"- Images that some model has no embedding of, excluded for all models: {len(lacking)}." in text
    assert f"Leave-one-out on {sum(is_test) - len(lacking)} images of test." in text
    embedded = read_embeddings(tmp_path / "out" / "embeddings" / "a.parquet")
    assert embedded.ids is not None
    assert sorted(embedded.ids.tolist()) == sorted(name for name, tested in zip(ids, is_test, strict=True) if tested)


def test_embeddings_in_another_order_are_the_same_images(folder: Path, compared: Path, tmp_path: Path) -> None:
    known = read_embeddings(compared / "embeddings" / "a.parquet")
    assert known.ids is not None
    order = np.random.default_rng(0).permutation(len(known))
    write_embeddings(tmp_path / "b.npy", known.vectors[torch.from_numpy(order)], known.ids[order].tolist())
    models = (f"a={compared / 'embeddings' / 'a.parquet'}", f"b={tmp_path / 'b.npy'}")
    hgld("compare-models", *models, "--manifest", folder / "manifest.parquet", "--workers", 0, "-o", tmp_path / "out")
    table = pd.read_parquet(tmp_path / "out" / "results.parquet").pivot(index="metric", columns="name", values="mean")
    pd.testing.assert_series_equal(table["a"], table["b"], check_names=False)


def test_up_to_date_without_torch_until_a_file_changes(folder: Path, tmp_path: Path) -> None:
    embeddings = tmp_path / "b.npy"
    names = sorted(path.name for path in folder.glob("*.png"))
    write_embeddings(embeddings, torch.rand(96, 4) + 0.1, names)
    out = tmp_path / "out"
    options = ("--manifest", folder / "manifest.parquet", "--workers", 0, "-o", out)
    command = ("compare-models", MODELS[0], f"b={embeddings}", *options)
    printed = run_hgld(*command).stdout
    before = (out / "results.made.json").read_bytes()
    assert run_hgld_without_torch(*command) == printed
    assert (out / "results.made.json").read_bytes() == before
    for change in (
        (out / "levels.png").unlink,
        (out / "evaluations" / "a.parquet").unlink,
        (out / "embeddings" / "a.skipped.csv").unlink,
    ):
        change()
        assert run_hgld(*command).stdout == printed
        assert run_hgld_without_torch(*command) == printed
    write_embeddings(embeddings, torch.rand(96, 4) + 0.2, names)
    assert run_hgld(*command).stdout != printed


def test_a_comparison_with_a_failure_is_tried_again(folder: Path, tmp_path: Path) -> None:
    function = tmp_path / "net.py"
    function.write_text("def embed(images):\n    raise ValueError('not yet')\n")
    options = ("--manifest", folder / "manifest.parquet", "--workers", 0, "-o", tmp_path / "out")
    command = ("compare-models", MODELS[0], f"b=python:{function}:embed", *options)
    assert "failed: b:" in run_hgld(*command).stdout
    assert "failed: b:" in run_hgld(*command).stdout


def test_corrected_ids_are_noticed(folder: Path, compared: Path, tmp_path: Path) -> None:
    known = read_embeddings(compared / "embeddings" / "a.parquet")
    assert known.ids is not None
    ids = known.ids.tolist()
    command = ("compare-models", f"b={tmp_path / 'b.npy'}", "--manifest", folder / "manifest.parquet", "-o", tmp_path)
    write_embeddings(tmp_path / "b.npy", known.vectors, ids[::-1])
    hgld(*command)
    wrong = pd.read_parquet(tmp_path / "results.parquet")["mean"]
    (tmp_path / "b.ids.txt").write_text("\n".join([*ids, ""]))
    hgld(*command)
    right = pd.read_parquet(tmp_path / "results.parquet")["mean"]
    assert not np.allclose(wrong, right)


def test_names_that_differ_in_a_space_are_two_models(folder: Path, compared: Path, tmp_path: Path) -> None:
    known = read_embeddings(compared / "embeddings" / "a.parquet")
    assert known.ids is not None
    for name, vectors in (("a", known.vectors), ("b", known.vectors[:, :4])):
        write_embeddings(tmp_path / f"{name}.npy", vectors, known.ids.tolist())
    models = (f"x y={tmp_path / 'a.npy'}", f"xy={tmp_path / 'b.npy'}")
    hgld("compare-models", *models, "--manifest", folder / "manifest.parquet", "-o", tmp_path / "out")
    assert {path.stem for path in (tmp_path / "out" / "evaluations").iterdir()} == {"x y", "xy"}


def test_files_of_embeddings_that_cannot_be_used_are_named(folder: Path, compared: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "c.npy", np.eye(96, dtype=np.float32))
    models = ("a=none.npy", f"b={compared / 'embeddings' / 'a.parquet'}?size=9", f"c={tmp_path / 'c.npy'}")
    shown = hgld("compare-models", *models, "--manifest", folder / "manifest.parquet", "-o", tmp_path / "out", code=1)
    assert "none.npy: no such file; expected the embeddings of images" in shown
    assert "a.parquet: a file of embeddings takes no options, but size is given" in shown
    assert "c.npy: has no ids, by which images are identified here" in shown


def test_a_file_without_any_evaluated_image_fails_alone(folder: Path, tmp_path: Path) -> None:
    np.save(tmp_path / "other.npy", np.random.default_rng(0).normal(size=(4, 8)).astype(np.float32))
    (tmp_path / "other.ids.txt").write_text("w\nx\ny\nz\n")
    options = ["--manifest", folder / "manifest.parquet", "--workers", 0, "-o", tmp_path / "out"]
    shown = hgld("compare-models", MODELS[0], f"other={tmp_path / 'other.npy'}", *options)
    assert "other.npy: has no embedding of any evaluated image" in shown
    assert pd.read_parquet(tmp_path / "out" / "results.parquet")["name"].unique().tolist() == ["a"]


def test_pca_is_fitted_to_the_training_split_alone(folder: Path, compared: Path) -> None:
    from sklearn.decomposition import PCA

    from hgld import evaluate_retrieval

    images = read_embeddings(compared / "embeddings" / "a.parquet")
    assert images.ids is not None
    number = np.array([int(name.partition("_")[0]) for name in images.ids])
    vectors = np.asarray(images.vectors, np.float32)
    pca = PCA(8, svd_solver="full").fit(vectors[number % 2 == 1])
    labels = np.stack([number, number // 4], axis=1)[number % 2 == 0]
    expected = evaluate_retrieval(pca.transform(vectors[number % 2 == 0]), labels)
    table = pd.read_parquet(compared / "results.parquet")
    ours = table[table["name"] == "a + pca-8"].set_index("metric")["mean"]
    for metric in ("H-AP", "R@1"):
        assert ours[metric] == pytest.approx(expected.means[metric], abs=1e-5)


def test_finished_work_is_kept(folder: Path, compared: Path, tmp_path: Path) -> None:
    compared = shutil.copytree(compared, tmp_path / "copy")

    def times() -> dict[str, int]:
        files = [*compared.glob("embeddings/*.parquet"), *compared.glob("evaluations/*.parquet")]
        return {f"{path.parent.name}/{path.name}": path.stat().st_mtime_ns for path in files}

    before, table = times(), (compared / "results.tex").read_bytes()
    (compared / "evaluations" / "b.parquet").unlink()
    (compared / "results.tex").unlink()
    options = ["--manifest", folder / "manifest.parquet", "--workers", 0, "-o", compared]
    hgld("compare-models", *MODELS, "--treatment", "none", "--treatment", "pca-8", *options)
    after = times()
    assert {key for key in before if after[key] != before[key]} == {"evaluations/b.parquet"}
    assert (compared / "results.tex").read_bytes() == table
    written = (compared / "index.html").stat().st_mtime_ns
    shown = hgld("compare-models", *MODELS, "--treatment", "none", "--treatment", "pca-8", *options)
    assert (compared / "index.html").stat().st_mtime_ns == written
    assert f"{compared / 'index.html'}\n" in shown, "what was written before is named, too"


def test_reranked_models_stand_beside_the_others(folder: Path, compared: Path, tmp_path: Path) -> None:
    out = shutil.copytree(compared, tmp_path / "copy")
    options = ["--manifest", folder / "manifest.parquet", "--workers", 0, "-o", out, "--treatment", "none"]
    hgld("compare-models", MODELS[0], *options, "--treatment", "pca-8", "--rerank", "dba", "--rerank-neighbours", 3)
    assert not (out / "differences.html").exists(), "it shows two models"
    means = pd.read_parquet(out / "results.parquet").query("metric == 'H-AP'").set_index("name")["mean"]
    assert means.index.tolist() == ["a", "a + dba", "a + pca-8", "a + pca-8 + dba"]
    files = ("--embeddings", out / "embeddings" / "a.parquet", "--manifest", folder / "manifest.parquet")
    shown = hgld("evaluate", *files, "--split", "test", "--rerank", "dba", "--rerank-neighbours", 3, "--json")
    assert json.loads(shown)["results"][0]["means"]["H-AP"] == means["a + dba"] != means["a"]


@pytest.mark.slow
def test_linear_adaptation_learns_and_is_trained_once(folder: Path, tmp_path: Path) -> None:
    options = ["--manifest", folder / "manifest.parquet", "--workers", 0, "-o", tmp_path]
    treatments = ["--treatment", "none", "--treatment", "adapt-smooth_ap", "--treatment", "center"]
    hgld("compare-models", MODELS[0], *treatments, *options)
    run = tmp_path / "adaptations" / "a+smooth_ap"
    trained = (run / "last.pt").stat().st_mtime_ns
    (tmp_path / "evaluations" / "a+adapt-smooth_ap.parquet").unlink()
    hgld("compare-models", MODELS[0], *treatments, *options)
    assert (run / "last.pt").stat().st_mtime_ns == trained
    names = pd.read_parquet(tmp_path / "results.parquet")["name"].unique().tolist()
    assert names == ["a", "a + adapt-smooth_ap", "a + center"]


@pytest.mark.slow
def test_page_sorts_by_every_column(browser: "Chrome", compared: Path) -> None:
    browser.get((compared / "index.html").as_uri())

    def column(number: int) -> list[str]:
        cells = browser.find_elements("css selector", f"#results tbody tr > :nth-child({number})")
        return [str(cell.get_attribute("data-value")) for cell in cells]

    heads = browser.find_elements("css selector", "#results th button")
    h_ap = [head.text for head in heads].index("H-AP") + 1
    assert column(1)[0] in {"a", "b", "a + pca-8", "b + pca-8"}
    for number, head in ((h_ap, heads[h_ap - 1]), (2, heads[1])):
        head.click()
        values = [float(value) for value in column(number)]
        assert values == sorted(values, reverse=True)
        head.click()
        assert [float(value) for value in column(number)] == values[::-1]
    heads[0].click()
    assert column(1) == sorted(column(1), reverse=True)
    assert violations(browser) == []
    assert "missing.pt: no such file" in browser.page_source
    images = browser.find_elements("css selector", "img")
    assert images
    assert all(browser.execute_script("return arguments[0].naturalWidth", image) for image in images)


def test_wrong_settings_are_named(folder: Path, tmp_path: Path) -> None:
    for text, message in (
        ("a?sizes=3", "has no option sizes; expected size"),
        ("a?size=x", 'size is "x"; expected a whole number'),
        ("a?seen=maybe", 'seen is "maybe"'),
        ("../=a", '"../" cannot name files'),
        ("..=a", '".." cannot name files'),
        (".hid=a", '".hid" cannot name files'),
    ):
        with pytest.raises(ConfigurationError, match=message):
            parse_model(text)
    for text in ("pca", "pca-0", "whiten-x", "adapt-", "centre"):
        with pytest.raises(ConfigurationError, match="expected none, center"):
            parse_treatment(text)
    with pytest.raises(ConfigurationError):
        ModelComparisonConfig(treatments=("best",))
    command = ["compare-models", "--manifest", folder / "manifest.parquet", "-o", tmp_path / "out"]
    assert "models are called a, a; give each a name" in hgld(*command, "a=x", "a=y", code=1)
    assert 'there is no split "val" among the images; expected test or train' in hgld(
        *command, "a=x", "--split", "val", code=1
    )
    assert "would be evaluated, too" in hgld(*command, "a=x", "--split", "train", "--treatment", "center", code=1)
    assert "no model could be compared" in hgld(*command, "a=x.pt", code=1)
    assert not list(tmp_path.glob("out/*.csv"))
    assert "no such file" in hgld("compare-models", "a", "--manifest", tmp_path / "no", "-o", tmp_path, code=1)
