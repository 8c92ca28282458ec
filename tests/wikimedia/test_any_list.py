"""Lists of any entities: ids, splits, property, parents and languages; and GLDv2's category lists."""

import csv
import logging
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv as pa_csv
import pyarrow.parquet as pq
import pytest

from hgld.cli.scrape import format_scrape
from hgld.errors import ConfigurationError, InputError
from hgld.tables import classes_path, read_provenance
from hgld.wikimedia.scrape_files import read_categories, read_list
from hgld.wikimedia.scraper import journal_path, scrape_file, with_entity_column
from hgld.wikimedia.settings import ScrapeConfig
from hgld.wikimedia.status_check import UnlikelyStatusError
from tests.commands import run_hgld
from tests.scrapes import client_config, interrupt_scrape, run_scrape

Replica = Callable[..., Any]
ITEMS: dict[str, Any] = {"id": "id", "item": "item"}
#: Paintings with genres, which have superclasses; a portrait is an image, and an icon is a portrait.
PAINTINGS: dict[str, Any] = {
    "format": "wikimedia-replica-world",
    "version": 1,
    "name": "paintings",
    "properties": [
        {"id": "P136", "labels": {"en": "genre", "de": "Genre"}},
        {"id": "P170", "datatype": "external-id", "labels": {"en": "creator"}},
        {"id": "P180", "labels": {"de": "Motiv"}},
    ],
    "categories": [{"title": f"Painting {n}", "item": f"Q{n}"} for n in range(1, 6)],
    "items": [
        {"id": "Q1", "labels": {"en": "one"}, "claims": {"P31": ["Q90"], "P136": ["Q100"]}},
        {"id": "Q2", "labels": {"en": "two"}, "claims": {"P136": ["Q101", {"value": "Q100", "rank": "preferred"}]}},
        {"id": "Q3", "labels": {"en": "three"}, "claims": {"P136": [{"snak": "novalue"}], "P195": ["Louvre"]}},
        {"id": "Q4", "labels": {"en": "four"}, "claims": {"P31": ["Q90"], "P136": ["Q101", "Q102"]}},
        {"id": "Q5", "redirect": "Q1"},
        {"id": "Q7", "claims": {"P31": ["Q4167836"], "P301": ["Q2"]}},
        {"id": "Q8", "claims": {"P136": ["Q103"]}},
        {"id": "Q90", "labels": {"en": "painting"}},
        {"id": "Q100", "labels": {"en": "portrait", "de": "Porträt"}, "claims": {"P279": ["Q200"]}},
        {"id": "Q101", "labels": {"mul": "icon", "fr": "icône"}, "claims": {"P279": ["Q100"]}},
        {"id": "Q102", "labels": {"mul": "Ikone"}, "claims": {"P279": ["Q200"]}},
        {"id": "Q103", "labels": {"ja": "美人画"}},
        {"id": "Q200", "labels": {"en": "image", "fr": "image"}},
    ],
}
ROWS = [("p1", "Q1"), ("p2", "http://www.wikidata.org/entity/Q2"), ("p3", "Q3"), ("p4", "Q4"), ("p5", "Q5")]
ROWS += [("p6", "Q6"), ("p7", "https://www.wikidata.org/wiki/Q7"), ("p8", "")]


@pytest.fixture
def paintings(replica: Replica) -> Callable[..., Any]:
    """``paintings(error_rate=0.1)``: a server of the paintings."""
    from wikimedia_replica import ReplicaServer  # type: ignore[import-not-found, unused-ignore]
    from wikimedia_replica.world import FileWorld  # type: ignore[import-not-found, unused-ignore]

    return lambda **faults: ReplicaServer(FileWorld(PAINTINGS), **faults)


@pytest.fixture(scope="module")
def birds(shared: Path) -> Path:
    return shared / "other_domains" / "birds"


def write_list(path: Path, header: Sequence[str], rows: Iterable[Sequence[object]]) -> Path:
    with path.open("w", encoding="utf-8", newline="") as stream:
        csv.writer(stream).writerows([header, *rows])
    return path


def config_of(server: Any, **settings: Any) -> ScrapeConfig:
    split = {} if "split_column" in settings else {"split": "museum"}
    return ScrapeConfig(**{"id": "id", "client": client_config(server), **split, **settings})


def rows_of(path: Path) -> dict[Any, dict[str, Any]]:
    return {row["id"]: row for row in pq.read_table(path).to_pylist()}


