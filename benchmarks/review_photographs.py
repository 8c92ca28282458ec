"""Latency of the review page with and without photographs, and the time until these are shown, in headless Chromium.

The page shows the labels of ``benchmarks/review.py``. Labels of the first sub-cluster have six photographs each, JPEG
files of 1024 x 768 pixels in a tar file::

    python benchmarks/review_photographs.py
"""

from __future__ import annotations

import argparse
import csv
import io
import statistics
import tarfile
import tempfile
import time
from collections import defaultdict
from contextlib import ExitStack
from itertools import cycle, islice
from pathlib import Path

import numpy as np
from PIL import Image
from report import table, write_section
from review import CARD, DECIDED, PRESS, SIZES, chromium, make_tables, serving
from selenium.webdriver.remote.webdriver import WebDriver

from hgld.gldv2.tar_images import index_images
from hgld.tables import CLEAN, CLUSTERS, read_table

#: Press a key if it is not empty, and wait until all photographs of the label that is then current are drawn.
SHOWN = """
const [key, done] = arguments;
const began = performance.now();
const before = document.querySelector("#photographs [data-label]").dataset.label;
if (key) (document.activeElement ?? document.body).dispatchEvent(
  new KeyboardEvent("keydown", {key, bubbles: true, cancelable: true}));
function check() {
  const images = [...document.querySelectorAll("#photographs img")];
  const label = document.querySelector("#photographs [data-label]").dataset.label;
  if (images.length < 6 || (key && label === before) || !images.every(image => image.complete && image.naturalWidth))
    return requestAnimationFrame(check);
  requestAnimationFrame(() => setTimeout(() => done(performance.now() - began)));
}
check();
"""
#: Time in which the photographs of the next label are fetched ahead while the annotator looks.
LOOK_S = 0.6


def main() -> None:
    """Run the benchmark and write its table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--presses", type=int, default=40)
    presses = parser.parse_args().presses
    keys = {
        "move to the next label (`J`), with its card": ("j", CARD),
        "accept the suggestion (`Enter`)": ("Enter", DECIDED),
    }
    latencies: defaultdict[str, list[float]] = defaultdict(list)
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        clusters = make_tables(Path(folder))
        images = str(write_photographs(Path(folder) / "gldv2", clusters, 6 * presses))
        pages = {}
        for name, options in {"without": [], "with": ["--images", images]}.items():
            command = [*options, "--store", f"{folder}/{name}.sqlite"]
            pages[name] = stack.enter_context(chromium())
            open_page(pages[name], stack.enter_context(serving(clusters, *command)))
        for _ in range(presses):
            # In turns, so that whatever else the machine does concerns all rows alike.
            for key, (pressed, condition) in keys.items():
                for name, page in pages.items():
                    time.sleep(LOOK_S)
                    latency, _ = page.execute_async_script(PRESS, pressed, condition)
                    latencies[f"{key}, {name} photographs"].append(latency)
            time.sleep(LOOK_S)
            latencies["six photographs of the next label (`J`) are drawn"].append(
                pages["with"].execute_async_script(SHOWN, "j")
            )
        for _ in range(presses // 5):
            time.sleep(LOOK_S)
            latency = pages["with"].execute_async_script(SHOWN, "PageDown")
            latencies["six photographs of a label ten places further are drawn"].append(latency)
    rows = [
        [
            name,
            str(len(times)),
            *(f"{value:.0f}" for value in (statistics.median(times), percentile_95(times), max(times))),
        ]
        for name, times in latencies.items()
    ]
    write_section("review photographs", table(["", "times", "median, ms", "95 %, ms", "slowest, ms"], rows))


def percentile_95(times: list[float]) -> float:
    """Return the time that 95 % of the presses take at most."""
    return statistics.quantiles(times, n=20, method="inclusive")[-1]


def open_page(browser: WebDriver, address: str) -> None:
    """Open the page and wait until the parts that come later are there."""
    browser.set_script_timeout(60)
    browser.get(address)
    while not browser.execute_script("return document.documentElement.classList.contains('js')"):
        time.sleep(0.05)
    time.sleep(2)


def write_photographs(folder: Path, clusters: Path, n_labels: int) -> Path:
    """Write six photographs of each of the first labels into a tar file; return the path of its index."""
    (folder / "train").mkdir(parents=True)
    rng = np.random.default_rng(0)
    contents = []
    for _ in range(24):
        coarse = rng.integers(0, 256, (48, 64, 3), dtype=np.uint8)
        image = Image.fromarray(coarse).resize((1024, 768), Image.Resampling.BICUBIC)
        noisy = np.asarray(image, np.int16) + rng.normal(0, 12, (768, 1024, 3)).astype(np.int16)
        encoded = io.BytesIO()
        Image.fromarray(noisy.clip(0, 255).astype(np.uint8)).save(encoded, "JPEG", quality=85)
        contents.append(encoded.getvalue())
    # The order of the page.
    order = {
        "cluster": "ascending",
        "subcluster": "ascending",
        "landmarks_train": "descending",
        "label_id": "ascending",
    }
    shown = (
        read_table(clusters, CLUSTERS).sort_by(list(order.items()))["label_id"].slice(0, min(n_labels, SIZES[0] // 7))
    )
    of_label: defaultdict[str, list[int]] = defaultdict(list)
    for row in (
        read_table(clusters.with_name("clean.parquet"), CLEAN).select(["landmark_id", "class_item"]).to_pylist()
    ):
        of_label[row["class_item"]].append(row["landmark_id"])
    landmarks = [landmark for label in shown.to_pylist() for landmark in islice(cycle(of_label[label]), 6)]
    with (
        tarfile.open(folder / "train" / "images_000.tar", "w") as archive,
        (folder / "train.csv").open("w", newline="") as lists,
    ):
        rows = csv.writer(lists)
        rows.writerow(["id", "landmark_id"])
        for number, landmark in enumerate(landmarks):
            content = contents[number % len(contents)]
            member = tarfile.TarInfo(f"{number:016x}.jpg")
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
            rows.writerow([f"{number:016x}", landmark])
    index_images(folder, folder / "images.parquet")
    return folder / "images.parquet"


if __name__ == "__main__":
    main()
