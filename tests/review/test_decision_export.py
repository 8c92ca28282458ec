from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from hgld.review.actions import LabelAction
from hgld.review.decision_export import export_decisions
from hgld.tables import CLUSTERS, read_table
from hgld.taxonomy.decisions import read_decisions
from hgld.taxonomy.groups import read_taxonomy, write_taxonomy
from tests.review.sessions import GROUPS, decide, label, open_session


def test_exported_decisions_taxonomy_and_clusters(tmp_path: Path, tables: Callable[..., Path]) -> None:
    clusters = tables()
    write_taxonomy(tmp_path / "taxonomy.csv", GROUPS)
    with open_session(tmp_path / "a.sqlite", [label(n) for n in (1, 2)]) as session:
        session.rename_group("lake", "still water", 0)
        session.propose_group("quay", "human-made", "Where boats land.")
        decide(session, LabelAction("take"), "Q1")
        session.move({"Q2": 0}, None, "glaciers")
    out = tmp_path / "out" / "a.csv"
    written = export_decisions(
        tmp_path / "a.sqlite",
        out,
        taxonomy=tmp_path / "taxonomy.csv",
        clusters=clusters,
        clusters_out=tmp_path / "out" / "clusters.parquet",
    )
    assert written.taxonomy == tmp_path / "out" / "a.taxonomy.csv"
    groups = read_taxonomy(written.taxonomy)
    assert [group.name for group in groups] == ["church", "still water", "museum", "quay"]
    assert groups[1].items == ("Q23397",)
    (row,) = read_decisions(out, {group.name for group in groups})
    assert (row.label_id, row.group, row.annotator) == ("Q1", "still water", "ada")
    moved = {row["label_id"]: row for row in read_table(tmp_path / "out" / "clusters.parquet", CLUSTERS).to_pylist()}
    assert (moved["Q2"]["cluster"], moved["Q2"]["cluster_name"]) == (2, "glaciers")
    assert moved["Q1"]["cluster"] == 0


def test_decisions_command(tmp_path: Path) -> None:
    from typer.testing import CliRunner

    from hgld.cli import app

    with open_session(tmp_path / "a.sqlite") as session:
        decide(session, LabelAction("drop"), "Q1", "Q2")
    out = tmp_path / "a.csv"
    result = CliRunner().invoke(app, ["decisions", str(tmp_path / "a.sqlite"), "-o", str(out)])
    assert (result.exit_code, result.output) == (0, f"2 labels decided by ada\n{out}\n")
    result = CliRunner().invoke(app, ["decisions", str(tmp_path / "b.sqlite"), "-o", str(out)])
    assert result.exit_code == 1
    assert "no such file" in result.output
