"""Reading tables: headers, columns and what is refused rather than guessed at."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest

from fsl_basesel.errors import InputError
from fsl_basesel.files.classes import read_classes
from fsl_basesel.similarity import ClassCentroids


def read_text(tmp_path: Path, text: str) -> ClassCentroids:
    """The classes of a .csv with this text."""
    path = tmp_path / "pool.csv"
    path.write_text(text, encoding="utf-8")
    return read_classes(path)


@pytest.mark.parametrize(
    "text",
    [
        "name,f0,f1\nowl,1,0\nelk,0,2.5\n",
        '\ufeff"name","f 0","f 1"\n"owl",1,0\n"elk",0,2.5\n',
        "class_name,note,f0,f1\nowl,big eyes,1,0\nelk,antlers,0,2.5\n",
        "id,class_name,f0,f1,age\n17,owl,1,0,3\n4,elk,0,2.5,4\n",
        "label,f0,f1\r\nowl,1,0\r\nelk,0,2.5",
    ],
)
def test_a_csv_is_read_by_its_first_line(tmp_path: Path, text: str) -> None:
    classes = read_text(tmp_path, text)
    assert classes.names == ("owl", "elk")
    np.testing.assert_array_equal(classes.values, [[1, 0], [0, 2.5]])


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("owl,1,0\nelk,0,2.5\n", "'1'"),
        ("1,0\n0,2.5\n", "'1'"),
        ("0,1,2\n3,4,5\n", "'0'"),
        ("class_name,0,1\nowl,1,0\nelk,0,2.5\n", "'0'"),
        (",class,f0,f1\n0,owl,1,0\n", "''"),
        ("name;f0;f1\nowl;1;2\n", "'name;f0;f1'"),
        ("name,f0,f0\nowl,1,2\n", "one name twice"),
        ("\n", "''"),
    ],
)
def test_a_first_line_that_names_no_columns_is_refused(
    tmp_path: Path, text: str, what: str
) -> None:
    expected = f"pool.csv to name the columns, separated by commas, but got {what}"
    with pytest.raises(InputError, match=re.escape(expected)) as caught:
        read_text(tmp_path, text)
    assert str(caught.value).endswith("write it as in name,f0,f1,f2")


def test_names_stay_as_written(tmp_path: Path) -> None:
    text = 'name,f0,f1\n007,1,0\nnan,0,1\ntrue,1,1\n2020-01-01,2,1\n"a, b",3,1\n'
    assert read_text(tmp_path, text).names == ("007", "nan", "true", "2020-01-01", "a, b")


def test_a_late_fraction_in_a_column_of_whole_numbers(tmp_path: Path) -> None:
    rows = [f"c{i},1,2" for i in range(200_000)] + ["last,0.5,2"]
    classes = read_text(tmp_path, "name,f0,f1\n" + "\n".join(rows) + "\n")
    assert classes.values[-1, 0] == 0.5


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name,f0,f1\nowl,1,\n", r"column 'f1' to hold numbers but got text|nan at \[0, 1\]"),
        ("name,f0,f1\nowl,1,NaN\nelk,1,1\n", r"nan at \[0, 1\]"),
        ("name,f0,f1\nowl,1,inf\n", r"got inf at \[0, 1\]"),
        ("name,f0,f1\nowl,1,x\nelk,1,y\n", r"column 'f1' to hold numbers but got text \[2\]"),
        ("name,f0,f1\nowl,1,x\nelk,1,2\n", r"column 'f1' to hold numbers but got text \[2\]"),
        ("name,f0,f1\nowl,1\n", "cannot be read"),
        ("name,f0,f1\n", "at least one row but got none"),
        ("name,class_name,f0\nowl,a,2\n", "one array of names .* name and class_name"),
        ("note,synset,f0\nowl,a,x\n", r"column 'f0' to hold numbers"),
        ("name,a,b\nowl,1,2\n", r"columns f0, f1, \.\.\.\) but it holds name text"),
        ("name\nowl\n", r"columns f0, f1, \.\.\.\) but it holds name text \[1\]"),
        ("name,f0\nowl,1\nowl,2\n", "2 different names.*but got 1.*call their classes `labels`"),
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
            {"label": pa.array([1, 0, 1]), "features": pa.array(vectors, kind), "age": [1, 2, 3]}
        )
        pa.parquet.write_table(table, tmp_path / "a.parquet")
        classes = read_classes(tmp_path / "a.parquet")
        assert classes.names == ("0", "1")
        np.testing.assert_array_equal(classes.values, [[3, 4], [3, 4]])


def test_a_parquet_of_pandas_categories(tmp_path: Path) -> None:
    names = pa.array(["b", "a", "b"]).dictionary_encode()
    table = pa.table({"label": names, "f0": [1.0, 2, 3], "f1": [0, 1, 2]})
    pa.parquet.write_table(table, tmp_path / "a.parquet")
    classes = read_classes(tmp_path / "a.parquet")
    assert classes.names == ("b", "a")
    np.testing.assert_array_equal(classes.values, [[2, 1], [2, 1]])


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
        ([[1.0, 2.0], [3.0]], "lists of different lengths: .*1.*2"),
        ([[1.0, 2.0], None], "lists of different lengths"),
        ([[1.0, None], [3.0, 4.0]], r"nan at \[0, 1\]"),
        ([["a", "b"], ["c", "d"]], "matrix of numbers|cannot be read"),
    ],
)
def test_broken_parquet_vectors(tmp_path: Path, vectors: list, message: str) -> None:
    pa.parquet.write_table(pa.table({"name": ["a", "b"], "emb": vectors}), tmp_path / "a.parquet")
    with pytest.raises(InputError, match=message):
        read_classes(tmp_path / "a.parquet")


def test_a_million_columns_are_refused_before_they_are_read(tmp_path: Path) -> None:
    path = tmp_path / "wide.csv"
    path.write_text(",".join(f"f{i}" for i in range(10**6)) + "\n" + "1," * (10**6 - 1) + "1\n")
    with pytest.raises(InputError, match=r"at most 65536 columns in .*wide\.csv but got 1000000"):
        read_classes(path)
