"""A browser for examples: it decides on labels as an annotator does on the review page, then presses Ctrl-C.

`hgld review` and `hgld adjudicate` open their page in the program that the variable BROWSER names, so that examples
run the commands as they are printed:

    export BROWSER="python tests/examples/annotator.py changes.csv %s"
    hgld review clusters.parquet --annotator ben

The annotator decides on undecided labels as the decisions that come with hgld do, and on any label in the CSV files
of changes (label, decision, group, comment) as these say. Labels in neither are left alone.
"""

import csv
import html
import os
import re
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import parse_qs, urlencode, urlsplit
from urllib.request import HTTPCookieProcessor, OpenerDirector, build_opener, urlopen

from hgld.resources import annotation_file
from hgld.taxonomy.decisions import DecisionIndex, read_decisions

_ROW = re.compile(r'name="label" value="([\w.]+):([^"]+)" aria-label="Select ([^"]*)"')


def main(changes: Sequence[Path], redirect_file: str) -> None:
    """Decide on the labels of the page that a file leads to, and stop the command that serves it."""
    home, browser = _open_page(redirect_file)
    shipped = DecisionIndex(read_decisions(annotation_file("decisions/final.csv"), None))
    changed = {row["label"]: row for path in changes for row in _read_changes(path)}
    try:
        for kind in ("undecided", "decided"):
            with browser.open(f"{home}/?filter={kind}") as answer:
                rows = _ROW.findall(answer.read().decode())
            for version, label_id, label in (map(html.unescape, row) for row in rows):
                choice = _shipped_choice(shipped, label_id, label) if kind == "undecided" else None
                if label in changed:
                    choice = _choice(**{name: changed[label][name] for name in ("decision", "group", "comment")})
                if choice is not None:
                    form = {"label": f"{version}:{label_id}", "comment_was": ""} | choice
                    browser.open(f"{home}/decide", urlencode(form).encode()).close()
    finally:
        os.kill(os.getppid(), signal.SIGINT)


def _read_changes(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8", newline="") as stream:
        return list(csv.DictReader(stream))


def _open_page(redirect_file: str) -> tuple[str, OpenerDirector]:
    """Exchange the key in the address; return the address of the page and a browser that it admits."""
    with urlopen(redirect_file) as answer:
        found = re.search(r'href="([^"]+)"', answer.read().decode())
    assert found is not None, redirect_file
    address = urlsplit(html.unescape(found[1]))
    home = f"{address.scheme}://{address.netloc}"
    browser = build_opener(HTTPCookieProcessor())
    browser.open(f"{home}/open", urlencode({"key": parse_qs(address.query)["key"][0]}).encode()).close()
    return home, browser


def _shipped_choice(shipped: DecisionIndex, label_id: str, label: str) -> dict[str, str] | None:
    row = shipped.find(label_id, label)
    return None if row is None else _choice(row.decision, row.group, row.comment)


def _choice(decision: str, group: str | None, comment: str) -> dict[str, str]:
    """Return the fields of a form that decides."""
    choose = f"group:{group}" if group else decision
    return {"choose": choose, "comment": comment} | ({"guess": "1"} if decision == "unsure" and group else {})


if __name__ == "__main__":
    main([Path(name) for name in sys.argv[1:-1]], sys.argv[-1])
