"""Classes from folders of pictures: tiny real files, damaged ones among them."""

import os
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image

from fsl_basesel.data import ClassPool, CorruptImageError, NovelTask, image_folder
from fsl_basesel.data.folder import class_index
from fsl_basesel.errors import InputError


def picture(path: Path, grey: int, size: tuple[int, int] = (12, 10)) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.new("RGB", size, (grey, grey, grey)).save(path)


def noisy_jpeg(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(0).integers(0, 256, (40, 40, 3), np.uint8)
    Image.fromarray(pixels).save(path, quality=95)


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    folder = tmp_path / "cache"
    monkeypatch.setenv("FSL_BASESEL_CACHE", str(folder))
    return folder


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Three classes of 3, 1 and 4 pictures; the grey level says which picture it is."""
    root = tmp_path / "data"
    for i in range(3):
        picture(root / "猫 cat" / f"{i}.png", 10 + i)
    picture(root / "dog" / "only.png", 50)
    for i in range(4):
        picture(root / "owl" / ("day" if i % 2 else "night") / f"{i}.png", 100 + i, (10, 30))
    (root / "owl" / "notes.txt").write_text("not a picture")
    (root / ".hidden").mkdir()
    return root


def greys(source: object, c: int) -> list[int]:
    size = int(source.sizes[c])
    images = source.images(np.full(size, c), np.arange(size))
    return (images[:, 0, 0, 0] * 255).round().int().tolist()


def test_folders_are_classes_and_pictures_their_images(root: Path) -> None:
    source = image_folder(root, size=8)
    assert source.names == ("dog", "owl", "猫 cat")
    assert source.sizes.tolist() == [1, 4, 3]
    assert sorted(greys(source, 1)) == [100, 101, 102, 103]
    assert source.images(np.array([0, 2]), np.array([0, 1])).shape == (2, 3, 8, 8)
    assert image_folder(root, size=8, channels=1).images(np.array([0]), np.array([0])).shape == (
        1,
        1,
        8,
        8,
    )


def test_the_order_of_images_depends_on_the_seed_alone(root: Path) -> None:
    orders = {tuple(greys(image_folder(root, size=4, seed=seed), 1)) for seed in range(8)}
    assert len(orders) > 1
    assert greys(image_folder(root, size=4), 1) == greys(image_folder(root, size=4), 1)


def test_a_transform_replaces_the_resizing(root: Path) -> None:
    source = image_folder(root, transform=lambda image: image.resize((5, 3)))
    assert source.images(np.array([0, 1]), np.array([0, 0])).shape == (2, 3, 3, 5)


def test_images_of_different_shapes_are_named(root: Path) -> None:
    source = image_folder(root, transform=lambda image: image)
    with pytest.raises(
        InputError, match=r"owl.*\(3, 30, 10\).*only\.png has \(3, 10, 12\).*`size`"
    ):
        source.images(np.array([0, 1]), np.array([0, 0]))


def test_nothing_is_decoded_before_images_are_asked_for(tmp_path: Path) -> None:
    for name in ("a", "b"):
        (tmp_path / "data" / name).mkdir(parents=True)
        (tmp_path / "data" / name / "1.jpg").write_bytes(b"no picture at all")
    pool = ClassPool(image_folder(tmp_path / "data"))
    pool.expand([0, 1])
    assert len(pool.training_set()) == 2


def test_an_unreadable_image_is_named_with_its_class(root: Path) -> None:
    (root / "dog" / "only.png").write_bytes(b"no picture at all")
    source = image_folder(root)
    with pytest.raises(CorruptImageError, match=r"only\.png of class 'dog'.*on_corrupt=\"skip\""):
        source.images(np.array([0]), np.array([0]))


def test_a_truncated_jpeg_is_unreadable(root: Path) -> None:
    noisy_jpeg(root / "dog" / "cut.jpg")
    whole = (root / "dog" / "cut.jpg").read_bytes()
    (root / "dog" / "cut.jpg").write_bytes(whole[: len(whole) // 2])
    pool = ClassPool(image_folder(root, on_corrupt="skip"))
    with pytest.warns(UserWarning, match=r"Left out 1 unreadable.*cut\.jpg of class 'dog'.*trunc"):
        pool.expand(["dog"])
    assert greys(pool.source, 0) == [50]
    assert [(d.class_name, Path(d.image).name) for d in pool.source.dropped] == [("dog", "cut.jpg")]


def test_skipped_images_leave_the_others_in_order_and_in_reach(root: Path) -> None:
    good = greys(image_folder(root, size=4), 1)
    for name in ("night/0.png", "night/bad.png"):
        (root / "owl" / name).write_bytes(b"")
    source = image_folder(root, size=4, on_corrupt="skip")
    with pytest.warns(UserWarning, match="Left out 2"):
        source.prepare([1])
    assert source.sizes.tolist() == [1, 3, 3]
    assert set(greys(source, 1)) == set(good) - {100}


def test_previews_are_filled_up_with_images_that_can_be_read(root: Path) -> None:
    for i in range(20):
        picture(root / "bird" / f"{i}.png", 200)
    for i in range(0, 20, 2):
        (root / "bird" / f"{i}.png").write_bytes(b"")
    pool = ClassPool(image_folder(root, size=4, on_corrupt="skip").subset(["bird"]), preview=8)
    with pytest.warns(UserWarning, match="Left out"):
        preview = pool.preview_set()
    assert len(preview) == 8
    assert torch.all((preview.batch(range(8))[0] * 255).round() == 200)
    assert len(pool.source.dropped) < 10  # no more are tried than it takes


def test_a_class_that_falls_below_what_is_needed_is_an_error(root: Path) -> None:
    for file in (root / "owl" / "day").iterdir():
        file.write_bytes(b"")
    (root / "dog" / "only.png").write_bytes(b"")
    pool = ClassPool(image_folder(root, on_corrupt="skip"))
    with (
        pytest.warns(UserWarning, match="Left out 1"),
        pytest.raises(InputError, match="'dog' has 0 without the 1 that cannot be read"),
    ):
        pool.expand(["dog"])
    assert pool.expanded == []
    novel = image_folder(root, on_corrupt="skip").subset(["owl"])
    with (
        pytest.warns(UserWarning, match="Left out 2"),
        pytest.raises(InputError, match="3 images in every novel class but 'owl' has 2"),
    ):
        NovelTask(novel, shots=2)


@pytest.mark.parametrize("case", ["missing", "file", "no classes", "empty class", "setting"])
def test_misuse_is_refused(root: Path, case: str) -> None:
    if case == "missing":
        with pytest.raises(InputError, match="nowhere' is missing; name the folder"):
            image_folder(root / "nowhere")
    elif case == "file":
        with pytest.raises(InputError, match=r"notes\.txt' is a file; name the folder"):
            image_folder(root / "owl" / "notes.txt")
    elif case == "no classes":
        with pytest.raises(InputError, match=r"Expected class folders in .*dog"):
            image_folder(root / "dog")
    elif case == "empty class":
        (root / "void").mkdir()
        with pytest.raises(InputError, match="void' has none"):
            image_folder(root)
    else:
        with pytest.raises(InputError, match="raise, skip but got 'ignore'"):
            image_folder(root, on_corrupt="ignore")
        with pytest.raises(InputError, match="channels=2"):
            image_folder(root, channels=2)


def test_a_changed_folder_is_seen(root: Path) -> None:
    first = class_index(root)
    assert class_index(root) == first
    picture(root / "owl" / "day" / "new.png", 9)
    assert len(class_index(root)["owl"]) == 5
    picture(root / "wolf" / "1.png", 9)
    assert "wolf" in class_index(root)


def test_file_names_of_any_bytes_work(root: Path) -> None:
    name = os.fsdecode(b"\xff\xfe.png")
    try:
        picture(root / "dog" / "x.png", 51)
        os.rename(root / "dog" / "x.png", root / "dog" / name)
    except OSError:
        pytest.skip("this file system takes UTF-8 names only")
    assert sorted(greys(image_folder(root, size=4), 0)) == [50, 51]


def test_a_folder_source_survives_pickling(root: Path) -> None:
    source = image_folder(root, size=4)
    copy = pickle.loads(pickle.dumps(source))
    assert copy.fingerprint == source.fingerprint
    assert greys(copy, 1) == greys(source, 1)
