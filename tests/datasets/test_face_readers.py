"""VGGFace2 and IJB-C in their published layouts, and the crops of faces."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from PIL import Image

from hgld.datasets.image_dataset import ImageDataset
from hgld.datasets.loading import Example, SkippedImage
from hgld.datasets.manifest import Manifest, read_manifest
from hgld.datasets.manifest_files import make_manifest
from hgld.datasets.readers.faces import IjbC, VggFace2, extended_boxes
from hgld.datasets.transforms import ImageSettings, evaluation_transform
from hgld.errors import ConfigurationError, InputError
from hgld.inspection.photos import images_of_manifest
from hgld.io.images import box_inside
from tests.assertions import not_none
from tests.datasets.pictures import rows_of
from tests.datasets.test_readers import write

#: Left, top, width and height.
BoxOfSize = tuple[int, int, int, int]
METADATA = "SUBJECT_ID,FILENAME,SIGHTING_ID,FACE_X,FACE_Y,FACE_WIDTH,FACE_HEIGHT,FACIAL_HAIR\n"
TEMPLATES = "TEMPLATE_ID,SUBJECT_ID,FILENAME,SIGHTING_ID,FACE_X,FACE_Y,FACE_WIDTH,FACE_HEIGHT\n"


def draw_face(path: Path, *boxes: BoxOfSize, size: tuple[int, int] = (60, 40)) -> None:
    """Draw a black picture with white boxes."""
    pixels = np.zeros((size[1], size[0], 3), np.uint8)
    for left, top, width, height in boxes:
        pixels[top : top + height, left : left + width] = 255
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(pixels).save(path, "PNG")


def read(reader: VggFace2 | IjbC, root: Path) -> Manifest:
    assert make_manifest(reader, root, root / "manifest.parquet", force=True) is not None
    return read_manifest(root / "manifest.parquet")


def white_shares(manifest: Manifest, root: Path) -> list[float]:
    """Return the share of white of each image, as a model gets it."""
    settings = ImageSettings(size=8, resize=8, fit="squash")
    dataset = ImageDataset(manifest, root, evaluation_transform(settings))
    examples = [dataset[row] for row in range(len(manifest))]
    return [round(float((example.image / 255).mean()), 2) for example in examples if isinstance(example, Example)]


@given(
    st.tuples(st.integers(-20, 60), st.integers(-20, 40), st.integers(1, 50), st.integers(1, 50)),
    st.sampled_from([0.0, 0.3, 1.0]),
)
def test_crops_are_the_pixels_of_the_extended_box_inside_the_image(box: BoxOfSize, margin: float) -> None:
    left, top, width, height = box
    image = Image.fromarray(np.arange(40 * 60, dtype=np.int32).reshape(40, 60).astype(np.uint8))
    edges = [
        (round(start - margin / 2 * length), round(start + length + margin / 2 * length))
        for start, length in ((left, width), (top, height))
    ]
    sides = zip(image.size, edges, strict=True)
    columns, rows = ([n for n in range(size) if first <= n < last] for size, (first, last) in sides)
    extended = tuple(extended_boxes(np.array([box], np.float64), margin)[0].tolist())
    if not columns or not rows:
        with pytest.raises(InputError, match="box outside the image"):
            box_inside(extended, image)
        return
    expected = np.asarray(image)[np.ix_(rows, columns)]
    np.testing.assert_array_equal(np.asarray(image.crop(box_inside(extended, image))), expected)


def test_a_box_without_a_whole_pixel_is_outside() -> None:
    """Both edges round to 2, so the crop would be empty."""
    with pytest.raises(InputError, match="box outside the image"):
        box_inside((1.5, 0.0, 2.5, 9.0), Image.new("L", (20, 20)))


@pytest.mark.parametrize("folder", ["", "meta/"])
def test_vggface2(tmp_path: Path, folder: str) -> None:
    files = {"train": "n000002/0001_01.jpg\nn000002/0002_02.jpg\n", "test": "n000001/0001_01.jpg\n"}
    boxes = {
        "train": '"n000002/0002_02",-2,0,20,10\n"n000002/0001_01",20,10,20,20\n',
        "test": '"n000001/0001_01",0,0,60,40\n',
    }
    for split in files:
        bounding = f"{folder}bb_landmark/loose_bb_{split}.csv"
        write(tmp_path, {f"{folder}{split}_list.txt": files[split], bounding: f"NAME_ID,X,Y,W,H\n{boxes[split]}"})
    draw_face(tmp_path / "train" / "n000002" / "0001_01.jpg", (20, 10, 20, 20))
    draw_face(tmp_path / "train" / "n000002" / "0002_02.jpg", (0, 0, 60, 40))
    draw_face(tmp_path / "test" / "n000001" / "0001_01.jpg", (0, 0, 60, 40))

    manifest = read(VggFace2(), tmp_path)
    assert manifest.level_names == ("identity",)
    assert rows_of(manifest) == [
        ("train/n000002/0001_01.jpg", "train", ("n000002",)),
        ("train/n000002/0002_02.jpg", "train", ("n000002",)),
        ("test/n000001/0001_01.jpg", "test", ("n000001",)),
    ]
    assert [manifest.box(row) for row in range(3)] == [(17, 7, 43, 33), (-5, -1.5, 21, 11.5), (-9, -6, 69, 46)]
    assert white_shares(manifest, tmp_path) == [pytest.approx((20 / 26) ** 2, abs=0.06), 1, 1]
    assert white_shares(read(VggFace2(margin=0), tmp_path), tmp_path) == [1, 1, 1]
    assert not_none(images_of_manifest(manifest, tmp_path)(manifest.ids[0])).size == (26, 26)

    whole = read(VggFace2(whole=True, only_test=True), tmp_path)
    assert rows_of(whole) == [("test/n000001/0001_01.jpg", "test", ("n000001",))]
    assert whole.boxes is None


def test_vggface2_names_what_is_wrong(tmp_path: Path) -> None:
    write(tmp_path, {"test_list.txt": "n000001/0001_01.jpg\nn000001/0002_01.jpg\n"})
    with pytest.raises(InputError, match="loose_bb_test.csv"):
        read(VggFace2(only_test=True), tmp_path)
    boxes = tmp_path / "bb_landmark" / "loose_bb_test.csv"
    write(tmp_path, {"bb_landmark/loose_bb_test.csv": "NAME_ID,X,Y,W,H\nn000001/0001_01,1,2,3,4\n"})
    with pytest.raises(
        InputError, match=r"1 of 2 images have no box there; take them whole with `whole`:\n.*0002_01"
    ):
        read(VggFace2(only_test=True), tmp_path)
    boxes.write_text("NAME_ID,X,Y,W,H\nn000001/0001_01,1,2,3,wide\n")
    with pytest.raises(InputError, match="'wide'; expected X, Y, W and H in pixels"):
        read(VggFace2(only_test=True), tmp_path)
    write(tmp_path, {"test_list.txt": "0001_01.jpg\n"})
    with pytest.raises(InputError, match=r"the path is 0001_01.jpg; expected one such as n000002/0001_01\.jpg"):
        read(VggFace2(whole=True, only_test=True), tmp_path)
    with pytest.raises(ConfigurationError, match="`margin` is -1"):
        VggFace2(margin=-1)


def test_ijb_c_media(tmp_path: Path) -> None:
    lines = [
        "7,img/1.jpg,900,10,10,20,20,0",
        "7,img/1.jpg,900,10,10,20,20,0",  # listed twice
        "7,frames/2_1.png,901,0,0,10,10,0",
        "7,frames/2_31.png,901,2,0,10,10,0",  # the same video
        "8,frames/2_31.png,902,30,0,10,10,0",  # another subject in the same frame
        "8,img/4.jpg,903,0,0,10,10,0",
        "9,img/1.jpg,904,40,0,10,10,0",  # of one medium alone
        "NaN,img/5.jpg,905,40,0,10,10,0",
        "8,img/6.jpg,906,NaN,NaN,NaN,NaN,0",
    ]
    write(tmp_path, {"protocols/ijbc_metadata.csv": METADATA + "\n".join(lines) + "\n"})
    result = IjbC(min_media=2, margin=0).read(tmp_path)
    assert result.manifest.level_names == ("medium", "subject")
    assert rows_of(result.manifest) == [
        ("images/img/1.jpg", "test", ("7/img/1", "7")),
        ("images/frames/2_1.png", "test", ("7/frames/2", "7")),
        ("images/frames/2_31.png", "test", ("7/frames/2", "7")),
        ("images/frames/2_31.png", "test", ("8/frames/2", "8")),
        ("images/img/4.jpg", "test", ("8/img/4", "8")),
    ]
    assert result.manifest.ids.tolist()[0] == "7/img/1.jpg"
    assert result.excluded == {
        "without a subject or a box": 2,
        "that are listed already": 1,
        "of subjects with fewer than 2 media": 1,
    }
    faces: dict[str, list[BoxOfSize]] = {}
    for row, path in enumerate(result.manifest.paths.tolist()):
        left, top, right, bottom = map(int, result.manifest.box(row) or ())
        faces.setdefault(path, []).append((left, top, right - left, bottom - top))
    assert [len(boxes) for boxes in faces.values()] == [1, 1, 2, 1]
    for path, boxes in faces.items():
        draw_face(tmp_path / path, *boxes)
    assert white_shares(result.manifest, tmp_path) == [1] * 5
    with pytest.raises(
        InputError, match=r"ijbc_metadata.csv: no subject has 5 photographs or videos; set `min_media`"
    ):
        IjbC().read(tmp_path)
    with pytest.raises(ConfigurationError, match="`min_media` is 0"):
        IjbC(min_media=0)


def test_ijb_c_templates(tmp_path: Path) -> None:
    lists = {
        "gallery_G1": "1,7,img/1.jpg,900,10,10,20,20\n1,7,img/2.jpg,901,10,10,20,20\n",
        "gallery_G2": "2,8,img/3.jpg,902,0,0,10,10\n",
        "probe_mixed": (
            "3,7,img/2.jpg,901,10,10,20,20\n3,7,frames/4_1.png,903,0,0,9,9\n3,7,frames/4_2.png,903,0,0,9,9\n"
        ),
    }
    write(tmp_path, {f"protocols/ijbc_1N_{name}.csv": TEMPLATES + text for name, text in lists.items()})
    manifest = read(IjbC("templates", margin=0), tmp_path)
    assert manifest.level_names == ("medium", "template", "subject")
    rows = zip(manifest.ids, rows_of(manifest), strict=True)
    assert [(image_id, split, classes) for image_id, (_, split, classes) in rows] == [
        ("1/img/1.jpg", "gallery", ("1/img/1", "1", "7")),
        ("1/img/2.jpg", "gallery", ("1/img/2", "1", "7")),
        ("2/img/3.jpg", "gallery", ("2/img/3", "2", "8")),
        ("3/img/2.jpg", "probe", ("3/img/2", "3", "7")),
        ("3/frames/4_1.png", "probe", ("3/frames/4", "3", "7")),
        ("3/frames/4_2.png", "probe", ("3/frames/4", "3", "7")),
    ]


def test_a_box_outside_the_image_is_reported(tmp_path: Path) -> None:
    write(
        tmp_path, {"test_list.txt": "n1/1.jpg\n", "bb_landmark/loose_bb_test.csv": "NAME_ID,X,Y,W,H\nn1/1,70,0,9,9\n"}
    )
    draw_face(tmp_path / "test" / "n1" / "1.jpg", (0, 0, 60, 40))
    manifest = read(VggFace2(only_test=True), tmp_path)
    example = ImageDataset(manifest, tmp_path, evaluation_transform(ImageSettings(size=4, resize=4)))[0]
    assert isinstance(example, SkippedImage)
    assert "box outside the image" in example.reason
    assert images_of_manifest(manifest, tmp_path)(manifest.ids[0]) is None
