"""The program around the commands: help, version, exit codes, streams."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
import warnings
from pathlib import Path

import numpy as np
import pytest

import fsl_basesel as fb
from fsl_basesel.cli import COMMANDS, main


def test_version(run) -> None:
    result = run("--version")
    assert (result.code, result.out, result.err) == (0, f"fsl-basesel {fb.__version__}\n", "")


def test_help_lists_the_commands_that_exist(run) -> None:
    result = run("--help")
    assert result.code == 0
    for name in COMMANDS:
        assert re.search(rf"^    {name}( |$)", result.out, re.M)
    assert "examples:" in result.out
    assert max(map(len, result.out.splitlines())) <= 80


@pytest.mark.parametrize("command", COMMANDS)
def test_help_of_a_command_has_examples_and_fits_80_columns(run, command: str) -> None:
    result = run(command, "--help")
    assert result.code == 0
    assert f"  fsl-basesel {command} " in result.out
    assert max(map(len, result.out.splitlines())) <= 82


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ([], "required: COMMAND"),
        (["choose"], "invalid choice: 'choose'"),
        (["select", "a.npz", "-m", "many"], "argument -m: invalid int value: 'many'"),
        (["select", "a.npz", "--form", "json"], "unrecognized arguments: --form json"),
        (["select", "a.npz", "--method", "magic"], "argument --method: invalid choice: 'magic'"),
        (["select", "a.npz", "--format", "xml"], "argument --format: invalid choice: 'xml'"),
    ],
)
def test_bad_usage_is_one_line_and_exit_code_2(run, words: list[str], message: str) -> None:
    result = run(*words)
    assert result.code == 2
    assert result.out == ""
    assert message in result.err
    assert result.err.count("\n") == 1
    assert "--help)" in result.err


def test_ctrl_c_leaves_130_and_no_traceback(run, pool: Path, monkeypatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(fb, "select", interrupted)
    result = run("select", pool, "-m", 3)
    assert (result.code, result.out, result.err) == (130, "", "fsl-basesel: interrupted\n")


@pytest.mark.parametrize("form", ["json", "csv", "table"])
def test_a_reader_that_leaves_is_no_error(pool: Path, form: str, capfd, monkeypatch) -> None:
    read, write = os.pipe()
    os.close(read)
    with open(write, "w", encoding="utf-8") as stream:
        monkeypatch.setattr(sys, "stdout", stream)
        assert main(["select", str(pool), "-m", "3", "--format", form]) == 141
    assert capfd.readouterr().err == ""


def test_names_reach_a_terminal_that_cannot_show_them(pool: Path, monkeypatch) -> None:
    for form in ("table", "json"):
        raw = io.BytesIO()
        stream = io.TextIOWrapper(raw, encoding="ascii")
        monkeypatch.setattr(sys, "stdout", stream)
        assert main(["select", str(pool), "-m", "20", "--top", "20", "--format", form]) == 0
        stream.flush()
        text = raw.getvalue()
        assert ("élan-0".encode() in text) == (form == "json")
        assert (b"?lan-0" in text) == (form == "table")
        stream.detach()


def test_our_warnings_are_notes_and_others_stay(run, tmp_path: Path, monkeypatch) -> None:
    features = np.random.default_rng(0).random((6, 3))
    names = ["a", "b", "c", "none"]
    np.savez(tmp_path / "pool.npz", feat=features, label=[0, 1, 2, 0, 1, 2], names=names)
    result = run("select", tmp_path / "pool.npz", "-m", 1, "-k", 1)
    assert result.code == 0
    assert result.err.startswith("note: 1 of the 4 classes have no sample")
    assert result.err.count("\n") == 1
    before = warnings.showwarning
    main(["--version"])
    assert warnings.showwarning is before


def test_the_installed_script_is_this_program() -> None:
    script = Path(sys.executable).with_name("fsl-basesel")
    if not script.exists():
        pytest.skip("fsl-basesel is not installed beside this Python")
    done = subprocess.run([script, "--version"], capture_output=True, check=True, text=True)
    assert done.stdout == f"fsl-basesel {fb.__version__}\n"
    assert os.access(script, os.X_OK)


def test_running_out_of_memory_is_one_line_with_the_size(run, tmp_path: Path) -> None:
    np.save(tmp_path / "f.npy", np.random.default_rng(0).random((3, 4)))
    words = ("select", "--similarity", tmp_path / "f.npy", "-m", 2)

    def full(*_: object, **__: object) -> None:
        np.empty((10**9, 10**6))

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(fb, "select", full)
        result = run(*words)
    assert (result.code, result.out) == (1, "")
    assert re.fullmatch(
        r"fsl-basesel: error: out of memory: .* 7.11 PiB .*; [\d.]+ GB are free\n", result.err
    )
