"""``hgld audit report``: all audits of a data set in one folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hgld.cli.audit import (
    AuditedImages,
    audit,
    format_duplicates,
    format_label_errors,
    write_duplicates,
    write_label_errors,
    write_queue,
)
from hgld.cli.audit_decisions import format_annotators, format_tree, write_annotators, write_tree
from hgld.cli.base import option, out_folder, relative_to
from hgld.progress import TerminalProgress


@audit.command()
def report(
    *,
    manifest: Annotated[Path, typer.Argument(help="Manifest of the images.")],
    out: Annotated[Path, out_folder("Folder to write.")],
    root: Annotated[Path | None, relative_to("MANIFEST")] = None,
    embeddings: Annotated[
        Path | None,
        option("Embeddings of the images, of a model that has not learnt these labels.", default="only copies"),
    ] = None,
    hierarchy: Annotated[
        Path | None,
        option("Hierarchy of the manifest; the tables and reviews beside it are audited, too.", default="none"),
    ] = None,
) -> None:
    """Run every audit that the inputs allow; write tables, pages, a figure and a summary, audit.md, to a folder.

    With embeddings, it looks for wrong labels as well as copies. With a hierarchy, it writes a queue of what to
    decide on again, and audits the superclasses (the clean table and *.classes.parquet beside it) and the annotators
    (review/*.sqlite).

    hgld release --audit takes the summary into the datasheet.

    Example: hgld audit report manifest.parquet --embeddings embeddings.npy -o audit/
    """
    from hgld.audit import DuplicatesConfig, LabelErrorsConfig, find_duplicates, find_label_errors
    from hgld.audit.pages import draw_margins
    from hgld.io.files import atomic_write

    images = AuditedImages.read(manifest, root, embeddings)
    copies, config = DuplicatesConfig(), LabelErrorsConfig()
    out.mkdir(parents=True, exist_ok=True)
    with TerminalProgress("audit", "images") as progress:
        duplicates = find_duplicates(images.manifest, images.root, images.vectors, copies, progress=progress)
    sections = {"Copies": format_duplicates(duplicates)}
    write_duplicates(images, duplicates, copies, out / "copies.csv", out / "copies.html")
    if embeddings is not None:
        errors = find_label_errors(images.manifest, images.vectors, config)
        sections["Labels"] = format_label_errors(errors, images.manifest.level_names)
        write_label_errors(images, errors, config, out / "labels.csv", out / "labels.html")
        draw_margins(out / "labels.png", errors, images.manifest.level_names)
        typer.echo(out / "labels.png")
        if hierarchy is not None:
            sections["Labels"] += "\n" + write_queue(images, errors, config, hierarchy, out / "queue")
            typer.echo(out / "queue")
    if hierarchy is not None:
        sections |= _audit_sources(hierarchy, out)
    texts = [f"## {heading}\n\n```text\n{text}\n```" for heading, text in sections.items()]
    with atomic_write(out / "audit.md") as draft:
        draft.write_text("\n\n".join([f"# Audit of {manifest.name}", *texts]) + "\n", encoding="utf-8")
    typer.echo("\n".join([*sections.values(), str(out / "audit.md")]))


def _audit_sources(hierarchy: Path, out: Path) -> dict[str, str]:
    """Audit the superclasses and the annotators behind a hierarchy, as far as these are beside it."""
    from hgld.audit import audit_annotators, audit_tree
    from hgld.hierarchy.build_inputs import find_annotations, find_input_tables
    from hgld.review.agreement import AgreementConfig
    from hgld.tables import find_classes_tables

    sections, taxonomy = {}, find_annotations(hierarchy).get("taxonomy")
    clean, classes = find_input_tables(hierarchy).clean, find_classes_tables(hierarchy)
    if clean is not None and classes:
        tree = audit_tree(clean, classes, taxonomy)
        sections["Superclasses"] = format_tree(tree)
        write_tree(tree, clean, classes, taxonomy, out / "tree.csv")
    stores = sorted((hierarchy.parent / "review").glob("*.sqlite"))
    if len(stores) > 1:
        config = AgreementConfig()
        annotators = audit_annotators(stores, config, taxonomy=taxonomy)
        sections["Annotators"] = format_annotators(annotators)
        write_annotators(annotators, stores, config, None, taxonomy, out / "disputed.csv")
    return sections
