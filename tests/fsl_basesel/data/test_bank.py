"""The template bank: its cache under kills, races, damage and a disk that cannot be written."""

import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from fsl_basesel.data import cache
from fsl_basesel.data.glyphs import templates
from fsl_basesel.data.glyphs.templates import MINIMUM_FACES, THRESHOLD, near_duplicates
from fsl_basesel.files.writing import whole_file


@pytest.fixture
def small_bank(monkeypatch: pytest.MonkeyPatch) -> templates.Bank:
    """A bank that takes no time to draw, in place of the real one, and nothing in memory."""
    pixels = np.random.default_rng(0).integers(0, 255, (6, 32, 32), np.uint8)
    made = templates.Bank(np.array([65, 66]), np.array([0, 2, 6]), pixels)
    monkeypatch.setattr(templates, "draw_bank", lambda: made)
    templates._bank.cache_clear()
    yield made
    templates._bank.cache_clear()


def load_again(monkeypatch: pytest.MonkeyPatch) -> templates.Bank:
    """What a new process would load, failing if it had to draw."""
    templates._bank.cache_clear()
    with monkeypatch.context() as patch:
        patch.setattr(templates, "draw_bank", lambda: pytest.fail("the bank was drawn again"))
        return templates.bank()


def test_the_bank_is_kept_on_disk_and_read_back(
    small_bank: templates.Bank,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv("FSL_BASESEL_CACHE", str(tmp_path / "new" / "folder"))
    assert templates.bank() is small_bank
    assert "Drawing the glyph templates" in caplog.text  # it takes seconds: say so, once
    caplog.clear()
    stored = load_again(monkeypatch)
    assert not caplog.text
    for field in ("codes", "starts", "templates"):
        assert np.array_equal(getattr(stored, field), getattr(small_bank, field))


@pytest.mark.parametrize("damage", ["empty", "cut", "flipped", "other"])
def test_a_damaged_file_is_made_again(
    small_bank: templates.Bank, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, damage: str
) -> None:
    monkeypatch.setenv("FSL_BASESEL_CACHE", str(tmp_path))
    templates.bank()
    (file,) = tmp_path.iterdir()
    content = bytearray(file.read_bytes())
    if damage == "flipped":
        content[len(content) // 2] ^= 0xFF
    file.write_bytes({"empty": b"", "cut": content[:3000], "other": b"text"}.get(damage, content))
    templates._bank.cache_clear()
    assert np.array_equal(templates.bank().templates, small_bank.templates)
    assert np.array_equal(load_again(monkeypatch).templates, small_bank.templates)


def test_without_a_writable_disk_the_bank_is_drawn(
    small_bank: templates.Bank, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("a file where a folder should be")
    monkeypatch.setenv("FSL_BASESEL_CACHE", str(tmp_path / "file" / "cache"))
    assert templates.bank() is small_bank


def test_a_process_killed_while_it_writes_leaves_no_file(tmp_path: Path) -> None:
    program = (
        "import os, signal, sys\n"
        "from fsl_basesel.files.writing import whole_file\n"
        "with whole_file(sys.argv[1]) as file:\n"
        "    file.write(b'half')\n"
        "    file.flush()\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    run = subprocess.run([sys.executable, "-c", program, str(tmp_path / "bank")])
    assert run.returncode == -signal.SIGKILL
    (left,) = tmp_path.iterdir()
    assert left.name.startswith(".bank.")


def write(path: Path, content: bytes) -> None:
    with whole_file(path) as file:
        file.write(content)


def test_what_killed_processes_left_is_cleared_away(tmp_path: Path) -> None:
    (tmp_path / ".bank.old.part").write_bytes(b"half")
    (tmp_path / ".bank.new.part").write_bytes(b"half")  # perhaps being written at this moment
    os.utime(tmp_path / ".bank.old.part", (time.time() - 7200,) * 2)
    write(tmp_path / "bank", b"whole")
    assert sorted(f.name for f in tmp_path.iterdir()) == [".bank.new.part", "bank"]


def test_a_reader_never_meets_a_half_written_file(tmp_path: Path) -> None:
    write(tmp_path / "bank", b"a" * 1000)
    with whole_file(tmp_path / "bank") as file:
        for _ in range(10):
            file.write(b"b" * 100)
            file.flush()
            assert (tmp_path / "bank").read_bytes() == b"a" * 1000
    assert (tmp_path / "bank").read_bytes() == b"b" * 1000


def test_two_writers_at_once_leave_one_whole_file(tmp_path: Path) -> None:
    def write_often(letter: bytes) -> None:
        for _ in range(30):
            write(tmp_path / "bank", letter * 100_000)

    with ThreadPoolExecutor(2) as threads:
        writers = [threads.submit(write_often, letter) for letter in (b"a", b"b")]
        while not all(writer.done() for writer in writers):
            if (tmp_path / "bank").exists():
                content = (tmp_path / "bank").read_bytes()
                assert len(content) == 100_000
                assert len(set(content)) == 1
        for writer in writers:
            writer.result()
    assert [file.name for file in tmp_path.iterdir()] == ["bank"]


def test_a_full_disk_leaves_nothing_and_the_bank_is_drawn(
    small_bank: templates.Bank, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FSL_BASESEL_CACHE", str(tmp_path))

    def full(file: object, **arrays: object) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr(np, "savez", full)
    assert templates.bank() is small_bank
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("platform", "variable", "expected"),
    [("linux", "XDG_CACHE_HOME", "fsl-basesel"), ("win32", "LOCALAPPDATA", "fsl-basesel")],
)
def test_the_cache_is_where_the_platform_keeps_caches(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, platform: str, variable: str, expected: str
) -> None:
    monkeypatch.delenv("FSL_BASESEL_CACHE", raising=False)
    monkeypatch.setattr(sys, "platform", platform)
    monkeypatch.setenv(variable, str(tmp_path))
    assert cache.cache_folder() == tmp_path / expected


def test_every_class_has_four_faces_or_more_and_ink_in_each() -> None:
    bank = templates.bank()
    assert bank.starts[-1] == len(bank.templates)
    assert np.diff(bank.starts).min() >= MINIMUM_FACES
    assert np.diff(bank.starts).max() <= len(templates.FACES)
    assert np.all(bank.templates.reshape(len(bank.templates), -1).max(1) == 255)


def test_templates_are_centred_and_fill_the_square() -> None:
    pictures = templates.bank().templates
    rows, columns = (pictures.max(axis) > 40 for axis in (2, 1))
    extents = []
    for ink in (rows, columns):
        first, last = ink.argmax(1), ink.shape[1] - 1 - ink[:, ::-1].argmax(1)
        assert np.mean(np.abs(first + last - 31) <= 2) > 0.99  # the middle is within one pixel
        assert np.abs(first + last - 31).max() <= 10
        extents.append(last - first + 1)
    assert np.mean(np.maximum(*extents) >= templates.INK - 2) > 0.99


def pooled(picture: np.ndarray) -> np.ndarray:
    return picture.reshape(16, 2, 16, 2).sum((1, 3)).ravel().astype(float)


def test_no_two_classes_look_alike_and_every_dropped_one_does() -> None:
    """Against numpy's own correlation, pair by pair, on some characters in three faces."""
    rng = np.random.default_rng(0)
    base = rng.integers(0, 255, (20, 3, 32, 32)).astype(np.uint8)
    # Characters 20-39 are noisy copies, from near-identical to quite different.
    strength = np.linspace(0.02, 0.6, 20)[:, None, None, None]
    noisy = (1 - strength) * base + strength * rng.integers(0, 255, base.shape)
    pictures = np.concatenate([base, noisy.astype(np.uint8)])
    present = rng.random((40, 3)) < 0.8
    present[:, 0] = True
    owner, face = np.nonzero(present)
    kept = near_duplicates(pictures[owner, face], owner, face)

    def correlation(a: int, b: int) -> float:
        shared = np.flatnonzero(present[a] & present[b])
        values = [np.corrcoef(pooled(pictures[a, f]), pooled(pictures[b, f]))[0, 1] for f in shared]
        return float(np.mean(values))

    for later in range(40):
        alike = [b for b in range(later) if kept[b] < 0 and correlation(later, b) >= THRESHOLD]
        assert kept[later] == (min(alike) if alike else -1)
    assert 0 < (kept >= 0).sum() < 20


def test_characters_without_a_common_face_are_not_compared() -> None:
    picture = np.random.default_rng(0).integers(0, 255, (1, 32, 32)).astype(np.uint8)
    pictures = np.repeat(picture, 2, axis=0)
    assert near_duplicates(pictures, np.array([0, 1]), np.array([0, 1])).tolist() == [-1, -1]
    assert near_duplicates(pictures, np.array([0, 1]), np.array([0, 0])).tolist() == [-1, 0]
