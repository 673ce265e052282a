"""Reading a similarity matrix made elsewhere."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet
import pytest
import torch

from fsl_basesel.errors import InputError
from fsl_basesel.files.matrices import read_similarity

VALUES = np.array([[0.5, 1.0, 0.25], [0.0, 0.75, -0.5]])
CANDIDATES = ("owl", "élan", "yak")
NOVEL = ("牛", "bat")


def test_a_bare_matrix_has_no_names(tmp_path: Path) -> None:
    np.save(tmp_path / "f.npy", VALUES.astype(np.float16))
    read = read_similarity(tmp_path / "f.npy")
    np.testing.assert_array_equal(read.values, VALUES)
    assert read.values.dtype == np.float32
    assert read.names is None
    assert read.novel_names is None


def test_named_arrays(tmp_path: Path) -> None:
    np.savez(tmp_path / "f.npz", similarity=VALUES, candidates=CANDIDATES, novel=NOVEL)
    torch.save(
        {"sim": torch.tensor(VALUES), "names": list(CANDIDATES), "novel_names": list(NOVEL)},
        tmp_path / "f.pt",
    )
    for name in ("f.npz", "f.pt", "f.npz:similarity"):
        read = read_similarity(tmp_path / name)
        np.testing.assert_array_equal(read.values, VALUES)
        assert (read.names, read.novel_names) == (CANDIDATES, NOVEL)


@pytest.mark.parametrize("corner", ["novel", "", "class"])
def test_a_csv_names_candidates_above_and_novel_classes_beside(tmp_path: Path, corner: str) -> None:
    rows = [f"{name},{','.join(map(str, row))}" for name, row in zip(NOVEL, VALUES, strict=True)]
    text = "\n".join([f"{corner},{','.join(CANDIDATES)}", *rows])
    (tmp_path / "f.csv").write_text(text, encoding="utf-8")
    read = read_similarity(tmp_path / "f.csv")
    np.testing.assert_array_equal(read.values, VALUES)
    assert (read.names, read.novel_names) == (CANDIDATES, NOVEL)


def test_a_table_without_names(tmp_path: Path) -> None:
    np.savetxt(tmp_path / "f.csv", VALUES, delimiter=",")
    read = read_similarity(tmp_path / "f.csv")
    np.testing.assert_array_equal(read.values, VALUES)
    assert (read.names, read.novel_names) == (None, None)


def test_a_parquet_table(tmp_path: Path) -> None:
    columns = {"novel": list(NOVEL)} | {n: VALUES[:, i] for i, n in enumerate(CANDIDATES)}
    pa.parquet.write_table(pa.table(columns), tmp_path / "f.parquet")
    read = read_similarity(tmp_path / "f.parquet")
    np.testing.assert_array_equal(read.values, VALUES)
    assert (read.names, read.novel_names) == (CANDIDATES, NOVEL)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"similarity": VALUES, "names": NOVEL}, r"Expected 3 names of candidates .* but got 2"),
        ({"similarity": VALUES, "f": VALUES}, r"got several \(similarity, f\)"),
        ({"a": VALUES, "b": VALUES}, r"holds a float64 \[2, 3\], b float64 \[2, 3\]"),
        ({"similarity": VALUES[0]}, r"but got float64 \[3\]"),
        ({"similarity": VALUES * np.nan}, r"got nan in row 0, column 0"),
    ],
)
def test_a_bad_matrix_is_named(tmp_path: Path, arrays: dict, message: str) -> None:
    np.savez(tmp_path / "f.npz", **arrays)
    with pytest.raises(InputError, match=message):
        read_similarity(tmp_path / "f.npz")


def test_text_in_the_matrix_is_refused(tmp_path: Path) -> None:
    (tmp_path / "f.csv").write_text("novel,owl,elk\nbat,0.5,high\n")
    with pytest.raises(
        InputError, match=r"column 'elk' .* numbers but got string \('high' in line 2"
    ):
        read_similarity(tmp_path / "f.csv")
    (tmp_path / "f.csv").write_text("novel\nbat\n")
    with pytest.raises(InputError, match="one column of text"):
        read_similarity(tmp_path / "f.csv")
