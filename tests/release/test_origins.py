"""Who decided on the groups of a release, and what its documents say about it."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import datetime, timezone
from importlib.util import find_spec
from pathlib import Path

import pyarrow as pa
import pytest
import yaml

from hgld.hierarchy.build import build_file
from hgld.labels.clean import clean_file
from hgld.release.documents import ORIGINS, annotations_creators, count_origins
from hgld.release.publish import write_release
from hgld.taxonomy.decisions import Decision
from tests.hierarchy.conftest import BRIDGE, CHURCH, LAKE, MOUNTAIN
from tests.release.conftest import FACTS

NOON = datetime(2026, 3, 1, 12, tzinfo=timezone.utc)


def decide(label: str, group: str, annotator: str, label_id: str = "") -> Decision:
    return Decision(label_id or f"label-{label}", label, "group", group, annotator, NOON)


def landmarks(*rows: tuple[str, str]) -> pa.Table:
    return pa.Table.from_pylist([{"supercategory": label, "hierarchical_label": group} for label, group in rows])


def counts(hierarchy: pa.Table, *decisions: Decision) -> dict[str, int]:
    return {origin.name: n for origin, n in count_origins(hierarchy, decisions).items()}


@pytest.mark.parametrize(
    ("annotator", "origin"),
    [
        ("ada+ben", "several annotators"),
        ("ada", "one annotator"),
        ("ada+seed", "one annotator"),
        ("machine+ada", "one annotator"),
        ("seed", "draft"),
        ("machine", "draft"),
        ("machine+seed", "draft"),
    ],
)
def test_origin_follows_from_the_people_who_decided(annotator: str, origin: str) -> None:
    assert counts(landmarks(("lake", "lake")), decide("lake", "lake", annotator)) == {origin: 1}


def test_least_reliable_decision_on_a_label_counts() -> None:
    decisions = [decide("temple", "temple", "ada+ben", "Q1"), decide("Temple", "temple", "seed", "Q2")]
    assert counts(landmarks(("temple", "temple"), ("temple", "temple")), *decisions) == {"draft": 2}
    # Decisions for another group do not fit, and of a renamed label only the group is known.
    decisions = [decide("temple", "temple", "ada+ben"), decide("temple", "church", "seed", "Q2")]
    assert counts(landmarks(("temple", "temple"), ("shrine", "church")), *decisions) == {
        "several annotators": 1,
        "draft": 1,
    }


def test_groups_from_photographs_have_an_origin_of_their_own() -> None:
    hierarchy = landmarks(("lake", "lake"), ("lake", "lake"))
    sources = pa.array(["instance_of", "photographs"])
    hierarchy = hierarchy.append_column("label_source", sources)
    assert counts(hierarchy, decide("lake", "lake", "ada")) == {"one annotator": 1, "photographs": 1}


def test_terms_are_those_of_the_hugging_face_hub() -> None:
    assert annotations_creators(ORIGINS) == ["expert-generated", "machine-generated"]
    package = find_spec("datasets")
    if package is None or package.origin is None:
        pytest.skip("datasets is not installed")
    vocabulary = json.loads((Path(package.origin).parent / "utils/resources/creators.json").read_text())
    assert {origin.creator for origin in ORIGINS} <= set(vocabulary["annotations"])


@pytest.mark.filterwarnings("ignore:ConjunctiveGraph is deprecated:DeprecationWarning")
@pytest.mark.parametrize(
    ("names", "creators"),
    [
        ({}, ["expert-generated"]),
        ({"ada+ben": "seed", "ada": "seed", "ben": "machine"}, ["machine-generated"]),
        ({"ben": "seed"}, ["expert-generated", "machine-generated"]),
    ],
)
def test_documents_state_who_decided(
    folder: Path, write_scraped: Callable[..., Path], names: dict[str, str], creators: list[str]
) -> None:
    decisions = folder / "decisions.csv"
    lines = decisions.read_text().splitlines()
    for number, line in enumerate(lines[1:], 1):
        for name, replacement in names.items():
            line = line.replace(f",{name},", f",{replacement},")
        lines[number] = line
    decisions.write_text("\n".join([*lines, ""]))
    clean = folder / "clean.parquet"
    scraped = write_scraped([[LAKE], [MOUNTAIN], [CHURCH], [LAKE], [BRIDGE]])
    clean_file([scraped], clean, irrelevant=folder / "irrelevant.csv")
    hierarchy, taxonomy = folder / "hierarchy.parquet", folder / "taxonomy.csv"
    build_file(clean, hierarchy, decisions=decisions, taxonomy=taxonomy)
    write_release(hierarchy, folder / "release", FACTS, decisions=decisions, taxonomy=taxonomy)

    card, datasheet = ((folder / "release" / name).read_text() for name in ("README.md", "datasheet.md"))
    croissant = json.loads((folder / "release" / "croissant.json").read_text())
    assert yaml.safe_load(card.split("---")[1])["annotations_creators"] == creators
    people = [] if "expert-generated" not in creators else ["ada", "ben"]
    protocol = croissant["rai:dataAnnotationProtocol"]
    assert ("rai:machineAnnotationTools" in croissant) == ("machine-generated" in creators)
    for text in (card, datasheet):
        if people:
            assert f"Decisions are those of {', '.join(people)}." in text
        else:
            assert "No annotator has reviewed the labels." in text
            assert "expert" not in text
    if not names:
        assert "| several annotators | Two or more people gave the landmark's label the same group. | " in card
        assert "| expert-generated | 1 |" in card
        assert protocol.startswith("several annotators (1 landmarks): ")
        assert "one annotator (4 landmarks)" in protocol
    elif not people:
        assert "| machine-generated | 5 |" in card
    else:
        assert "draft (1 landmarks)" in protocol
