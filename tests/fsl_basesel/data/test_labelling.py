"""The labelling queue: asks, waits, goes on where it was."""

import json
import os
from pathlib import Path

import pytest
from PIL import Image

from fsl_basesel.data import LabellingQueue, LabelsPending
from fsl_basesel.errors import InputError


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FSL_BASESEL_CACHE", str(tmp_path / "cache"))


def pictures(folder: Path, greys: list[int]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for grey in greys:
        Image.new("L", (8, 8), grey).save(folder / f"{grey}.png")


@pytest.fixture
def place(tmp_path: Path) -> Path:
    for i, name in enumerate(["ant", "bee", "Kälte 猫"]):
        pictures(tmp_path / "previews" / name, [10 * i + 1, 10 * i + 2])
    return tmp_path


def make(place: Path, **options: object) -> LabellingQueue:
    folders = place / "previews", place / "labelled", place / "queue" / "todo.json"
    return LabellingQueue(*folders, needed=2, size=8, channels=1, **options)


def greys(dataset: object) -> list[int]:
    images, _ = dataset.batch(range(len(dataset)))
    return sorted((images[:, 0, 0, 0] * 255).round().int().tolist())


def test_classes_wait_for_their_images_and_go_on_by_the_same_call(place: Path) -> None:
    pool = make(place)
    fingerprint, preview = pool.fingerprint, greys(pool.preview_set())
    with pytest.raises(LabelsPending, match=r"2 chosen.*Kälte 猫, bee\. Put at least 2") as caught:
        pool.expand(["Kälte 猫", "bee"])
    assert caught.value.classes == ["Kälte 猫", "bee"]
    assert pool.expanded == []
    waiting = json.loads((place / "queue" / "todo.json").read_text("utf-8"))["waiting"]
    assert [(row["class"], row["images"], row["needed"]) for row in waiting] == [
        ("Kälte 猫", 0, 2),
        ("bee", 0, 2),
    ]

    pictures(place / "labelled" / "bee", [101, 102, 103])
    pictures(place / "labelled" / "Kälte 猫", [111])
    with pytest.raises(LabelsPending, match="1 chosen"):
        make(place).expand(["Kälte 猫", "bee"])

    pictures(place / "labelled" / "Kälte 猫", [112])
    pool = make(place)  # the same command again
    assert pool.expand(["Kälte 猫", "bee"]) == [0, 2]
    assert greys(pool.training_set(["bee"])) == [11, 12, 101, 102, 103]
    assert pool.training_set().labels.tolist() == [0] * 4 + [1] * 5
    assert json.loads((place / "queue" / "todo.json").read_text("utf-8"))["waiting"] == []
    assert pool.fingerprint == fingerprint
    assert greys(pool.preview_set()) == preview


def test_images_that_come_later_do_not_change_a_run_that_has_used_the_class(place: Path) -> None:
    pictures(place / "labelled" / "bee", [101, 102])
    make(place).expand(["bee"])
    pictures(place / "labelled" / "bee", [103])
    pool = make(place)
    pool.expand(["bee"])
    assert greys(pool.training_set()) == [11, 12, 101, 102]


def test_a_repeated_call_adds_no_image_twice(place: Path) -> None:
    pictures(place / "labelled" / "bee", [101, 102])
    pool = make(place)
    assert pool.expand(["bee"]) == [2]
    assert pool.expand(["bee"]) == []
    assert greys(pool.training_set()) == [11, 12, 101, 102]


def test_unreadable_labelled_images_are_left_out_where_asked(place: Path) -> None:
    pictures(place / "labelled" / "bee", [101, 102])
    (place / "labelled" / "bee" / "bad.png").write_bytes(b"")
    pool = make(place, on_corrupt="skip")
    with pytest.warns(UserWarning, match=r"bad\.png of class 'bee'"):
        pool.expand(["bee"])
    assert greys(pool.training_set()) == [11, 12, 101, 102]
    assert greys(pool.preview_set(["bee"])) == [11, 12]


def test_a_queue_file_that_is_something_else_is_not_overwritten(place: Path) -> None:
    (place / "queue").mkdir()
    (place / "queue" / "todo.json").write_text("[1, 2]")
    with pytest.raises(InputError, match=r"todo\.json to be a labelling queue"):
        make(place).expand(["bee"])
    assert (place / "queue" / "todo.json").read_text() == "[1, 2]"


def test_nothing_is_left_beside_the_queue_file(place: Path) -> None:
    with pytest.raises(LabelsPending):
        make(place).expand(["bee"])
    assert os.listdir(place / "queue") == ["todo.json"]


def test_misuse_is_refused(place: Path) -> None:
    with pytest.raises(InputError, match="`needed` to be at least 1"):
        LabellingQueue(place / "previews", place / "labelled", needed=0)
    with pytest.raises(InputError, match="did you mean 'bee'"):
        make(place).expand(["beee"])


@pytest.mark.parametrize("file", ["../../secret/s.png", "/etc/s.png", "sub/s.png", "..", "", 5])
def test_a_queue_that_names_files_elsewhere_is_refused(place: Path, file: object) -> None:
    pictures(place / "secret", [7])
    pictures(place / "labelled" / "bee", [101, 102])
    (place / "queue").mkdir()
    (place / "queue" / "todo.json").write_text(json.dumps({"arrived": {"bee": [file, "101.png"]}}))
    pool = make(place)
    with pytest.raises(InputError, match=r"todo\.json to name files in .*bee but it names"):
        pool.expand(["bee"])
    assert pool.expanded == []


@pytest.mark.timeout(20)
def test_a_pipe_among_the_labelled_files_is_no_image(place: Path) -> None:
    pictures(place / "labelled" / "bee", [101])
    os.mkfifo(place / "labelled" / "bee" / "pipe.png")
    with pytest.raises(LabelsPending):
        make(place).expand(["bee"])
