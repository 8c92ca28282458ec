"""Lists of photographs in every form, and what is said about wrong ones."""

from pathlib import Path

import pandas as pd
import pytest

from hgld.errors import InputError
from hgld.gldv2.dataset_files import subset_list
from hgld.gldv2.photograph_list import read_photograph_list

A, B, C = "1272ef793ebba7a2", "172999b2cc578a66", "3f509df1d66997a0"


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_forms_of_lists(tmp_path: Path) -> None:
    parquet = tmp_path / "list.parquet"
    pd.DataFrame({"landmark_id": [1, 2], "id": [A, B]}).to_parquet(parquet)
    for path in (
        write(tmp_path / "plain.txt", f"{A}\n\n {B} \n{A}\n"),
        write(tmp_path / "bom.txt", f"\ufeff{A}\r\n{B}\r\n"),
        write(tmp_path / "one.csv", f"id\n{A}\n{B}\n"),
        write(tmp_path / "two.csv", f'"landmark_id","id"\n1,{A}\n2,{B}\n'),
        parquet,
    ):
        read = read_photograph_list(path)
        assert (read.ids, read.facts) == ([A, B], {}), path


def test_addresses_come_from_the_list_and_from_another_file(tmp_path: Path) -> None:
    listed = write(tmp_path / "list.csv", f"id,url\n{A},https://old/a\n{B},https://old/b\n")
    train = write(tmp_path / "a.csv", f'id,url,author,license,title\n{C},x,,,\n{A},https://new/a,"Doe, J",CC0,T\n')
    read = read_photograph_list(listed, train)
    assert read.ids == [A, B]
    assert read.facts == {
        A: {"url": "https://new/a", "author": "Doe, J", "license": "CC0"},
        B: {"url": "https://old/b"},
    }
    assert read.fact(A, "author") == "Doe, J"
    assert read.fact(C, "url") is None


def test_digest_does_not_depend_on_the_order(tmp_path: Path) -> None:
    first, second = (write(tmp_path / name, text) for name, text in (("1", f"{A}\n{B}"), ("2", f"{B}\n{A}\n{B}")))
    assert read_photograph_list(first).digest == read_photograph_list(second).digest
    assert read_photograph_list(first).digest != read_photograph_list(write(tmp_path / "3", A)).digest


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("x.csv", "image,url\na,b\n", "no column id; found image, url; expected ids such as 1272ef793ebba7a2"),
        ("x.txt", "", "no ids in this file"),
        ("x.csv", "id,url\n", "no ids in this file"),
        ("x.txt", f"{A}\nComet Falls\n", r"1 of 2 ids are not those of GLDv2, .*\n  Comet Falls$"),
        ("x.csv", f"id,url\n{A},b\n,c\n", "1 of 2 ids are not those of GLDv2"),
        ("x.csv", f"id,url\n{A},b,c\n", "cannot be read as a table"),
        ("x.parquet", "id\n", "cannot be read as a table"),
    ],
)
def test_what_is_wrong_with_a_list(tmp_path: Path, name: str, text: str, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_photograph_list(write(tmp_path / name, text))


def test_absent_and_binary_lists(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file; expected ids"):
        read_photograph_list(tmp_path / "washingtn")
    (tmp_path / "x.txt").write_bytes(b"\xff\xd8\xff\xe0")
    with pytest.raises(InputError, match="line 1: not UTF-8"):
        read_photograph_list(tmp_path / "x.txt")


def test_list_of_washington_is_that_of_the_dataset(shared: Path) -> None:
    bundled = read_photograph_list(subset_list("washington"))
    assert len(bundled.ids) == 4_625
    for name in ("train.csv", "train_label_to_category.csv"):
        original = (shared / "wa_gldv2" / name).read_text(encoding="utf-8").replace("\r", "")
        assert subset_list("washington").with_name(name).read_text(encoding="utf-8") == original
