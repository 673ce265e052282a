"""Reading a similarity matrix made elsewhere."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import torch

from fsl_basesel.errors import InputError
from fsl_basesel.files.classes import read_similarity

VALUES = np.array([[0.5, 1.0, 0.25], [0.0, 0.75, -0.5]])
CANDIDATES = ("owl", "élan", "yak")
NOVEL = ("牛", "bat")


def test_classes_of_a_bare_matrix_are_named_by_number(tmp_path: Path) -> None:
    np.save(tmp_path / "f.npy", VALUES.astype(np.float16))
    read = read_similarity(tmp_path / "f.npy")
    np.testing.assert_array_equal(read.values, VALUES)
    assert read.values.dtype == np.float32
    assert read.names == tuple(map(str, range(VALUES.shape[1])))
    assert read.novel_names == tuple(map(str, range(len(VALUES))))


def test_named_arrays(tmp_path: Path) -> None:
    np.savez(tmp_path / "f.npz", similarity=VALUES, names=CANDIDATES, novel_names=NOVEL)
    torch.save(
        {"similarity": torch.tensor(VALUES), "names": list(CANDIDATES), "novel_names": list(NOVEL)},
        tmp_path / "f.pt",
    )
    for name in ("f.npz", "f.pt", "f.npz:similarity"):
        read = read_similarity(tmp_path / name)
        np.testing.assert_array_equal(read.values, VALUES)
        assert (read.names, read.novel_names) == (CANDIDATES, NOVEL)


def test_a_csv_names_candidates_above_and_novel_classes_beside(tmp_path: Path) -> None:
    rows = [f"{name},{','.join(map(str, row))}" for name, row in zip(NOVEL, VALUES, strict=True)]
    text = "\n".join([f"novel,{','.join(CANDIDATES)}", *rows])
    (tmp_path / "f.csv").write_text(text, encoding="utf-8")
    read = read_similarity(tmp_path / "f.csv")
    np.testing.assert_array_equal(read.values, VALUES)
    assert (read.names, read.novel_names) == (CANDIDATES, NOVEL)


def test_weights_are_no_candidate_whatever_the_file(tmp_path: Path) -> None:
    (tmp_path / "f.csv").write_text("novel,owl,Weight,yak\nbat,0.5,2,1\ncow,0.1,3,0\n")
    np.savez(tmp_path / "f.npz", similarity=VALUES, Weights=[2, 3])
    for name in ("f.csv", "f.npz"):
        assert read_similarity(tmp_path / name).weights.tolist() == [2, 3]
    assert read_similarity(tmp_path / "f.csv").names == ("owl", "yak")
    np.savez(tmp_path / "two.npz", similarity=VALUES, weights=[2, 3], weight=[1, 1])
    with pytest.raises(InputError, match=r"one array of weights .* but got weights and weight"):
        read_similarity(tmp_path / "two.npz")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("0.5,1\n0,0.75\n", "to name the columns, .* but got '0.5'"),
        (",owl,elk\nbat,1,2\n", "to name the columns, .* but got ''"),
        ("class,owl,elk\nbat,1,2\n", r"a first column `novel`.*but it holds class text \[1\]"),
        ("novel,owl,elk\nbat,0.5,high\n", "column 'elk' to hold numbers but got text"),
        ("novel\nbat\n", "columns of numbers but got none"),
    ],
)
def test_a_table_that_does_not_say_what_it_is_is_refused(
    tmp_path: Path, text: str, message: str
) -> None:
    (tmp_path / "f.csv").write_text(text)
    with pytest.raises(InputError, match=message):
        read_similarity(tmp_path / "f.csv")


def test_a_parquet_table(tmp_path: Path) -> None:
    columns = {"novel": list(NOVEL)} | {n: VALUES[:, i] for i, n in enumerate(CANDIDATES)}
    pa.parquet.write_table(pa.table(columns), tmp_path / "f.parquet")
    read = read_similarity(tmp_path / "f.parquet")
    np.testing.assert_array_equal(read.values, VALUES)
    assert (read.names, read.novel_names) == (CANDIDATES, NOVEL)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"similarity": VALUES, "names": NOVEL}, r"Expected 3 names but got 2"),
        ({"a": VALUES, "b": VALUES}, r"holds a float64 \[2, 3\], b float64 \[2, 3\].*f\.npz:KEY"),
        ({"sim": VALUES}, r"an array `similarity`.*holds sim float64"),
        ({"similarity": VALUES[0]}, r"shape \(3,\)"),
        ({"similarity": VALUES * np.nan}, r"got nan at \[0, 0\]"),
    ],
)
def test_a_bad_matrix_is_named(tmp_path: Path, arrays: dict, message: str) -> None:
    np.savez(tmp_path / "f.npz", **arrays)
    with pytest.raises(InputError, match=message):
        read_similarity(tmp_path / "f.npz")
