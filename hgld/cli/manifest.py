"""Manifests of data sets: which images there are, where, and with which labels."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from hgld.cli.base import Force, app, friendly_errors, tell

if TYPE_CHECKING:
    from hgld.datasets.readers.text_lists import Reader

manifest = typer.Typer(no_args_is_help=True, rich_markup_mode="markdown")

Root = Annotated[Path, typer.Argument(metavar="DIR", help="The folder that the images are below.")]
Out = Annotated[Path, typer.Option("--out", "-o", help="The manifest to write.")]


@manifest.callback()
def about() -> None:
    """List the images of a data set with their splits and labels, for hgld train and hgld embed-images.

    Each data set is read in the layout in which it is published.

    Example: hgld manifest sop Stanford_Online_Products -o sop.parquet
    """


@manifest.command()
def gldv2(
    root: Root,
    out: Out,
    labels: Annotated[
        Path, typer.Option(help="The landmarks of the photographs: train.csv, train_clean.csv or a file like these.")
    ],
    images: Annotated[
        Path | None,
        typer.Option(help="The table from hgld index-images DIR.", show_default="extracted, DIR/a/b/c/abc….jpg"),
    ] = None,
    hierarchy: Annotated[
        Path | None, typer.Option(help="The levels above landmarks: from hgld build, or H-GLDv2's CSV files.")
    ] = None,
    split: Annotated[str | None, typer.Option(help="The split of the landmark ids, if there are several.")] = None,
    min_images: Annotated[int, typer.Option(help="Leave out landmarks with fewer photographs.")] = 1,
    test_share: Annotated[
        float | None,
        typer.Option(
            help="The share of the landmarks of each super-category that is the split test; the others are train.",
            show_default="all in one split",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(help="Of the share.")] = 0,
    force: Force = False,
) -> None:
    """Google Landmarks Dataset v2, in tar files or extracted, with the levels of a hierarchy.

    Example: hgld manifest gldv2 data/gldv2 --images images.parquet --labels data/gldv2/train_clean.csv --hierarchy
    hierarchy.parquet -o manifest.parquet
    """
    with friendly_errors():
        from hgld.datasets.readers.gldv2 import Gldv2

        reader = Gldv2(labels, images, hierarchy, split, min_images, test_share, seed)
        _make(reader, root, out, force)


@manifest.command()
def sop(root: Root, out: Out, force: Force = False) -> None:
    """Stanford Online Products: Ebay_train.txt and Ebay_test.txt; product and category.

    Example: hgld manifest sop Stanford_Online_Products -o sop.parquet
    """
    with friendly_errors():
        from hgld.datasets.readers.products import StanfordOnlineProducts

        _make(StanfordOnlineProducts(), root, out, force)


@manifest.command()
def in_shop(root: Root, out: Out, force: Force = False) -> None:
    """In-Shop Clothes Retrieval: list_eval_partition.txt; item, category and gender.

    Example: hgld manifest in-shop In-shop -o in_shop.parquet
    """
    with friendly_errors():
        from hgld.datasets.readers.products import InShop

        _make(InShop(), root, out, force)


@manifest.command()
def inaturalist(
    root: Root,
    out: Out,
    levels: Annotated[
        Literal["base", "full"], typer.Option(help="Species and super-category, or the seven ranks of taxonomy.")
    ] = "base",
    force: Force = False,
) -> None:
    """iNaturalist-2018 with the splits of Smooth-AP: Inat_dataset_splits/, and train2018.json for all levels.

    Example: hgld manifest inaturalist inat2018 --levels full -o inat_full.parquet
    """
    with friendly_errors():
        from hgld.datasets.readers.nature import INaturalist

        _make(INaturalist(levels), root, out, force)


@manifest.command()
def cub(root: Root, out: Out, force: Force = False) -> None:
    """CUB-200-2011: images.txt and image_class_labels.txt; species, family and order.

    Example: hgld manifest cub CUB_200_2011 -o cub.parquet
    """
    with friendly_errors():
        from hgld.datasets.readers.nature import Cub

        _make(Cub(), root, out, force)


@manifest.command()
def cars196(root: Root, out: Out, force: Force = False) -> None:
    """Cars196: cars_annos.mat; model and type.

    Example: hgld manifest cars196 cars196 -o cars196.parquet
    """
    with friendly_errors():
        from hgld.datasets.readers.vehicles import Cars196

        _make(Cars196(), root, out, force)


@manifest.command()
def vehicle_id(
    root: Root,
    out: Out,
    test_list: Annotated[int, typer.Option(help="The number in the name of the list for tests.")] = 800,
    force: Force = False,
) -> None:
    """PKU VehicleID: train_test_split/train_list.txt and a test_list_….txt; vehicles alone.

    Example: hgld manifest vehicle-id VehicleID_V1.0 --test-list 2400 -o vehicle_id.parquet
    """
    with friendly_errors():
        from hgld.datasets.readers.vehicles import VehicleId

        _make(VehicleId(test_list), root, out, force)


@manifest.command()
def dyml(
    root: Root,
    out: Out,
    part: Annotated[
        Literal["train", "fine", "middle", "coarse", "test"],
        typer.Option(help="The training set, a level's test set (Vehicle, Animal), or the test set (Product)."),
    ] = "train",
    force: Force = False,
) -> None:
    """DyML-Vehicle, -Animal or -Product: label.csv, or query.csv and gallery.csv; fine, middle and coarse.

    Example: hgld manifest dyml dyml_animal -o dyml_animal.parquet
    """
    with friendly_errors():
        from hgld.datasets.readers.dyml import Dyml

        _make(Dyml(part), root, out, force)


@manifest.command()
def sfm120k(root: Root, out: Out, force: Force = False) -> None:
    """SfM-120k: retrieval-SfM-120k.pkl; clusters alone.

    Example: hgld manifest sfm120k retrieval-SfM-120k -o sfm120k.parquet
    """
    with friendly_errors():
        from hgld.datasets.readers.sfm import Sfm120k

        _make(Sfm120k(), root, out, force)


def _make(reader: Reader, root: Path, out: Path, force: bool) -> None:
    from hgld.datasets.make_manifest import make_manifest

    tell(out, make_manifest(reader, root, out, force=force))


app.add_typer(manifest, name="manifest", rich_help_panel="Retrieval")
