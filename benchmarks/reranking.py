"""What re-ranking does to metrics, and what it costs.

The first command evaluates embeddings of the images of manifests leave-one-out, by each method with its defaults:
means in percent and processor time. The second measures alpha query expansion, and the slowest of the methods that
order candidates, beside the plain evaluation, in GLDv2's size, in processes of their own; the third the same in
small, and writes nothing::

    python benchmarks/reranking.py --manifest washington.parquet --embeddings washington.npy --images data/washington
    python benchmarks/reranking.py --speed
    python benchmarks/reranking.py --quick
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import get_args

import numpy as np
import torch
from evaluate import GLDV2, Job, make_embeddings, measure
from measuring import MeasurementConfig
from report import table, write_section

from hgld.datasets.manifest import read_manifest
from hgld.evaluation.evaluate import EvaluationConfig, evaluate_tasks
from hgld.evaluation.ranking import RankingConfig
from hgld.evaluation.retrieval_task import leave_one_out_task
from hgld.evaluation.settings import RerankMethod, RerankSettings
from hgld.inspection.photos import images_of_manifest
from hgld.search import LocalFeatures
from hgld.tables.embeddings import read_embeddings

METRICS = ("mAP@100", "R@1", "H-AP", "ASI", "NDCG")
MEASURED = ("hgld", "alpha_qe", "k_reciprocal")


def main() -> None:
    """Measure, and write a table."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--manifest", type=Path, action="append", default=[], help="manifest; may be repeated")
    parser.add_argument("--embeddings", type=Path, action="append", default=[], help="of each manifest")
    parser.add_argument("--images", type=Path, action="append", default=[], help="folder of each manifest")
    parser.add_argument("--speed", action="store_true", help="measure time at GLDv2's size")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--quick", action="store_true", help="print small sizes, and write nothing")
    options = parser.parse_args()
    if options.speed or options.quick:
        size = (8, 2_000) if options.quick else GLDV2
        body = measured_times(size, MeasurementConfig("cpu", options.repeats, wait_s=0))
        print(body)
        if not options.quick:
            write_section("reranking-speed", body)
    if options.manifest:
        sets = zip(options.manifest, options.embeddings, options.images, strict=True)
        body = "\n\n".join(measured_metrics(*each) for each in sets)
        print(body)
        write_section("reranking", body)


def measured_metrics(manifest_path: Path, path: Path, images: Path) -> str:
    """Return the table of the methods on the images of a manifest."""
    manifest, embeddings = read_manifest(manifest_path), read_embeddings(path)
    assert embeddings.ids is not None
    row_of = {name: row for row, name in enumerate(manifest.ids.tolist())}
    known = np.array([name in row_of for name in embeddings.ids.tolist()])
    labels = np.stack([manifest.labels_of(row_of[name]) for name in embeddings.ids[known].tolist()])
    vectors = embeddings.vectors[torch.from_numpy(known)]
    task = leave_one_out_task(vectors, labels, ids=embeddings.ids[known])
    features = LocalFeatures(images_of_manifest(manifest, images))
    rows = []
    for method in (None, *get_args(RerankMethod)):
        started = time.process_time()
        ranking = RankingConfig(reranking=RerankSettings(method), pair_scorer=features)
        (result,) = evaluate_tasks([task], EvaluationConfig(METRICS, ranking=ranking))
        seconds = time.process_time() - started
        means = [f"{100 * result.means[name]:.2f}" for name in METRICS]
        rows.append([method or "none", *means, f"{seconds:.1f}"])
        print(rows[-1], flush=True)
    title = f"{path.stem}, {len(labels):,} images of {vectors.shape[1]:,} dimensions:"
    return f"{title}\n\n{table(['`--rerank`', *METRICS, 'processor s'], rows)}"


def measured_times(size: tuple[int, int], config: MeasurementConfig) -> str:
    """Return the table of times of all metrics of synthetic embeddings."""
    with tempfile.TemporaryDirectory() as name:
        make_embeddings(Path(name), size[1], size[0], (size[1] // 8, 78, 2))
        costs = measure(Path(name), {work: Job(work) for work in MEASURED}, size, config)
    plain = costs["hgld"].processor_s
    rows = [
        [
            "none" if work == "hgld" else work.replace("_", "-"),
            f"{cost.processor_s:.1f}",
            f"{cost.processor_s / plain:.2f}",
            f"{cost.gb:.2f}",
        ]
        for work, cost in costs.items()
    ]
    title = f"{size[0]:,} queries x {size[1]:,} x 512, all metrics; medians of {config.repeats}."
    return f"{title}\n\n{table(['`--rerank`', 'processor s', 'ratio', 'GB'], rows)}"


if __name__ == "__main__":
    main()
