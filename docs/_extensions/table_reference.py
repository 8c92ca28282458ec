"""Every table that hgld writes, from its schema."""

from __future__ import annotations

import pyarrow as pa
from markdown_text import code, from_docstring, table

from hgld.tables import TABLES, TableSpec
from hgld.tables.schemas import NEUTRAL_COLUMNS, meaning_of, values_of


def table_pages() -> dict[str, str]:
    """Return the page of all tables."""
    parts = [
        "# Tables",
        "Parquet, readable by pandas, Polars, DuckDB or Arrow. A table is complete and valid or absent; its metadata "
        "name the command, the version, the parameters and the inputs (by SHA-256) that made it. Each column carries "
        "its meaning, and the meanings of its values, in its metadata. Other files are described in "
        "[Files](../files.md).",
        *map(_section, TABLES.values()),
        "## Tables of other lists",
        "In tables of species, paintings or other things than landmarks, these columns are in the place of those "
        "above. Splits may have any names, and each level is a column under its own name, finest first.",
        table(
            ["column", "in place of", "meaning"],
            [
                [code(field.name), code(name), from_docstring(meaning_of(field))]
                for name, field in NEUTRAL_COLUMNS.items()
                if field is not None and field.name != name
            ],
        ),
    ]
    return {"tables.md": "\n\n".join(parts) + "\n"}


def _section(spec: TableSpec) -> str:
    optional = {field.name for field in spec.optional}
    rows = [
        [
            code(field.name),
            code(_type_name(field.type)),
            from_docstring(meaning_of(field)),
            ", ".join(["optional"] * (field.name in optional) + ["may be null"] * field.nullable),
        ]
        for field in (*spec.schema, *spec.optional)
    ]
    return "\n\n".join(
        [
            f"## {spec.name}",
            from_docstring(spec.about),
            f"Key: {', '.join(map(code, spec.key))}.",
            table(["column", "type", "meaning", ""], rows),
            *(_values(field) for field in (*spec.schema, *spec.optional) if values_of(field)),
        ]
    )


def _values(column: pa.Field) -> str:
    """Return the table of the values of a column that may have no others."""
    rows = [[code(value), from_docstring(meaning)] for value, meaning in values_of(column).items()]
    return table([code(column.name), "meaning"], rows)


def _type_name(kind: pa.DataType) -> str:
    if pa.types.is_list(kind) or pa.types.is_fixed_size_list(kind):
        return f"list of {_type_name(kind.value_type)}"
    if pa.types.is_struct(kind):
        return "struct of " + ", ".join(field.name for field in kind)
    return str(kind)