def contents_of(path: Path) -> list[pa.Table]:
    """Return both tables of a scrape, without times."""
    table = pq.read_table(path)
    return [table.drop_columns(["fetched_at"]), pq.read_table(classes_path(path))]


def labels_of(row: dict[str, Any]) -> list[str]:
    return [value["label"] for value in row["values"]]


# -- Lists -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ids", "read"),
    [
        (["7", "-3", "0", str(2**63 - 1)], [7, -3, 0, 2**63 - 1]),
        (["7", "007"], ["7", "007"]),
        (["1", str(2**63)], ["1", str(2**63)]),
        (["1.0", "ab c/ü"], ["1.0", "ab c/ü"]),
    ],
)
def test_ids_are_whole_numbers_or_texts_as_they_are(tmp_path: Path, ids: list[str], read: list[Any]) -> None:
    path = write_list(tmp_path / "list.csv", ["id", "item"], [(name, "Q1") for name in ids])
    assert [row.landmark_id for row in read_list(path, **ITEMS)] == read


@pytest.mark.parametrize("suffix", [".csv", ".parquet"])
def test_table_may_be_csv_or_parquet_and_repeats_count_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, suffix: str
) -> None:
    table = pa.table(
        {
            "page": ["Category:a b", "http://commons.wikimedia.org/wiki/Category:C", None, "Category:A_b"],
            "number": [5, 6, 7, 5],
            "part": ["x", "y", "x", "x"],
        }
    )
    path = tmp_path / f"list{suffix}"
    (pa_csv.write_csv if suffix == ".csv" else pq.write_table)(table, path)
    with caplog.at_level(logging.WARNING):
        rows = read_list(path, "number", category="page", split="part")
    assert [(row.split, row.landmark_id, row.title) for row in rows] == [
        ("x", 5, "Category:A b"),
        ("y", 6, "Category:C"),
        ("x", 7, ""),
    ]
    assert "1 rows repeat" in caplog.text


@pytest.mark.parametrize(
    ("text", "columns", "message"),
    [
        ("id,item\n1,Q1\n\n2,P31\n", ITEMS, 'line 4: "P31" is no item; expected one such as Q42'),
        ("id,item\n1,Q2147483648\n", ITEMS, "line 2: .* is no item"),
        ("id,item\n1,https://www.wikidata.org/wiki/Property:P31\n", ITEMS, "line 2: .* is no item"),
        ("id,item\n1,Q1\n1,Q2\n", ITEMS, 'line 3: the id "1" has the item Q2, but line 2 says Q1'),
        ("id,item\n1,Q1\n1,\n", ITEMS, r'line 3: the id "1" has the item \(none\), but line 2 says Q1'),
        ("id,item\n,Q1\n", ITEMS, "line 2: the id is empty"),
        ("id,item,s\n1,Q1,\n", ITEMS | {"split": "s"}, "line 2: the s is empty"),
        ("id,item\n1,Q1,Q2\n", ITEMS, "line 2: 3 values, expected 2"),
        ("id,thing\n1,Q1\n", ITEMS, "no column item; found id,thing"),
        ("id,page\n1,Lake\n", {"id": "id", "category": "page"}, 'line 2: "Lake" is not a URL of Wikimedia Commons'),
        ("id,item\n", ITEMS, "no rows"),
    ],
)
def test_invalid_rows_are_reported_by_line(tmp_path: Path, text: str, columns: dict[str, Any], message: str) -> None:
    path = tmp_path / "list.csv"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=message) as caught:
        read_list(path, **columns)
    assert str(path) in str(caught.value)


def test_ids_and_splits_are_composed(tmp_path: Path) -> None:
    path = write_list(tmp_path / "list.csv", ["id", "item", "part"], [["cha\u0302teau", "Q1", "e\u0301t\u00e9"]])
    (row,) = read_list(path, **ITEMS, split="part")
    assert (row.landmark_id, row.split) == ("ch\u00e2teau", "\u00e9t\u00e9")


