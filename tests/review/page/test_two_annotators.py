"""Two annotators change groups and clusters, a third person adjudicates, and everything arrives in the hierarchy."""

import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from hgld.hierarchy import load_hierarchy
from hgld.io.settings import to_yaml
from hgld.resources import annotation_file
from hgld.review.labels import find_inputs, review_labels
from hgld.review.session import LabelAction, ReviewSession
from hgld.review.store import open_store
from hgld.taxonomy.decisions import read_decisions, read_named_decisions
from hgld.taxonomy.groups import read_taxonomy
from tests.commands import run_hgld
from tests.release.conftest import CROISSANT_WARNINGS, FACTS
from tests.review.conftest import Label
from tests.review.page.page_server import Server
from tests.review.sessions import decide

LABELS = [
    Label("Q1", "lake", 0, train=9, group="lake"),
    Label("Q2", "fire lookout station", 1, train=4),
    Label("Q3", "lookout tower", 1, train=3),
    Label("Q4", "state park", 1, train=5, group="parks"),
    Label("Q5", "national park", 2, train=2, group="parks"),
    Label("Q6", "road", 2, train=1),
]

pytestmark = CROISSANT_WARNINGS


def run(*arguments: str | Path) -> str:
    return run_hgld(*arguments).output


@pytest.fixture
def project(tables: Callable[..., Path], tmp_path: Path) -> Path:
    """Decisions of ada and ben with their taxonomies."""
    clusters = tables(LABELS)
    inputs = find_inputs(clusters)
    labels, groups = review_labels(*inputs.read_tables()), read_taxonomy(inputs.taxonomy)
    (tmp_path / "review").mkdir()

    with open_store(tmp_path / "review/ada.sqlite", "ada") as store:
        ada = ReviewSession(labels, groups, store)
        ada.move({"Q2": 0, "Q3": 0}, None, "lookouts")
        ada.merge(2, 1)
        ada.rename_group("parks", "green parks", 0)
        ada.propose_group("fire lookout", "human-made", "Towers and huts to watch for fires from.")
        decide(ada, LabelAction("group", "lake"), "Q1")
        decide(ada, LabelAction("group", "fire lookout"), "Q2", "Q3")
        decide(ada, LabelAction("group", "parks"), "Q4", "Q5")
        decide(ada, LabelAction("drop"), "Q6")
    with open_store(tmp_path / "review/ben.sqlite", "ben") as store:
        ben = ReviewSession(labels, groups, store)
        ben.propose_group("Fire Lookout", "human-made", "Where fires are watched for.")
        ben.propose_group("lookout tower", "human-made", "Towers to see far from.")
        decide(ben, LabelAction("accept"), "Q1", "Q4", "Q5")
        decide(ben, LabelAction("group", "fire lookout"), "Q2")
        decide(ben, LabelAction("group", "lookout tower"), "Q3")
        decide(ben, LabelAction("drop"), "Q6")
        ben.rename_group("fire lookout", "fire lookout", ben.state.field("group", "fire lookout").version)
        ben.rename_group("parks", "parkland", 0)

    output = run("decisions", tmp_path / "review/ada.sqlite", "-o", tmp_path / "decisions/ada.csv")
    assert f"groups were proposed or renamed: see {tmp_path / 'decisions/ada.taxonomy.csv'}" in output
    run("decisions", tmp_path / "review/ben.sqlite", "-o", tmp_path / "decisions/ben.csv")
    return tmp_path


def final_decisions(project: Path) -> dict[str, tuple[str | None, str]]:
    groups = read_taxonomy(project / "decisions/final.taxonomy.csv")
    rows = read_named_decisions(project / "decisions/final.csv", groups)
    return {row.label_id: (row.group, row.annotator) for row in rows}


def test_names_do_not_count_as_disagreement(project: Path) -> None:
    output = run("agreement", project / "decisions/ada.csv", project / "decisions/ben.csv", "-o", project / "a.json")
    assert "1 disagreement, by label:\n  lookout tower (Q3)  ada: fire lookout, ben: lookout tower" in output
    assert 'groups to settle:\n  parks: "green parks" by ada, "parkland" by ben' in output
    assert '"key": "parks"' in (project / "a.json").read_text()


def test_a_rule_settles_names_and_decisions(project: Path) -> None:
    files = (project / "decisions/ada.csv", project / "decisions/ben.csv", "-o", project / "decisions/final.csv")
    output = run("adjudicate", *files, "--rule", "agree-only")
    assert output.startswith("5 labels agreed, 0 settled, 1 open\n")
    assert 'groups to settle:\n  parks: "green parks" by ada, "parkland" by ben\n' in output
    assert "lookout tower (Q3)  ada: fire lookout, ben: lookout tower" in output
    assert final_decisions(project)["Q4"] == ("parks", "ada+ben")

    output = run("adjudicate", *files, "--rule", "prefer:ben")
    assert "6 labels agreed" not in output
    assert "groups to settle" not in output
    assert final_decisions(project)["Q4"] == ("parkland", "ada+ben")
    assert final_decisions(project)["Q3"] == ("lookout tower", "ben")
    assert run("adjudicate", *files, "--rule", "prefer:ben") == f"{project / 'decisions/final.csv'}: up to date\n"


@pytest.mark.slow
def test_from_clusters_to_hierarchy(project: Path) -> None:
    final = project / "decisions/final.csv"
    files = [str(project / "decisions/ada.csv"), str(project / "decisions/ben.csv"), "-o", str(final)]
    options = ["--clusters", str(project / "clusters.parquet"), "--annotator", "cleo"]

    def adjudicate(*posts: tuple[str, dict[str, str]]) -> None:
        server = Server(["adjudicate", *files, *options])
        for path, fields in posts:
            server.post(path, **fields)
        server.stop(signal.SIGINT)
        assert server.process.returncode == 0

    adjudicate(("merge-group", {"group": "0:lookout tower", "into": "fire lookout"}))
    assert final_decisions(project)["Q3"] == ("fire lookout", "ada+ben"), "the two proposals mean the same"
    run("adjudicate", *files, "--rule", "agree-only")
    assert final_decisions(project)["Q3"] == ("fire lookout", "ada+ben"), "a rule keeps what was merged on the page"
    # No label is open any more, but a name: the page shows the labels of this group.
    adjudicate(("rename-group", {"group": "0:parks", "name": "parks and forests"}))
    assert final_decisions(project) == {
        "Q1": ("lake", "ada+ben"),
        "Q2": ("fire lookout", "ada+ben"),
        "Q3": ("fire lookout", "ada+ben"),
        "Q4": ("parks and forests", "ada+ben"),
        "Q5": ("parks and forests", "ada+ben"),
        "Q6": (None, "ada+ben"),
    }
    assert {row.label_id: row.group for row in read_decisions(final, None)}["Q4"] == "parks"
    assert "agree on every label" in run_hgld("adjudicate", *files, *options, code=1).stderr

    build = ("build", project / "clean.parquet", "-o", project / "hierarchy.parquet", "--decisions", final)
    run(*build)
    hierarchy = load_hierarchy(project / "hierarchy.parquet")
    assert hierarchy.counts("hierarchical_label") == {"lake": 9, "fire lookout": 7, "parks and forests": 7}
    (project / "release.yaml").write_text(to_yaml(FACTS), encoding="utf-8")
    run("release", project / "hierarchy.parquet", "-o", project / "release", "--decisions", final)
    released = read_taxonomy(project / "release/taxonomy.csv")
    read_named_decisions(project / "release/decisions.csv", released)
    assert len(released) == len(read_taxonomy(annotation_file("taxonomy.csv"))) + 1
