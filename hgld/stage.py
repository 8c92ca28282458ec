"""Stages: steps that read files and write tables.

A stage declares its name, its inputs and its tables, and computes the tables. What all stages have in common is here:
inputs must exist and are never overwritten, work that is already done is skipped, one run at a time writes an output,
and every table is written atomically with its provenance.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from hgld.errors import ConfigurationError, InputError
from hgld.io.locks import exclusive_lock
from hgld.tables import (
    Provenance,
    Rows,
    TableSpec,
    input_digests,
    is_neutral,
    is_up_to_date,
    write_table,
)
from hgld.tables.parquet import require_own_table

#: What a stage says of its work.
Summary = TypeVar("Summary")
#: The file of an input, several files, or None for an input that is not used.
Files = Path | Sequence[Path] | None


@dataclass(frozen=True)
class Stage:
    """A step that reads files and writes tables.

    Args:
        name: Command, as recorded in the provenance of the tables.
        outputs: Tables that the stage writes, in this order.
        inputs: Tables that it reads, by the name of the input; other files need no entry.
    """

    name: str
    outputs: tuple[TableSpec, ...]
    inputs: Mapping[str, TableSpec] = field(default_factory=dict)

    def run(
        self,
        outputs: Mapping[str, Path],
        compute: Callable[[], tuple[Sequence[Rows], Summary]],
        *,
        inputs: Mapping[str, Files] | None = None,
        digests: Mapping[str, str] | None = None,
        parameters: Mapping[str, Any] | None = None,
        further_files: Sequence[Path] = (),
        before: Provenance | None = None,
        force: bool = False,
    ) -> Summary | None:
        """Write the tables, unless they are up to date.

        Args:
            outputs: File of each table of the stage, by the name of the parameter that names the file.
            compute: Returns the tables and a summary; called only if there is work to do.
            inputs: Files that the tables are made from, by the name of the input.
            digests: SHA-256 of inputs that are not plain files, by the name of the input.
            parameters: Settings that can change the tables; JSON values only.
            further_files: Files that ``compute`` writes beside the tables, which are out of date if one is missing.
            before: Provenance of the table to which the stage only adds columns.
            force: Write the tables even if they are up to date.

        Returns:
            The summary of ``compute``, or None if the tables were made from the same inputs and parameters.

        Raises:
            InputError: An input does not exist, or a table does not fit its schema.
            ConfigurationError: An output is also an input, or another output; or it exists and hgld did not write it.
            BusyError: Another run is writing the last of the outputs.
        """
        inputs = inputs or {}
        self._check_files(outputs, inputs)
        all_digests = {**input_digests(**inputs), **(digests or {})}
        provenance = Provenance(self.name, parameters or {}, all_digests, before=before)
        paths = list(outputs.values())
        is_done = all(is_up_to_date(path, provenance) for path in paths)
        if is_done and not force and all(path.is_file() for path in further_files):
            return None
        with exclusive_lock(paths[-1]):
            tables, summary = compute()
            neutral = False
            for files in inputs.values():
                neutral = neutral or any(is_neutral(file) for file in _as_list(files))
            for path, spec, table in zip(paths, self.outputs, tables, strict=True):
                write_table(path, spec, table, provenance, neutral=neutral)
        return summary

    def _check_files(self, outputs: Mapping[str, Path], inputs: Mapping[str, Files]) -> None:
        """Raise unless all inputs exist, outputs and inputs are different files, and outputs are hgld's own files."""
        input_paths = []
        for name, files in inputs.items():
            for path in _as_list(files):
                if not path.is_file():
                    problem = f"{path}: no such file"
                    if name in self.inputs:
                        problem += f"; {self.inputs[name].command} writes it"
                    raise InputError(problem)
                input_paths.append(path.resolve())
        parameters: dict[Path, str] = {}
        for parameter, path in outputs.items():
            if path.resolve() in input_paths:
                raise ConfigurationError(
                    f"{path}: `{parameter}` is a file to read; name another one"
                )
            earlier_parameter = parameters.setdefault(path.resolve(), parameter)
            if earlier_parameter != parameter:
                raise ConfigurationError(
                    f"{path}: `{earlier_parameter}` and `{parameter}` cannot be the same file"
                )
            require_own_table(path)


def _as_list(files: Files) -> Sequence[Path]:
    if isinstance(files, Path):
        return [files]
    return files or []
