"""The label pipeline on lists that are not landmarks, by the commands."""

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from hgld import load_hierarchy
from tests.commands import run_hgld

LEVELS = ["genus", "family", "order"]


def hgld(*arguments: object) -> str:
    return run_hgld(*arguments).stdout


@pytest.fixture(scope="module")
def birds(shared: Path) -> Path:
    return shared / "other_domains" / "birds"


@pytest.mark.slow
@pytest.mark.parametrize("link", ["item", "category"])
def test_birds_from_list_to_genus_family_and_order(
    birds: Path, replica: Callable[..., Any], tmp_path: Path, link: str
) -> None:
    species = pd.read_csv(birds / "list.csv").merge(pd.read_csv(birds / "categories.csv"))
    species[["id", link, "part"]].to_csv(tmp_path / "list.csv", index=False)
    scraped, clean, out = (tmp_path / f"{name}.parquet" for name in ("scraped", "clean", "hierarchy"))
    with replica("birds.json.gz") as server:
        urls = ["--commons-url", f"{server.base_url}/commons", "--wikidata-url", f"{server.base_url}/wikidata"]
        columns = ["--id", "id", f"--{link}", link, "--split-column", "part"]
        taxa = ["--property", "P171", "--parents", "P171"]
        shown = hgld("scrape", tmp_path / "list.csv", *columns, *taxa, "-o", scraped, "--rate", 0, *urls)
    assert "328 entities, 288 classes and superclasses" in shown
    hgld("clean", scraped, "-o", clean)
    assert 'Podargus (Q901000081): unsure, machine: "no family above it"' in hgld(
        "build", clean, "--levels-from", "parents", "-o", out
    )

    expected = pd.read_csv(birds / "expected.csv").set_index("id")
    rows = pd.read_parquet(scraped).set_index("id")
    # Whether the chain goes on to the order is not known before build.
    pd.testing.assert_series_equal(rows["status"], expected["status"].replace("incomplete", "ok"))
    built = pd.read_parquet(out).set_index("id")
    complete = expected[expected["status"] == "ok"].rename(columns={"part": "split"}).sort_index()
    pd.testing.assert_frame_equal(built.sort_index()[["split", *LEVELS]], complete[["split", *LEVELS]])
    hierarchy = load_hierarchy(out)
    assert (hierarchy.level_names, hierarchy.split_names) == (("entity", *LEVELS), ["east", "west"])
    counted = hgld("stats", out, "-o", tmp_path / "stats.svg")
    assert "Passeriformes                   40             26            66      35" in counted
    before = shutil.copy(out, tmp_path / "before.parquet")
    hgld("build", clean, "--levels-from", "parents:genus,order", "-o", out)
    compared = hgld("compare", before, out)
    assert "agreement over 321 entities in both" in compared
    pictures = [(tmp_path / name).read_text() for name in ("stats.svg", "stats.tree.svg", "stats.tree.html")]
    assert not any("landmark" in text for text in (counted, compared, *pictures))
    assert pd.read_parquet(out).columns.tolist()[4:] == ["genus", "order"]
