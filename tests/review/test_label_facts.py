"""Facts about labels: classes, superclasses and landmarks."""

import pyarrow as pa

from hgld.review.labels import FactBook
from hgld.tables import CLASSES, CLEAN
from hgld.taxonomy.label_identity import label_id
from tests.review.conftest import COMMONS, clean_table


def classes(*rows: tuple[str, str, str | None, list[str]]) -> pa.Table:
    names = ("item", "label", "description", "subclass_of")
    return pa.Table.from_pylist([dict(zip(names, row, strict=True)) for row in rows], CLASSES.schema)


def test_class_with_superclasses_known_and_unknown() -> None:
    tables = [
        classes(("Q2", "glacial lake", "lake made by a glacier", ["Q1", "Q99"])),
        classes(("Q1", "lake", None, []), ("Q2", "another label", None, [])),
    ]
    facts = FactBook(clean_table([]), tables)
    url = "https://www.wikidata.org/wiki/"
    above = [("lake", f"{url}Q1"), ("Q99", f"{url}Q99")]
    description = "lake made by a glacier"
    assert facts.facts("Q2") == {"description": description, "url": f"{url}Q2", "superclasses": above}
    assert facts.facts("Q1") == {"description": "", "url": f"{url}Q1", "superclasses": []}


def test_label_without_an_item_has_no_links() -> None:
    identity = label_id("lookout", None)
    facts = FactBook(clean_table([])).facts(identity)
    assert facts == {"description": "", "url": "", "superclasses": []}


def test_all_landmarks_of_a_label_by_name() -> None:
    rows = [
        {"split": split, "landmark_id": number, "category": category, "supercategory": text, "class_item": item}
        for split, number, category, text, item in [
            ("train", 1, f"{COMMONS}Zig_Zag_Lake", "lake", "Q1"),
            ("index", 2, f"{COMMONS}aqua", "Lake", "Q1"),
            ("train", 3, "no address", "lake", "Q1"),
            ("train", 4, f"{COMMONS}Pond", "pond", None),
        ]
    ]
    facts = FactBook(pa.Table.from_pylist(rows, CLEAN.schema))
    assert [name for name, _ in facts.landmarks("Q1")] == ["Aqua", "landmark 3", "Zig Zag Lake"]
    assert facts.landmarks("Q1")[1][1] == ""
    assert facts.landmarks(label_id("pond", None)) == [("Pond", f"{COMMONS}Pond")]
    assert facts.landmarks("Q404") == []
