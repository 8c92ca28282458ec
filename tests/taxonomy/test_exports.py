"""Taxonomies in other forms, and back."""

import csv
import json
from pathlib import Path

import pytest
import yaml

from hgld.errors import ConfigurationError, InputError
from hgld.resources import annotation_file
from hgld.taxonomy.groups import Group, read_taxonomy, write_taxonomy
from hgld.taxonomy.trees import ImportConfig, export_taxonomy, import_taxonomy

UNEVEN = '''leaf,shelf,aisle,items,guideline
Rye,Bread,"Food & ""Drink""",Q1 Q20,"Dark:	rye.\nNo wheat."
,Bread,"Food & ""Drink""",,Bread of any kind.
,,Gloves \\ 手袋,Q5,
=Milk,Dairy,"Food & ""Drink""",,
'''


@pytest.fixture
def uneven(tmp_path: Path) -> Path:
    path = tmp_path / "uneven.csv"
    path.write_text(UNEVEN, encoding="utf-8")
    return path


def identity(group: Group) -> tuple[object, ...]:
    return (*group.path, *sorted(group.items), group.guideline)


@pytest.mark.parametrize(("kind", "suffix"), [("skos", "ttl"), ("csv", "csv")])
@pytest.mark.parametrize("name", ["shipped", "uneven"])
def test_exports_are_imported_to_the_same_tree(
    kind: str, suffix: str, name: str, uneven: Path, tmp_path: Path
) -> None:
    if kind == "skos":
        pytest.importorskip("rdflib")
    taxonomy = uneven if name == "uneven" else annotation_file("taxonomy.csv")
    before = read_taxonomy(taxonomy)
    exported, again = tmp_path / f"exported.{suffix}", tmp_path / "again.csv"
    assert export_taxonomy(taxonomy, exported, kind) == len(before)
    import_taxonomy(exported, again, ImportConfig(before[0].levels))
    assert sorted(map(identity, read_taxonomy(again))) == sorted(map(identity, before))


def test_skos_is_what_others_read(uneven: Path, tmp_path: Path) -> None:
    rdflib = pytest.importorskip("rdflib")
    export_taxonomy(uneven, tmp_path / "x.ttl", "skos", "https://example.org/food#")
    graph = rdflib.Graph().parse(tmp_path / "x.ttl")
    rye = rdflib.URIRef("https://example.org/food#leaf/Rye")
    skos = rdflib.namespace.SKOS
    assert graph.value(rye, skos.broader) == rdflib.URIRef("https://example.org/food#shelf/Bread")
    assert {str(each).rpartition("/")[2] for each in graph.objects(rye, skos.narrowMatch)} == {"Q1", "Q20"}
    (gloves,) = graph.subjects(skos.closeMatch)
    assert str(gloves) == "https://example.org/food#aisle/Gloves%20%5C%20%E6%89%8B%E8%A2%8B"
    assert json.loads(graph.serialize(format="json-ld"))


def test_mappings_to_wikidata(uneven: Path, tmp_path: Path) -> None:
    export_taxonomy(uneven, tmp_path / "x.tsv", "sssom", "https://example.org/food#")
    lines = (tmp_path / "x.tsv").read_text(encoding="utf-8").splitlines()
    head = yaml.safe_load("\n".join(line[1:] for line in lines if line.startswith("#")))
    assert head["curie_map"]["taxonomy"] == "https://example.org/food#"
    assert {"mapping_set_id", "license"} < head.keys()
    rows = list(csv.DictReader((line for line in lines if not line.startswith("#")), delimiter="\t"))
    assert [(row["subject_id"], row["subject_label"], row["predicate_id"], row["object_id"]) for row in rows] == [
        ("taxonomy:leaf/Rye", "Rye", "skos:narrowMatch", "wikidata:Q1"),
        ("taxonomy:leaf/Rye", "Rye", "skos:narrowMatch", "wikidata:Q20"),
        ("taxonomy:aisle/Gloves%20%5C%20%E6%89%8B%E8%A2%8B", "Gloves \\ 手袋", "skos:closeMatch", "wikidata:Q5"),
    ]
    assert {row["mapping_justification"] for row in rows} == {"semapv:ManualMappingCuration"}


def test_wrong_exports(uneven: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match='`to` is "owl"; expected one of skos, csv, sssom'):
        export_taxonomy(uneven, tmp_path / "x", "owl")
    with pytest.raises(ConfigurationError, match="`out` is the file to read"):
        export_taxonomy(uneven, uneven, "csv")
    write_taxonomy(tmp_path / "plain.csv", [Group("a", "b", "")])
    with pytest.raises(InputError, match=r"plain\.csv: no group has items of Wikidata"):
        export_taxonomy(tmp_path / "plain.csv", tmp_path / "x.tsv", "sssom")
    assert not [*tmp_path.glob("x*")]
