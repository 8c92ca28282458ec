"""Latency of the review page at the size of the full dataset, in headless Chromium.

The page shows 5,685 made-up labels of 200,000 landmarks in 12 clusters, the largest of which has 2,000 labels. The
latency of a key runs from its ``keydown`` event until the decision is on disk and a frame that shows it has been
drawn; the part of the server is the time until its answer is there, according to the browser::

    python benchmarks/review.py
"""

from __future__ import annotations

import argparse
import os
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
from selenium.webdriver import ActionChains, Keys
from selenium.webdriver.remote.webdriver import WebDriver
from selenium.webdriver.support.wait import WebDriverWait

from hgld.resources import annotation_file
from hgld.tables import CLEAN, CLUSTERS, Provenance, write_table
from hgld.taxonomy.groups import read_taxonomy

HGLD = Path(sys.executable).with_name("hgld")
#: Labels in each cluster.
SIZES = (2000, *(335 for _ in range(11)))
N_LANDMARKS = 200_000

#: Press a key on the current row; wait until the condition holds and a frame that shows it has been drawn.
PRESS = """
const [key, condition, done] = arguments;
const holds = new Function("before", "return " + condition);
const before = {
  card: document.querySelector("#card h2").textContent,
  decided: document.querySelector("#status b").textContent,
};
performance.clearResourceTimings();
const began = performance.now();
const watch = new MutationObserver(check);
function check() {
  if (!holds(before)) return;
  watch.disconnect();
  requestAnimationFrame(() => setTimeout(() => {
    const requests = performance.getEntriesByType("resource").filter(entry => entry.startTime >= began);
    const own = requests.find(entry => !entry.name.includes("/rows"));
    done([performance.now() - began, own ? own.responseEnd - own.requestStart : 0]);
  }));
}
watch.observe(document.body, {subtree: true, childList: true, attributes: true, characterData: true});
(document.activeElement ?? document.body).dispatchEvent(
  new KeyboardEvent("keydown", {key, bubbles: true, cancelable: true}));
check();
"""
#: The name is shown at once, and the rest of the card when the server has sent it.
CARD = "document.querySelector('#card h2').textContent !== before.card && !document.querySelector('.outdated')"
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
        script = (
            "const [p] = performance.getEntriesByType('navigation'); return [p.decodedBodySize, p.encodedBodySize]"
        )
        size, sent = browser.execute_script(script)
        browser.set_script_timeout(30)
        rows = [
            measure(browser, "move to the next label (`J`), with its card", [("j", CARD)], presses),
            measure(browser, "accept the suggestion (`Enter`)", [("Enter", DECIDED)], presses),
            measure(browser, "drop (`D`), undo (`Z`), in turns", [("d", DECIDED), ("z", DECIDED)], presses),
        ]
        press(browser, "]")
        rows.append(measure(browser, "next, previous cluster (`]`, `[`), 335 labels", [("]", CARD), ("[", CARD)], 20))
        press(browser, "[")
        rows.append(measure(browser, "the same, 2,000 labels and 335 in turns", [("]", CARD), ("[", CARD)], 20))
        press(browser, "a", control=True)
        rows.append(measure(browser, "decide 2,000 selected labels at once (`D`)", [("d", DECIDED)], 1))
    rows.append(["open the page", "1", f"{opened:.0f}", "", f"{opened:.0f}", f"{opened:.0f}"])
    header = ["in the cluster of 2,000", "times", "median, ms", "of this, the server", "95 %, ms", "slowest, ms"]
    write_section(
        "review",
        f"{table(header, rows)}\n\nThe page has {size / 1e6:.2f} MB, compressed {sent / 1e6:.2f} MB. Processes that "
        f"wanted to run meanwhile, on average: {os.getloadavg()[1]:.0f}.",
    )


def press(browser: WebDriver, key: str, *, control: bool = False) -> None:
    """Press a key, and give the page the time to show what it does."""
    actions = ActionChains(browser)
    if control:
        actions.key_down(Keys.CONTROL)
    actions.send_keys(key)
    if control:
        actions.key_up(Keys.CONTROL)
    actions.perform()
    time.sleep(1)


def measure(browser: WebDriver, name: str, keys: list[tuple[str, str]], presses: int) -> list[str]:
    """Return a row of the table, for keys pressed alternately, each until its condition holds."""
    times, server_times = [], []
    for number in range(presses):
        key, condition = keys[number % len(keys)]
        took, server = browser.execute_async_script(PRESS, key, condition)
        times.append(took)
        server_times.append(server)
        time.sleep(0.03)
    percentile_95 = statistics.quantiles(times, n=20)[-1] if len(times) > 1 else times[0]
    medians = (f"{statistics.median(values):.0f}" for values in (times, server_times))
    return [name, str(presses), *medians, f"{percentile_95:.0f}", f"{max(times):.0f}"]


def make_tables(folder: Path) -> Path:
    """Write clusters of made-up labels with suggestions, and the clean table of their landmarks."""
    chance = random.Random(0)
    groups = [group.name for group in read_taxonomy(annotation_file("taxonomy.csv"))]
    words = [word for name in groups for word in re.findall(r"\w+", name)]
    # As in the dataset, few labels have most of the landmarks: the share of a label falls with its rank.
    shares = [1 / rank for rank in range(1, sum(SIZES) + 1)]
    counts = [max(1, round(N_LANDMARKS * share / sum(shares))) for share in shares]
    chance.shuffle(counts)
    clusters: list[dict[str, object]] = []
    clean: list[dict[str, object]] = []
    for cluster, size in enumerate(SIZES, 1):
        for n in range(size):
            key, label = f"Q{1000 * cluster * 10 + n}", f"{' '.join(chance.sample(words, 2))} {cluster}-{n}"
            likely, landmarks = chance.sample(groups, 3), counts[len(clusters)]
            suggestions = [
                {"group": group, "score": score, "reason": f"near “{group}” of the guideline"}
                for group, score in zip(likely, (0.8, 0.1, 0.05), strict=True)
            ]
            clusters.append(
                {
                    "label_id": key,
                    "label": label,
                    "landmarks_train": landmarks,
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
                    "landmark_id": len(clean) + number,
                    "category": f"https://commons.wikimedia.org/wiki/Category:{label.title()}_{number}".replace(
                        " ", "_"
                    ),
                    "supercategory": label,
                    "class_item": key,
                }
                for number in range(landmarks)
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
