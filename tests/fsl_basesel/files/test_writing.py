"""Writing: whole or not at all, with the rights the user asked for, in any number of threads."""

from __future__ import annotations

import csv
import os
import stat
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from fsl_basesel.errors import InputError
from fsl_basesel.files.writing import (
    csv_text,
    load_json,
    load_npz,
    save_npz,
    whole_file,
    write_text,
)


@pytest.fixture
def strict_umask() -> Iterator[None]:
    before = os.umask(0o027)
    yield
    os.umask(before)


def test_a_file_gets_the_rights_of_the_umask(strict_umask: None, tmp_path: Path) -> None:
    path = write_text(tmp_path / "new" / "a.txt", "ü\r\n")
    assert path.read_bytes() == "ü\r\n".encode()
    assert stat.S_IMODE(path.stat().st_mode) == 0o640


def test_writing_never_changes_the_umask_of_the_process(
    strict_umask: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []
    monkeypatch.setattr(os, "umask", lambda mask: asked.append(mask) or 0o027)
    write_text(tmp_path / "a.txt", "a")
    assert not asked


def test_files_of_other_threads_keep_their_rights(strict_umask: None, tmp_path: Path) -> None:
    done = threading.Event()

    def write(number: int) -> None:
        while not done.is_set():
            write_text(tmp_path / f"{number}.txt", "text")

    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    modes = set()
    for number in range(300):
        other = tmp_path / f"other-{number}"
        other.touch()
        modes.add(stat.S_IMODE(other.stat().st_mode))
    done.set()
    for thread in threads:
        thread.join()
    assert modes == {0o640}
    assert os.umask(0o027) == 0o027
    assert not list(tmp_path.glob(".*"))


@pytest.mark.parametrize("step", ["write", "fsync", "replace"])
def test_what_fails_leaves_the_old_file_and_nothing_else(
    step: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_text(tmp_path / "a.txt", "old")

    def fail(*_: object) -> None:
        raise OSError("no space")

    if step != "write":
        monkeypatch.setattr(os, step, fail)

    def write() -> None:
        with whole_file(path) as file:
            file.write(b"new")
            if step == "write":
                fail()

    with pytest.raises(OSError, match="no space"):
        write()
    assert path.read_text() == "old"
    assert [file.name for file in tmp_path.iterdir()] == ["a.txt"]


def test_what_a_kill_left_behind_is_deleted_later(tmp_path: Path) -> None:
    left, fresh, other = (tmp_path / f".{name}.part" for name in ("a.txt.0", "a.txt.1", "b.txt.0"))
    for part in (left, fresh, other):
        part.touch()
    for part in (left, other):
        os.utime(part, (time.time() - 7200,) * 2)
    write_text(tmp_path / "a.txt", "a")
    assert {file.name for file in tmp_path.iterdir()} == {"a.txt", fresh.name, other.name}


def test_csv_reads_back_exactly() -> None:
    rows = [{"name": 'a, "b"\nc', "x": 0.1 + 0.2}, {"name": "ü", "x": None}]
    again = list(csv.DictReader(csv_text(rows).splitlines(keepends=True)))
    assert [row["name"] for row in again] == ['a, "b"\nc', "ü"]
    assert float(again[0]["x"]) == 0.1 + 0.2
    assert again[1]["x"] == ""
    assert csv_text([], ["a", "b"]) == "a,b\n"
    assert csv_text([{"a": 1, "b": 2}], ["b", "a"]) == "b,a\n2,1\n"


@pytest.mark.parametrize("compress", [False, True])
def test_arrays_read_back(compress: bool, tmp_path: Path) -> None:
    path = save_npz(tmp_path / "new" / "a.npz", "things 1", compress=compress, x=np.eye(3))
    assert load_npz(path, "things 1", ["x"], what="things")["x"].tolist() == np.eye(3).tolist()
    with pytest.raises(InputError, match=r"to be things but.*'things 2' is expected"):
        load_npz(path, "things 2", what="things")
    with pytest.raises(InputError, match="lacks the array 'y'"):
        load_npz(path, "things 1", ["x", "y"], what="things")
    with pytest.raises(InputError, match=r"none\.npz"):
        load_npz(tmp_path / "none.npz", None, what="things")
    np.savez(path, x=np.array([object()]))
    with pytest.raises(InputError, match=r"a\.npz' to be things"):
        load_npz(path, None, what="things")


@pytest.mark.parametrize(
    "text", ["", "[]", "5", "null", '{"format": "b"}', '{"format": "a", "x": NaN}', "[" * 100_000]
)
def test_a_json_file_of_something_else_is_refused(text: str, tmp_path: Path) -> None:
    path = write_text(tmp_path / "a.json", text)
    with pytest.raises(InputError, match=r"a\.json' to be things but it could not be read"):
        load_json(path, "a", what="things")


def test_json_fields_come_without_the_format(tmp_path: Path) -> None:
    path = write_text(tmp_path / "a.json", '{"format": "a", "x": [1, "ü"]}')
    assert load_json(path, "a", what="things") == {"x": [1, "ü"]}