def test_invalid_rows_of_parquet_are_numbered(tmp_path: Path) -> None:
    path = tmp_path / "list.parquet"
    pq.write_table(pa.table({"id": ["a", "a", "b"], "item": ["Q1", "Q2", "q3"]}), path)
    with pytest.raises(InputError, match=r'(?s)2 bad rows.*row 2: .*but row 1 says Q1.*row 3: "q3" is no item'):
        read_list(path, **ITEMS)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({}, "`split` is missing; expected train or index .*other lists need `id`"),
        ({"split": "west"}, '`split` is "west"; expected train or index'),
        ({"split": "train", "source": "sparql"}, '`source` is "sparql"; expected api or html'),
        ({"split": "train", "workers": 4}, "`workers` is 4; expected 1 to 3"),
        ({"split": "train", "class_depth": -1}, "`class_depth` is -1; expected 0 or more"),
        ({"split": "train", "item": "item"}, "`item` needs `id`"),
        ({"split": "train", "property_id": "P136"}, "`property_id` needs `id`"),
        ({"id": "id"}, "`split_column`"),
        ({"id": "id", "split": "a", "split_column": "b"}, "`split_column`"),
        ({"id": "id", "split": "a", "item": "b", "category": "c"}, "or on Commons in `category`"),
        ({"id": "id", "split": "a", "property_id": "instance of"}, "expected a property such as P31"),
        ({"id": "id", "split": "a", "parents": "Q5"}, "expected a property such as P31"),
        ({"id": "id", "split": "a", "languages": "en;de"}, "expected codes such as en,de"),
        ({"id": "id", "split": "a", "source": "html", "item": "b"}, "use api for `item`"),
        ({"id": "id", "split": "a", "source": "html", "languages": "de"}, "use api for .* `languages`"),
    ],
)
def test_settings_that_do_not_go_together(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        ScrapeConfig(**settings)


def test_list_without_a_column_of_items_or_categories(tmp_path: Path) -> None:
    path = write_list(tmp_path / "list.csv", ["id", "title"], [(1, "Q1")])
    with pytest.raises(InputError, match="no column item and no column category; found id, title"):
        with_entity_column(ScrapeConfig("a", id="id"), path)


# -- Paintings ---------------------------------------------------------------------------------------------------


def test_items_have_the_values_of_any_property(paintings: Callable[..., Any], tmp_path: Path, out: Path) -> None:
    path = write_list(tmp_path / "list.csv", ["id", "item"], ROWS)
    with paintings() as server:  # the column item is the default
        summary = run_scrape(path, out, config_of(server, property_id="P136"))
    assert summary.statuses == {"ok": 5, "no_value": 1, "item_missing": 1, "no_item": 1}
    rows = rows_of(out)
    assert {name: labels_of(row) for name, row in rows.items()} == {
        "p1": ["portrait"],
        "p2": ["portrait"],
        "p3": [],
        "p4": ["icon", "Ikone"],
        "p5": ["portrait"],
        "p6": [],
        "p7": ["portrait"],
        "p8": [],
    }
    facts = {name: (row["page"], row["title"], row["item"], row["route"]) for name, row in rows.items()}
    address = "https://www.wikidata.org/wiki/"
    assert facts["p2"] == (f"{address}Q2", "Q2", "Q2", "direct")
    assert facts["p5"] == (f"{address}Q5", "Q5", "Q1", "direct")  # a redirect
    assert facts["p6"] == (f"{address}Q6", "Q6", "Q6", None)
    assert facts["p7"] == (f"{address}Q7", "Q7", "Q2", "topic")
    assert facts["p8"] == (None, "", None, None)
    classes = pq.read_table(classes_path(out))
    assert "rank" not in classes.column_names
    assert {row["item"]: row["subclass_of"] for row in classes.to_pylist()} == {
        "Q100": ["Q200"],
        "Q101": ["Q100"],
        "Q102": ["Q200"],
        "Q200": [],
    }


def test_command_of_a_list_of_paintings(paintings: Callable[..., Any], tmp_path: Path) -> None:
    header, rows = ["painting_id", "wikidata_item", "collection"], [(*row, f"m{len(row[1]) % 2}") for row in ROWS]
    path, out = write_list(tmp_path / "list.csv", header, rows), tmp_path / "scraped.parquet"
    with paintings() as server:
        urls = [f"--{name}-url={server.base_url}/{name}" for name in ("commons", "wikidata")]
        columns = ["--id", "painting_id", "--item", "wikidata_item", "--split-column", "collection"]
        asked = ["--property", "P136", "--parents", "P279", "--rate", "0"]
        run = ["scrape", path, *columns, *asked, "-o", out, *urls]
        shown, again = run_hgld(*run), run_hgld(*run)
    assert "8 entities, 4 classes and superclasses" in shown.stdout
    assert "landmark" not in shown.stdout
    assert again.stdout == f"{out}: up to date\n"
    assert Counter(row["split"] for row in rows_of(out).values()) == Counter(row[2] for row in rows)


def test_depth_limits_the_superclasses(paintings: Callable[..., Any], tmp_path: Path, out: Path) -> None:
    path = write_list(tmp_path / "list.csv", ["id", "item"], ROWS[:1])
    with paintings() as server:
        assert run_scrape(path, out, config_of(server, property_id="P136", class_depth=0)).classes == 1
        # A deeper one takes the rows and classes over.
        assert run_scrape(path, out, config_of(server, property_id="P136", class_depth=1)).taken_over == 1
    assert pq.read_table(classes_path(out))["item"].to_pylist() == ["Q100", "Q200"]


@pytest.mark.parametrize(
    ("languages", "labels"),
    [
        ("en", {"Q100": "portrait", "Q101": "icon", "Q200": "image"}),
        ("de", {"Q100": "Porträt", "Q101": "icon", "Q200": "image"}),
        ("en,fr", {"Q100": "portrait", "Q101": "icon", "Q200": "image"}),
        ("fr,de,en", {"Q100": "Porträt", "Q101": "icône", "Q200": "image"}),
        ("en,mul,fr", {"Q100": "portrait", "Q101": "icon", "Q200": "image"}),
    ],
)
def test_first_language_with_a_label_counts(
    paintings: Callable[..., Any], tmp_path: Path, out: Path, languages: str, labels: dict[str, str]
) -> None:
    path = write_list(tmp_path / "list.csv", ["id", "item"], ROWS[3:4])
    with paintings() as server:
        run_scrape(path, out, config_of(server, property_id="P136", languages=languages))
    found = {row["item"]: row["label"] for row in pq.read_table(classes_path(out)).to_pylist()}
    assert {item: found[item] for item in labels} == labels


def test_values_without_a_label_are_named(paintings: Callable[..., Any], tmp_path: Path, out: Path) -> None:
    path = write_list(tmp_path / "list.csv", ["id", "item"], [("p1", "Q1"), ("p9", "Q8")])
    with paintings() as server:
        summary = run_scrape(path, out, config_of(server, property_id="P136"))
        further = run_scrape(path, tmp_path / "b.parquet", config_of(server, property_id="P136", languages="en,ja"))
    assert summary.unlabelled == ("Q103",)
    assert (
        "1 value without a label in these languages, which hgld clean leaves out: Q103; name further languages"
        in (format_scrape(summary))
    )
    assert not further.unlabelled


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"property_id": "P170"}, "the values of P170 are not items, but of the type external-id"),
        (
            {"property_id": "P195"},
            "the values of P195 are not items, but of the type string",
        ),  # not listed by the server
        ({"property_id": "P999"}, "P999: there is no such property, and no item has values of it"),
        ({"property_id": "P136", "parents": "P999"}, "P999: there is no such property"),
        ({"property_id": "P136", "parents": "P170"}, "the values of P170 are not items"),
        ({"source": "html", "category": "c", "property_id": "P180"}, "the English label .* P180 has none"),
    ],
)
def test_wrong_property_is_named_and_nothing_is_lost(
    paintings: Callable[..., Any], tmp_path: Path, out: Path, settings: dict[str, Any], message: str
) -> None:
    rows = [(*row, f"Category:Painting {n}") for n, row in enumerate(ROWS, 1)]
    path = write_list(tmp_path / "list.csv", ["id", "item", "c"], rows)
    with paintings() as server:
        right = config_of(server, property_id="P136")
        interrupt_scrape(1, path, out, right)
        with pytest.raises((InputError, ConfigurationError)):
            scrape_file(path, out, config_of(server, **settings))
        assert run_scrape(path, out, right).statuses["ok"] == 5
        before = out.read_bytes()
        other = tmp_path / "other.parquet"
        with pytest.raises(ConfigurationError, match=message) as caught:
            scrape_file(path, other, config_of(server, **settings))
    assert "\n" not in str(caught.value)
    assert not other.exists()
    assert not journal_path(other).exists()
    assert out.read_bytes() == before


