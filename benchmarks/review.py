"""Latency of the review page at the size of the full dataset, in headless Chromium.

The page shows 5,685 made-up labels in 12 clusters, the largest of which has 2,000. The latency of a key runs from its
``keydown`` event until the decision is on disk and a frame that shows it has been drawn::

    python benchmarks/review.py
"""

from __future__ import annotations

import argparse
import random
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
from report import table, write_section
from selenium import webdriver
from selenium.webdriver.remote.webdriver import WebDriver
from selenium.webdriver.support.wait import WebDriverWait

from hgld.resources import annotation_file
from hgld.tables import CLEAN, CLUSTERS, Provenance, write_table
from hgld.taxonomy.groups import read_taxonomy

HGLD = Path(sys.executable).with_name("hgld")
#: Labels in each cluster.
SIZES = (2000, *(335 for _ in range(11)))

#: Press a key on the current row; wait until the condition holds and a frame that shows it has been drawn.
PRESS = """
const [key, condition, done] = arguments;
const holds = new Function("before", "return " + condition);
const before = {
  card: document.querySelector("#card h2").textContent,
  decided: document.querySelector("#status b").textContent,
};
const began = performance.now();
const watch = new MutationObserver(check);
function check() {
  if (!holds(before)) return;
  watch.disconnect();
  requestAnimationFrame(() => setTimeout(() => done(performance.now() - began)));
}
watch.observe(document.body, {subtree: true, childList: true, attributes: true, characterData: true});
(document.activeElement ?? document.body).dispatchEvent(
  new KeyboardEvent("keydown", {key, bubbles: true, cancelable: true}));
check();
"""
CARD = "document.querySelector('#card h2').textContent !== before.card"
DECIDED = "document.querySelector('#status b').textContent !== before.decided"


def main() -> None:
    """Run the benchmark and write its table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--presses", type=int, default=60)
    presses = parser.parse_args().presses
    with (
        tempfile.TemporaryDirectory() as folder,
        serving(make_tables(Path(folder))) as address,
        chromium() as browser,
    ):
        began = time.monotonic()
        browser.get(address)
        WebDriverWait(browser, 30, 0.01).until(lambda _: browser.find_elements("css selector", ".row"))
        opened = 1000 * (time.monotonic() - began)
        browser.set_script_timeout(30)
        rows = [
            measure(browser, "move to the next label (`J`), with its card", [("j", CARD)], presses),
            measure(browser, "accept the suggestion (`Enter`)", [("Enter", DECIDED)], presses),
            measure(browser, "drop (`D`), undo (`Z`), in turns", [("d", DECIDED), ("z", DECIDED)], presses),
        ]
        browser.execute_script("KEYS[']']()")
        time.sleep(1)
        rows.append(measure(browser, "next, previous cluster (`]`, `[`), 335 labels", [("]", CARD), ("[", CARD)], 20))
        browser.execute_script("KEYS['[']()")
        time.sleep(1)
        rows.append(measure(browser, "the same, 2,000 labels and 335 in turns", [("]", CARD), ("[", CARD)], 20))
        browser.execute_script("KEYS['ctrl+a']()")
        rows.append(measure(browser, "decide 2,000 selected labels at once (`D`)", [("d", DECIDED)], 1))
    rows.append(["open the page", "1", f"{opened:.0f}", f"{opened:.0f}", f"{opened:.0f}"])
    write_section(
        "review", table(["in the cluster of 2,000", "times", "median, ms", "95 %, ms", "slowest, ms"], rows)
    )


def measure(browser: WebDriver, name: str, keys: list[tuple[str, str]], presses: int) -> list[str]:
    """Return a row of the table, for keys pressed alternately, each until its condition holds."""
    times = []
    for number in range(presses):
        key, condition = keys[number % len(keys)]
        times.append(browser.execute_async_script(PRESS, key, condition))
        time.sleep(0.03)
    percentile_95 = statistics.quantiles(times, n=20)[-1] if len(times) > 1 else times[0]
    return [name, str(presses), f"{statistics.median(times):.0f}", f"{percentile_95:.0f}", f"{max(times):.0f}"]


def make_tables(folder: Path) -> Path:
    """Write clusters of made-up labels with suggestions, and the clean table of their landmarks."""
    chance = random.Random(0)
    groups = [group.name for group in read_taxonomy(annotation_file("taxonomy.csv"))]
    words = [word for name in groups for word in re.findall(r"\w+", name)]
    clusters, clean = [], []
    for cluster, size in enumerate(SIZES, 1):
        for n in range(size):
            key, label = f"Q{1000 * cluster * 10 + n}", f"{' '.join(chance.sample(words, 2))} {cluster}-{n}"
            likely = chance.sample(groups, 3)
            suggestions = [
                {"group": group, "score": score, "reason": f"near “{group}” of the guideline"}
                for group, score in zip(likely, (0.8, 0.1, 0.05), strict=True)
            ]
            clusters.append(
                {
                    "label_id": key,
                    "label": label,
                    "landmarks_train": 3,
                    "landmarks_index": 0,
                    "cluster": cluster,
                    "cluster_name": " / ".join(chance.sample(words, 3)),
                    "subcluster": 1 + n % 7,
                    "distance": 0.5,
                    "suggested_group": likely[0],
                    "suggestion_score": 0.8,
                    "suggestions": suggestions,
                }
            )
            clean += [
                {
                    "split": "train",
                    "landmark_id": 3 * len(clusters) + number,
                    "category": f"https://commons.wikimedia.org/wiki/Category:{label.title()}_{number}".replace(
                        " ", "_"
                    ),
                    "supercategory": label,
                    "class_item": key,
                }
                for number in range(3)
            ]
    provenance = Provenance("benchmark")
    write_table(folder / "clusters.parquet", CLUSTERS, pa.Table.from_pylist(clusters, CLUSTERS.schema), provenance)
    write_table(folder / "clean.parquet", CLEAN, pa.Table.from_pylist(clean, CLEAN.schema), provenance)
    return folder / "clusters.parquet"


@contextmanager
def serving(clusters: Path, *options: str) -> Iterator[str]:
    """Serve the page with ``hgld review`` and yield its address."""
    command = [str(HGLD), "review", str(clusters), "--annotator", "a", "--no-open", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            yield server.stdout.readline().strip()
        finally:
            server.terminate()


@contextmanager
def chromium() -> Iterator[WebDriver]:
    """Yield a headless Chromium."""
    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    for argument in (
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-dev-shm-usage",
        "--window-size=1280,800",
    ):
        options.add_argument(argument)
    browser = webdriver.Chrome(options, webdriver.ChromeService(shutil.which("chromedriver") or ""))
    try:
        yield browser
    finally:
        browser.quit()


if __name__ == "__main__":
    main()
