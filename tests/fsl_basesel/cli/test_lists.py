"""Reading classes already selected, and costs."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from fsl_basesel.cli.lists import numbers, read_names, read_values
from fsl_basesel.errors import InputError

NAMES = ("owl", "élan", "great white shark", "a, b")


@pytest.mark.parametrize(
    ("file", "text", "expected"),
    [
        ("a.txt", "élan\n\nowl\n", (1, 0)),
        ("a.txt", "great white shark\na, b", (2, 3)),
        ("a.csv", 'rank,index,name,gain\n1,9,"a, b",.5\n2,9,owl,.1\n', (3, 0)),
        ("a.json", json.dumps({"indices": [7, 8], "names": ["élan", "owl"]}), (1, 0)),
        ("a.json", json.dumps(["owl"]), (0,)),
    ],
)
def test_classes_are_listed_by_name(
    tmp_path: Path, file: str, text: str, expected: tuple[int, ...]
) -> None:
    (tmp_path / file).write_text(text, encoding="utf-8")
    assert read_names(tmp_path / file, NAMES) == expected


def test_names_may_be_numbers(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("7\n3\n")
    assert read_names(tmp_path / "a.txt", ["3", "5", "7"]) == (2, 0)


@pytest.mark.parametrize(
    ("file", "text", "message"),
    [
        (
            "a.txt",
            "owls\nowl\n",
            r"got 'owls', .* \(1 of 2 entries unknown\); did you mean 'owl'\?",
        ),
        ("a.txt", "4\n", "names of candidates but got '4'"),
        ("a.txt", "2\n0\n", "names of candidates but got '2'"),
        ("a.txt", "owl\nowl\n", "got 'owl' twice"),
        ("a.txt", " \n", r"list of class names but got \[\]"),
        ("a.csv", "one,two\nowl,élan\n", "columns class_name in .* but it holds one text"),
        ("a.csv", "index,gain\n1,.5\n3,.1\n", "columns class_name in .* but it holds index int64"),
        ("a.csv", "owl\nélan\n", "columns class_name in .* but it holds owl text"),
        ("a.csv", "rank,name\n1,owl\n2\n", "cannot be read.*it may be cut off"),
        ("a.json", '{"names": ["ow', "cannot be read"),
        ("a.json", '{"value": 3}', "list of class names but got None"),
        ("a.json", json.dumps({"indices": [2, 1]}), "list of class names but got None"),
        ("a.json", "[3, 1]", "names of candidates but got '3'"),
        ("a.json", "[" * 100_000, "cannot be read"),
        ("a.yaml", "owl", "end in one of .json, .txt, .csv but got '.yaml'"),
    ],
)
def test_a_bad_list_is_named(tmp_path: Path, file: str, text: str, message: str) -> None:
    (tmp_path / file).write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=message) as caught:
        read_names(tmp_path / file, NAMES)
    assert file in str(caught.value)
    assert "\n" not in str(caught.value)


def read_cost(path: Path, names: tuple[str, ...]) -> np.ndarray:
    return numbers(read_values(path, names, "cost"), names, "cost")


@pytest.mark.parametrize(
    ("file", "text"),
    [
        ("a.csv", 'name,cost\nélan,2\nowl,1\n"a, b",4\ngreat white shark,3e0\nyak,9\n'),
        ("a.csv", 'cost,name\n2,élan\n1,owl\n4,"a, b"\n3,great white shark\n'),
        ("a.json", json.dumps({"a, b": 4, "owl": 1, "élan": 2, "great white shark": 3, "x": 0})),
    ],
)
def test_costs_by_name(tmp_path: Path, file: str, text: str) -> None:
    (tmp_path / file).write_text(text, encoding="utf-8")
    costs = read_cost(tmp_path / file, NAMES)
    assert costs.dtype == np.float64
    assert costs.tolist() == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("1\n2\n3\n4\n", "to name the columns.*but got '1'"),
        ("owl,1\nélan,2\n", "to name the columns.*but got '1'"),
        ("cost\n1\n2\n3\n4\n", "columns class_name and costs in"),
        ("name,cost\nowl,1\n", r"none for 'élan' \(3 missing\)"),
        ("name,cost\nowl,1\nowl,2\n", "got 'owl' twice"),
        ('name,cost\nowl,x\nélan,1\ngreat white shark,1\n"a, b",1\n', "got 'x' for 'owl'"),
        ('name,cost\nowl,nan\nélan,1\ngreat white shark,1\n"a, b",1\n', "got nan for 'owl'"),
        ("name,cost\nowl\n", "cannot be read"),
        ("\n", "to name the columns"),
    ],
)
def test_bad_costs_are_named(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "cost.csv").write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match=message):
        read_cost(tmp_path / "cost.csv", NAMES)


def test_groups_are_text(tmp_path: Path) -> None:
    text = 'name,group\nowl,007\nélan,b\ngreat white shark,b\n"a, b",c\n'
    (tmp_path / "a.csv").write_text(text, encoding="utf-8")
    assert read_values(tmp_path / "a.csv", NAMES, "group") == ["007", "b", "b", "c"]