def test_pages_show_the_values_of_any_property(paintings: Callable[..., Any], tmp_path: Path) -> None:
    rows = [(n, f"Category:Painting {n}") for n in range(1, 5)]
    path = write_list(tmp_path / "list.csv", ["id", "category"], rows)
    found = {}
    with paintings() as server:
        for source in ("api", "html"):
            out = tmp_path / f"{source}.parquet"
            run_scrape(path, out, config_of(server, source=source, property_id="P136"))
            found[source] = {name: (row["status"], labels_of(row)) for name, row in rows_of(out).items()}
    assert found["html"] == found["api"]
    assert found["html"][3] == ("no_value", [])


# -- Birds -------------------------------------------------------------------------------------------------------

TAXA = {"property_id": "P171", "parents": "P171"}


def test_birds_by_item_and_by_category_are_the_same(replica: Replica, birds: Path, tmp_path: Path) -> None:
    expected = pa_csv.read_csv(birds / "expected.csv").to_pylist()
    parts = {row["id"]: row["part"] for row in expected}
    with replica("birds.json.gz") as server:
        run_scrape(birds / "list.csv", tmp_path / "items.parquet", config_of(server, split_column="part", **TAXA))
        run_scrape(birds / "categories.csv", tmp_path / "pages.parquet", config_of(server, **TAXA))
        html = config_of(server, source="html", category="category", property_id="P171")
        run_scrape(birds / "categories.csv", tmp_path / "html.parquet", html)
    tables = {name: rows_of(tmp_path / f"{name}.parquet") for name in ("items", "pages", "html")}
    assert {name: row["split"] for name, row in tables["items"].items()} == parts
    for row in expected:
        genus = [] if row["status"] in ("item_missing", "no_value") else [row["genus"]]
        status = "ok" if genus else row["status"]
        for name in ("items", "pages"):
            assert (tables[name][row["id"]]["status"], labels_of(tables[name][row["id"]])) == (status, genus), row
        assert labels_of(tables["html"][row["id"]]) == genus, row
        assert tables["items"][row["id"]]["item"] == tables["pages"][row["id"]]["item"]
    ranks = pq.read_table(classes_path(tmp_path / "items.parquet"))["rank"].to_pylist()
    assert Counter(ranks).keys() == {"genus", "subfamily", "family", "order", "class"}


