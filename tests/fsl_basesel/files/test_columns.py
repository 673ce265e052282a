"""Reading tables: headers, columns and what is refused rather than guessed at."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from fsl_basesel.errors import InputError
from fsl_basesel.files.classes import ClassFeatures, read_classes


def read_text(tmp_path: Path, text: str) -> ClassFeatures:
    """The classes of a .csv with this text."""
    path = tmp_path / "pool.csv"
    path.write_text(text, encoding="utf-8")
    return read_classes(path)


@pytest.mark.parametrize(
    "text",
    [
        "owl,1,0\nelk,0,2.5\n",
        "name,f0,f1\nowl,1,0\nelk,0,2.5\n",
        "f0,f1,species\n1,0,owl\n0,2.5,elk\n",
        "class_name,0,1\nowl,1,0\nelk,0,2.5\n",
        ",class,0,1\n0,owl,1,0\n1,elk,0,2.5\n",
        '\ufeff"name","a b","c,d"\n"owl",1,0\n"elk",0,2.5\n',
        "class_name,note,f0,f1\nowl,big eyes,1,0\nelk,antlers,0,2.5\n",
        "id,class_name,f0,f1\n17,owl,1,0\n4,elk,0,2.5\n",
        "label,f0,f1\r\nowl,1,0\r\nelk,0,2.5",
    ],
)
def test_a_csv_is_read_with_and_without_header(tmp_path: Path, text: str) -> None:
    classes = read_text(tmp_path, text)
    assert classes.names == ("owl", "elk")
    np.testing.assert_array_equal(classes.centroids, [[1, 0], [0, 2.5]])


def test_bare_numbers_get_their_row_as_name(tmp_path: Path) -> None:
    classes = read_text(tmp_path, "1,0\n0,2.5\n")
    assert classes.names == ("0", "1")
    np.testing.assert_array_equal(classes.centroids, [[1, 0], [0, 2.5]])


def test_names_stay_as_written(tmp_path: Path) -> None:
    text = 'name,f0,f1\n007,1,0\nnan,0,1\ntrue,1,1\n2020-01-01,2,1\n"a, b",3,1\n'
    assert read_text(tmp_path, text).names == ("007", "nan", "true", "2020-01-01", "a, b")


def test_a_late_fraction_in_a_column_of_whole_numbers(tmp_path: Path) -> None:
    rows = [f"c{i},1,2" for i in range(200_000)] + ["last,0.5,2"]
    classes = read_text(tmp_path, "name,f0,f1\n" + "\n".join(rows) + "\n")
    assert classes.centroids[-1, 0] == 0.5


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0,1,2\n3,4,5\n", "could be either; remove the line"),
        ("name,f0,f1\nowl,1,\n", "no value .* in column 'f1', line 2"),
        ("name,f0,f1\nowl,1,NaN\n", "no value .* in column 'f1', line 2"),
        ("name,f0,f1\nowl,1,inf\n", "finite but got inf in row 0, column 1"),
        ("name,f0,f1\nowl,1,x\nelk,1,y\n", r"'f1' of .* to hold numbers .* \('x' in line 2\)"),
        ("name,a,b\nowl,1,x\nelk,1,2\n", r"'b' of .* to hold numbers .* \('x' in line 2\)"),
        ("f0,f1\n1,x\n1,y\n", r"'f1' of .* to hold numbers .* \('x' in line 2\)"),
        ("owl,1,2\nelk,3,x\n", r"number 3 of .* to hold numbers .* \('x' in line 2\)"),
        ("name,f0,f1\nowl,1\n", "cannot be read"),
        ("name,f0,f1\n", "at least one row but got none"),
        ("\n", "at least one row but got none"),
        ("name;f0;f1\nowl;1;2\n", "commas between the columns"),
        ("name,f0,f0\nowl,1,2\n", "got 'f0' 2 times"),
        ("name,class,f0\nowl,a,2\n", "one column of names .* name and class"),
        (
            "note,synset,f0\nowl,a,2\n",
            "got text in 'note', 'synset'; call the right one class_name",
        ),
        ("name,f0,f1,age\nowl,1,2,70\n", "column of numbers 'age' beside them"),
        ("name\nowl\n", "columns of numbers but there are none"),
        ("class_name,label,f0\nowl,0,1\nelk,0,2\n", "1 labels, 2 names and 2 different pairs"),
    ],
)
def test_what_is_wrong_with_a_csv_is_named(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(InputError, match=message) as caught:
        read_text(tmp_path, text)
    assert "pool.csv" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_other_encodings_are_refused(tmp_path: Path) -> None:
    (tmp_path / "pool.csv").write_bytes("name,f0\nélan,1\n".encode("latin-1"))
    with pytest.raises(InputError, match=r"UTF-?8"):
        read_classes(tmp_path / "pool.csv")


def test_a_parquet_column_of_lists(tmp_path: Path) -> None:
    vectors = [[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]
    for kind in (pa.list_(pa.float32()), pa.list_(pa.float32(), 2), pa.large_list(pa.float64())):
        table = pa.table(
            {"label": pa.array([1, 0, 1]), "feature": pa.array(vectors, kind), "age": [1, 2, 3]}
        )
        pa.parquet.write_table(table, tmp_path / "a.parquet")
        classes = read_classes(tmp_path / "a.parquet")
        assert classes.names == ("0", "1")
        np.testing.assert_array_equal(classes.centroids, [[3, 4], [3, 4]])


def test_a_parquet_of_pandas_categories(tmp_path: Path) -> None:
    names = pa.array(["b", "a", "b"]).dictionary_encode()
    table = pa.table({"class_name": names, "label": [0, 1, 0], "f0": [1.0, 2, 3], "f1": [0, 1, 2]})
    pa.parquet.write_table(table, tmp_path / "a.parquet")
    classes = read_classes(tmp_path / "a.parquet")
    assert classes.names == ("b", "a")
    np.testing.assert_array_equal(classes.centroids, [[2, 1], [2, 1]])


def test_damaged_text_in_a_parquet_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    table = pa.table({"name": ["owl", "elk"], "f0": [1.0, 2.0], "f1": [2.0, 1.0]})
    pa.parquet.write_table(table, path, use_dictionary=False, compression="none")
    path.write_bytes(path.read_bytes().replace(b"elk", b"\xff\xfek"))
    with pytest.raises(InputError, match=r"a\.parquet to be a whole \.parquet file"):
        read_classes(path)


@pytest.mark.parametrize(
    ("vectors", "message"),
    [
        ([[1.0, 2.0], [3.0]], "2 entries but got 1 in row 1"),
        ([[1.0, 2.0], None], "no value .* in column 'emb', row 1"),
        ([[1.0, None], [3.0, 4.0]], "1 missing entries"),
        ([["a", "b"], ["c", "d"]], "lists of numbers but got list<"),
    ],
)
def test_broken_parquet_vectors(tmp_path: Path, vectors: list, message: str) -> None:
    pa.parquet.write_table(pa.table({"name": ["a", "b"], "emb": vectors}), tmp_path / "a.parquet")
    with pytest.raises(InputError, match=message):
        read_classes(tmp_path / "a.parquet")
