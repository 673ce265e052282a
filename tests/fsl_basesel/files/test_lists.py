"""Reading classes already selected, and costs."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from fsl_basesel.errors import InputError
from fsl_basesel.files.lists import read_cost, read_selected

NAMES = ("owl", "élan", "great white shark", "a, b")


@pytest.mark.parametrize(
    ("file", "text", "expected"),
    [
        ("a.txt", "élan\n\nowl\n", (1, 0)),
        ("a.txt", "great white shark\na, b", (2, 3)),
        ("a.txt", "2\n0\n", (2, 0)),
        ("a.csv", 'rank,index,name,gain\n1,9,"a, b",.5\n2,9,owl,.1\n', (3, 0)),
        ("a.csv", "index,gain\n1,.5\n3,.1\n", (1, 3)),
        ("a.csv", "owl\nélan\n", (0, 1)),
        ("a.json", json.dumps({"indices": [7, 8], "names": ["élan", "owl"]}), (1, 0)),
        ("a.json", json.dumps({"indices": [2, 1]}), (2, 1)),
        ("a.json", json.dumps(["owl"]), (0,)),
        ("a.json", "[3, 1]", (3, 1)),
    ],
)
def test_selected_classes_by_name_or_position(
    tmp_path: Path, file: str, text: str, expected: tuple[int, ...]
) -> None:
    (tmp_path / file).write_text(text, encoding="utf-8")
    assert read_selected(tmp_path / file, NAMES) == expected


def test_names_that_are_numbers_are_names_first(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("7\n3\n")
    assert read_selected(tmp_path / "a.txt", ["3", "5", "7"]) == (2, 0)


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        (
            "a.txt",
            "owls\nowl\n",
            r"got 'owls', .* \(1 of 2 entries unknown\); did you mean 'owl'\?",
        ),
        ("a.txt", "4\n", "0 to 3 in .*a.txt but got 4"),
        ("a.txt", "owl\nowl\n", "got 'owl' twice"),
        ("a.txt", " \n", "at least one class but got none"),
        ("a.csv", "one,two\nowl,élan\n", "one called class_name, but got 2 columns"),
        ("a.csv", 'rank,name\n1,owl\n2"', "cannot be read|cut off|columns"),
        ("a.csv", "rank,name\n1,owl\n2\n", "line 3 of .* but got 1; it may be cut off"),
        ("a.json", '{"names": ["ow', "cannot be read"),
        ("a.json", '{"value": 3}', "another JSON document"),
        ("a.yaml", "owl", "end in one of .json, .txt, .csv but got '.yaml'"),
    ],
)
def test_a_bad_list_is_named(tmp_path: Path, file: str, text: str, message: str) -> None:
    (tmp_path / file).write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=message) as caught:
        read_selected(tmp_path / file, NAMES)
    assert file in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("a.csv", 'name,cost\nélan,2\nowl,1\n"a, b",4\ngreat white shark,3e0\nyak,9\n'),
        ("a.csv", 'élan,2\nowl,1\n"a, b",4\ngreat white shark,3\n'),
        ("a.csv", 'cost,name\n2,élan\n1,owl\n4,"a, b"\n3,great white shark\n'),
        ("a.csv", "1\n2\n3\n4\n"),
        ("a.csv", "cost\n1\n2\n3\n4\n"),
        ("a.txt", "1\n2.0\n3\n4\n"),
    ],
)
def test_costs_by_name_or_in_order(tmp_path: Path, file: str, text: str) -> None:
    (tmp_path / file).write_text(text, encoding="utf-8")
    costs = read_cost(tmp_path / file, NAMES)
    assert costs.dtype == np.float64
    assert costs.tolist() == [1, 2, 3, 4]


def test_costs_from_arrays(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.arange(4, dtype=np.int16))
    assert read_cost(tmp_path / "a.npy", NAMES).tolist() == [0, 1, 2, 3]
    np.savez(tmp_path / "a.npz", cost=np.arange(4.0), other=np.eye(2))
    assert read_cost(tmp_path / "a.npz", NAMES).tolist() == [0, 1, 2, 3]
    np.savez(tmp_path / "a.npz", first=np.arange(4.0), other=np.eye(2))
    with pytest.raises(InputError, match=r"one array `cost` .* first float64 \[4\]"):
        read_cost(tmp_path / "a.npz", NAMES)
    np.save(tmp_path / "a.npy", np.array(["a"] * 4))
    with pytest.raises(InputError, match=r"numbers but got text \[4\]"):
        read_cost(tmp_path / "a.npy", NAMES)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1\n2\n3\n", r"Expected 4 costs .* but got float64 \[3\]"),
        ("1\n2\nnan\n3\n", "finite costs .* but got nan for 'great white shark'"),
        ("name,cost\nowl,1\n", r"none for 'élan' \(3 missing\)"),
        ("name,cost\nowl,1\nowl,2\n", "got 'owl' twice"),
        ("name,cost\nowl,x\n", "line 2 of .* end in a number but got 'owl,x'"),
        ("name,cost\nowl\n", "line 2"),
        ("1\n2,3\n", "line 2 of .* end in a number"),
        ("\n", "Expected 4 costs"),
    ],
)
def test_bad_costs_are_named(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "cost.csv").write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=message):
        read_cost(tmp_path / "cost.csv", NAMES)