def test_interrupted_scrape_of_items_resumes(replica: Replica, birds: Path, tmp_path: Path) -> None:
    path = birds / "list.csv"
    out, whole = tmp_path / "out.parquet", tmp_path / "whole.parquet"
    with replica("birds.json.gz", error_rate=0.1, retry_after=0, max_entities=30) as server:
        config = config_of(server, split_column="part", workers=3, **TAXA)
        for batches in (0, 2, 5):
            interrupt_scrape(batches, path, out, config)
        resumed = run_scrape(path, out, config)
        run_scrape(path, whole, config)
    assert not resumed.errors
    assert contents_of(out) == contents_of(whole)


def test_implausible_values_stop_the_scrape(replica: Replica, birds: Path, tmp_path: Path, out: Path) -> None:
    with replica("birds.json.gz") as server:
        config = config_of(server, split_column="part", property_id="P105", class_depth=0)
        run_scrape(birds / "list.csv", out, config)  # taxon ranks: all have one
        wrong = replace(config, property_id="P279")
        with pytest.raises(UnlikelyStatusError, match="entities ended as no_value .*`allow_frequent` no_value"):
            scrape_file(birds / "list.csv", tmp_path / "wrong.parquet", wrong)
        allowed = replace(config, property_id="P279", allow_frequent=("no_value",))
        summary = run_scrape(birds / "list.csv", tmp_path / "wrong.parquet", allowed, force=True)
    assert summary.statuses == {"no_value": 325, "item_missing": 3}


def test_requests_per_item_are_few(replica: Replica, tmp_path: Path, out: Path) -> None:
    n_items = 5_000
    path = write_list(tmp_path / "list.csv", ["id", "item"], [(n, f"Q{10**9 + n}") for n in range(1, n_items + 1)])
    with replica(f"stress:landmarks={n_items},seed=0,classes=100") as server:
        config = config_of(server, allow_frequent=("item_missing",))
        summary = run_scrape(path, out, config)
    # A list of 300,000 items has fifty per request as well, and needs most classes no more often.
    assert summary.requests <= 0.03 * n_items


def test_lists_of_gldv2_keep_their_parameters(server: Any, washington: Path, out: Path) -> None:
    client = client_config(server)
    scrape_file(washington, out, ScrapeConfig("train", client=client))
    urls = {"commons_url": client.commons_url, "wikidata_url": client.wikidata_url}
    parameters = {"split": "train", "class_depth": 10, "source": "api", **urls}
    assert read_provenance(out).parameters == parameters


HEADER = "landmark_id,category\n"
URL = "http://commons.wikimedia.org/wiki/Category:"


def write(tmp_path: Path, text: str | bytes) -> Path:
    path = tmp_path / "train_label_to_category.csv"
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path


def test_read_gldv2_layout_in_order(tmp_path: Path) -> None:
    path = write(tmp_path, f'{HEADER}7,{URL}Comet_Falls\n3,"{URL}St._Edge\'s_(Ledge,_Kent)"\n')
    landmarks = read_categories(path)
    assert [(x.landmark_id, x.title) for x in landmarks] == [
        (7, "Category:Comet Falls"),
        (3, "Category:St. Edge's (Ledge, Kent)"),
    ]
    assert landmarks[0].category == f"{URL}Comet_Falls"


def test_columns_are_found_by_name(tmp_path: Path) -> None:
    path = write(tmp_path, f"category,extra,landmark_id\r\n{URL}A,x,1\r\n\r\n")
    assert [x.landmark_id for x in read_categories(path)] == [1]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "empty"),
        (HEADER, "no rows below the header"),
        ("landmark_id,url\n1,x\n", r"line 1: no column category; found landmark_id,url"),
        (f"{HEADER}a,{URL}A\n", r'line 2: the landmark_id is "a"; expected a whole number'),
        (f"{HEADER}1_000,{URL}A\n", "line 2: the landmark_id"),
        (f"{HEADER}1.0,{URL}A\n", "line 2: the landmark_id"),
        (f"{HEADER}-1,{URL}A\n", "line 2: the landmark_id"),
        (f"{HEADER}١,{URL}A\n", "line 2: the landmark_id"),
        (f"{HEADER}1,{URL}A\n2,https://example.org/x\n", "line 3: .*not a URL of Wikimedia Commons"),
        (
            f"{HEADER}1,{URL}A\n2,{URL}B\n1,{URL}C\n",
            'line 4: the landmark_id "1" has the category .*:C, but line 2 says .*:A',
        ),
        (f"{HEADER}1,{URL}A_B\n1,{URL}A%20B\n", "line 3: .*A%20B, but line 2 says .*A_B"),
        (f"{HEADER}1,\n", "line 2: .*not a URL of Wikimedia Commons"),
        (f"{HEADER}1,Category:A\n", "line 2: .*not a URL of Wikimedia Commons"),
        (f"{HEADER}1,{URL}A,B\n", "line 2: 3 values, expected 2"),
        (f"{HEADER}1\n", "line 2: 1 values, expected 2"),
        (f'{HEADER}1,"{URL}A\n', "cannot be read as CSV"),
        (f"{HEADER}1,{URL}Caf".encode() + b"\xe9\n", "line 2: not UTF-8 .byte 0xe9."),
        ((HEADER + f"1,{URL}A\n").encode("utf-16"), "line 1: not UTF-8"),
    ],
)
def test_invalid_input_is_reported_by_line(tmp_path: Path, content: str | bytes, message: str) -> None:
    path = write(tmp_path, content)
    with pytest.raises(InputError, match=message) as caught:
        read_categories(path)
    assert str(path) in str(caught.value)


def test_missing_file(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        read_categories(tmp_path / "absent.csv")


def test_all_invalid_rows_are_reported_together(tmp_path: Path) -> None:
    path = write(tmp_path, HEADER + "".join(f"x{n},{URL}A\n" for n in range(30)))
    with pytest.raises(InputError, match="30 bad rows") as caught:
        read_categories(path)
    assert "line 2:" in str(caught.value)
    assert "line 21:" in str(caught.value)
    assert "and 10 more" in str(caught.value)


def test_byte_order_mark_and_repeated_rows_are_logged(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = write(tmp_path, f"\ufeff{HEADER}1,{URL}A\n1,{URL}A\n")
    with caplog.at_level(logging.WARNING):
        assert len(read_categories(path)) == 1
    assert "line 1 begins with a byte order mark" in caplog.text
    assert "1 rows repeat" in caplog.text


def test_real_file(shared: Path) -> None:
    landmarks = read_categories(shared / "wa_gldv2" / "train_label_to_category.csv")
    assert len(landmarks) == 844
    assert landmarks[0].title == "Category:Lime Kiln Point State Park"
