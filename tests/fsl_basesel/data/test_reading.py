"""What people have in their folders: real files of many kinds, as people see them."""

import os
import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image, ImageOps

from fsl_basesel.data import ClassPool, CorruptImageError, from_dataset, image_folder
from fsl_basesel.data.folder import class_index
from fsl_basesel.data.reading import PLUGINS, extensions
from fsl_basesel.errors import InputError


@pytest.fixture(autouse=True)
def _cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FSL_BASESEL_CACHE", str(tmp_path / "cache"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A class folder to put a picture in."""
    (tmp_path / "data" / "thing").mkdir(parents=True)
    return tmp_path / "data" / "thing"


def read(folder: Path, channels: int = 3, side: int = 4) -> np.ndarray:
    """The only picture of a class, `[channels, side, side]`."""
    source = image_folder(folder.parent, size=side, channels=channels)
    assert source.sizes.tolist() == [1]
    return source.images(np.array([0]), np.array([0]))[0].numpy()


def corners() -> Image.Image:
    """A square whose four quarters differ, so that every turn and mirror image shows."""
    pixels = np.zeros((16, 16, 3), np.uint8)
    pixels[:8, :8, 0], pixels[:8, 8:, 1], pixels[8:, :8, 2], pixels[8:, 8:] = 255, 255, 255, 128
    return Image.fromarray(pixels)


@pytest.mark.parametrize("orientation", range(1, 9))
@pytest.mark.parametrize("ending", ["jpg", "png", "webp", "tif"])
def test_a_phones_orientation_is_honoured(folder: Path, orientation: int, ending: str) -> None:
    exif = Image.Exif()
    exif[0x0112] = orientation
    path = folder / f"phone.{ending}"
    options = {"quality": 100} if ending in ("jpg", "webp") else {}
    corners().save(path, exif=exif, **options)
    with Image.open(path) as picture:
        expected = np.asarray(ImageOps.exif_transpose(picture).convert("RGB"))
    found = read(folder, side=16).transpose(1, 2, 0) * 255
    np.testing.assert_array_equal(found.round(), expected)
    if ending != "tif":  # pillow turns TIFF files itself
        off = np.abs(found - np.asarray(corners(), float)).mean()
        assert off > 40 if orientation > 1 else off < 20


def test_pictures_of_a_data_set_are_turned_too() -> None:
    picture = corners()
    picture.getexif()[0x0112] = 6
    source = from_dataset([(picture, 0)], labels=[0])
    found = source.images(np.array([0]), np.array([0]))[0]
    expected = torch.from_numpy(np.array(corners().transpose(Image.Transpose.ROTATE_270)))
    assert torch.equal((found * 255).round().byte(), expected.permute(2, 0, 1))


def test_damaged_exif_data_do_not_spoil_a_picture(folder: Path) -> None:
    corners().save(folder / "x.png", exif=b"Exif\0\0II*\0\xff\xff\xff\xff")
    np.testing.assert_array_equal(read(folder)[:, 0, 0].round(), [1, 0, 0])


@pytest.mark.parametrize("ending", ["png", "tif"])
def test_sixteen_bits_are_scaled_not_clipped(folder: Path, ending: str) -> None:
    values = np.array([[200, 200], [40000, 65535]], np.uint16).repeat(2, 0).repeat(2, 1)
    Image.fromarray(values).save(folder / f"deep.{ending}")
    for channels in (1, 3):
        found = read(folder, channels)
        assert found.shape == (channels, 4, 4)
        np.testing.assert_allclose(found[0], values / 65535, atol=0.5 / 255)


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        (np.array([0, 51, 255], np.int32), [0, 0.2, 1]),
        (np.array([0, 13107, 65535], np.int32), [0, 0.2, 1]),
        (np.array([0, 2_000_000, 10_000_000], np.int32), [0, 0.2, 1]),
        (np.array([-500, 500, 4500], np.int32), [0, 0.2, 1]),
        (np.array([0, 0.2, 1], np.float32), [0, 0.2, 1]),
        (np.array([0, 51, 255], np.float32), [0, 0.2, 1]),
        (np.array([0, 13107, 65535], np.float32), [0, 0.2, 1]),
        (np.array([-1, -0.6, 1], np.float32), [0, 0.2, 1]),
        (np.array([0, np.nan, 1], np.float32), [0, 0, 1]),
        (np.array([7, 7, 7], np.float32), [7 / 255] * 3),
    ],
)
def test_integers_and_floating_point_numbers_are_scaled(
    folder: Path, values: np.ndarray, expected: list[float]
) -> None:
    Image.fromarray(np.tile(values, (3, 1))).save(folder / "numbers.tif")
    np.testing.assert_allclose(read(folder, 1, 3)[0, 0], expected, atol=0.5 / 255)


def test_what_is_transparent_becomes_white(folder: Path) -> None:
    clear = Image.new("RGBA", (4, 4), (200, 0, 0, 0))
    clear.paste((200, 0, 0, 255), (2, 0, 4, 4))
    clear.putpixel((0, 3), (0, 0, 0, 128))
    clear.save(folder / "x.png")
    found = read(folder)
    np.testing.assert_array_equal(found[:, 0, 0], [1, 1, 1])
    np.testing.assert_allclose(found[:, 0, 3], [200 / 255, 0, 0])
    np.testing.assert_allclose(found[:, 3, 0], [0.5] * 3, atol=0.01)
    np.testing.assert_allclose(read(folder, 1)[0, 0, 0], 1)


@pytest.mark.parametrize("kind", ["LA", "P", "RGB key", "webp"])
def test_other_kinds_of_transparency(folder: Path, kind: str) -> None:
    if kind == "LA":
        Image.new("LA", (4, 4), (30, 0)).save(folder / "x.png")
    elif kind == "P":
        picture = Image.new("P", (4, 4), 1)
        picture.putpalette([0, 0, 0, 90, 90, 90])
        picture.save(folder / "x.png", transparency=1)
    elif kind == "RGB key":
        Image.new("RGB", (4, 4), (1, 2, 3)).save(folder / "x.png", transparency=(1, 2, 3))
    else:
        Image.new("RGBA", (4, 4), (9, 9, 9, 0)).save(folder / "x.webp", lossless=True)
    assert read(folder).min() == 1


@pytest.mark.parametrize("ending", ["gif", "png", "webp", "tif"])
def test_an_animation_gives_its_first_frame(folder: Path, ending: str) -> None:
    frames = [Image.new("RGB", (8, 8), (grey,) * 3) for grey in (250, 10, 90)]
    options = {"lossless": True} if ending == "webp" else {}
    path = folder / f"x.{ending}"
    frames[0].save(path, save_all=True, append_images=frames[1:], **options)
    with Image.open(path) as picture:
        assert picture.n_frames == 3
    np.testing.assert_allclose(read(folder), 250 / 255, atol=1e-6)


def test_palettes_grey_black_and_white_and_four_inks(folder: Path) -> None:
    picture = Image.new("P", (4, 4), 1)
    picture.putpalette([0, 0, 0, 10, 20, 30])
    picture.save(folder / "x.png")
    np.testing.assert_allclose(read(folder)[:, 0, 0], np.array([10, 20, 30]) / 255)
    Image.new("1", (4, 4), 1).save(folder / "x.png")
    assert read(folder).min() == 1
    os.unlink(folder / "x.png")
    Image.new("CMYK", (4, 4), (255, 0, 0, 0)).save(folder / "x.jpg", quality=100)
    np.testing.assert_allclose(read(folder)[:, 0, 0], [0, 1, 1], atol=0.01)


def test_plain_pictures_give_the_numbers_that_they_gave(folder: Path) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (40, 30, 3), np.uint8)
    Image.fromarray(pixels).save(folder / "x.jpg")
    with Image.open(folder / "x.jpg") as picture:
        plain = picture.convert("RGB").resize((12, 16), Image.Resampling.BILINEAR)
    expected = np.asarray(plain.crop((0, 2, 12, 14)), np.float32).transpose(2, 0, 1) / 255
    np.testing.assert_array_equal(read(folder, side=12), expected)


def test_pictures_that_no_reader_is_there_for_are_counted_in_one_note(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    corners().save(folder / "x.png")
    for name in ("0.HEIC", "1.heic", "2.heic", "3.avif", "._0.HEIC"):
        (folder / name).write_bytes(b"a picture of a phone")
    known = tuple(ending for ending in extensions() if ending not in PLUGINS)
    monkeypatch.setattr("fsl_basesel.data.folder.extensions", lambda: known)
    expected = r"1 \.avif and 3 \.heic file.*install pillow-heif and pillow>=11\.3"
    with pytest.warns(UserWarning, match=expected) as notes:
        assert image_folder(folder.parent).sizes.tolist() == [1]
    assert len(notes) == 1


@pytest.mark.parametrize("ending", ["heic", "heif", "avif"])
def test_pictures_of_phones_are_read_where_pillow_can(folder: Path, ending: str) -> None:
    if f".{ending}" not in extensions():
        pytest.skip(f"this pillow cannot read .{ending}; {PLUGINS['.' + ending]} is needed")
    corners().save(folder / f"x.{ending}", quality=100)
    expected = np.asarray(corners(), float).transpose(2, 0, 1)[:, [2, 2, 13, 13], [2, 13, 2, 13]]
    found = read(folder, side=16)[:, [2, 2, 13, 13], [2, 13, 2, 13]] * 255
    np.testing.assert_allclose(found, expected, atol=25)


def test_hidden_files_and_what_archives_leave_behind_are_passed_over(folder: Path) -> None:
    corners().save(folder / "x.png")
    corners().save(folder / "._x.png")
    (folder / ".DS_Store").write_bytes(b"\0")
    for place in (folder.parent / "__MACOSX" / "thing", folder / "__MACOSX", folder / ".cache"):
        place.mkdir(parents=True)
        corners().save(place / "x.png")
    (folder.parent / ".DS_Store").write_bytes(b"\0")
    assert class_index(folder.parent) == {"thing": ["x.png"]}


def tree(root: Path, *folders: str, pictures: int = 2) -> None:
    for name in folders:
        (root / name).mkdir(parents=True)
        for number in range(pictures):
            corners().save(root / name / f"{number}.png")


def test_a_folder_one_level_too_high_is_recognised(tmp_path: Path) -> None:
    tree(tmp_path / "x", "train/cat", "train/dog", "train/owl", "Val/cat", "Val/dog")
    with pytest.raises(
        InputError, match=r"give '.*x/Val' \(2 classes\) or '.*train' \(3 classes\)"
    ):
        image_folder(tmp_path / "x")
    assert image_folder(tmp_path / "x" / "train").names == ("cat", "dog", "owl")
    tree(tmp_path / "y", "train/cat", "train/dog", "test")  # test images without labels
    with pytest.raises(InputError, match=r"give '.*train' \(2 classes\) instead"):
        image_folder(tmp_path / "y")
    tree(tmp_path / "z", "images/cat", "images/dog")
    with pytest.raises(InputError, match=r"give '.*images' \(2 classes\) instead"):
        image_folder(tmp_path / "z")
    tree(tmp_path / "photos", "pool/cat", "pool/dog", "pool/owl", "task/bat", "task/fox")
    with pytest.raises(
        InputError, match=r"give '.*photos/pool' \(3 classes\) or '.*photos/task' \(2 classes\)"
    ):
        image_folder(tmp_path / "photos")


def test_classes_with_folders_of_their_own_are_no_mistake(tmp_path: Path) -> None:
    tree(tmp_path / "x", "train/day", "train/night", "bus/day", "bus/night", "tram")
    assert image_folder(tmp_path / "x").names == ("bus", "train", "tram")
    tree(tmp_path / "y", "n01/images", "n02/images")  # Tiny-ImageNet
    assert image_folder(tmp_path / "y").sizes.tolist() == [2, 2]
    tree(tmp_path / "z", "owl/images")
    assert image_folder(tmp_path / "z").names == ("owl",)
    tree(tmp_path / "u", *(f"{name}/{when}" for name in "abc" for when in ("day", "night")))
    with pytest.warns(UserWarning, match=r"The 3 folders .* taken as classes .* give '.*u/a' \(2"):
        assert image_folder(tmp_path / "u").names == ("a", "b", "c")


def test_a_class_folder_in_place_of_the_folder_of_classes(tmp_path: Path) -> None:
    tree(tmp_path, "dog", pictures=3)
    with pytest.raises(InputError, match="there are 3 pictures and no folder"):
        image_folder(tmp_path / "dog")


def test_links_that_loop_are_followed_once(tmp_path: Path) -> None:
    root = tmp_path / "x"
    tree(root, "a", "b", "c", pictures=3)
    (root / "a" / "self").symlink_to(".")
    for name in ("b", "c"):
        for number in range(4):
            (root / name / f"up{number}").symlink_to("..")
    (root / "again").symlink_to(".")
    (root / "b" / "higher").symlink_to("../..")
    index = class_index(root)
    assert {name: len(files) for name, files in index.items()} == {"a": 3, "b": 3, "c": 3}
    (root / "d").symlink_to("a")  # another name for a class is no loop
    (root / "c" / "more").symlink_to("../a")
    assert len(class_index(root)["d"]) == 3
    assert len(class_index(root)["c"]) == 6


@pytest.mark.timeout(20)
def test_a_pipe_in_a_folder_does_not_block(tmp_path: Path) -> None:
    tree(tmp_path / "x", "a", "b")
    os.mkfifo(tmp_path / "x" / "a" / "pipe.png")
    os.mkfifo(tmp_path / "x" / "pipe.png")
    source = image_folder(tmp_path / "x", size=4)
    assert source.sizes.tolist() == [2, 2]
    assert source.fingerprint
    os.unlink(tmp_path / "x" / "a" / "0.png")  # after the scan
    os.mkfifo(tmp_path / "x" / "a" / "0.png")
    where = next(
        i for i in range(2) if source.describe(0, int(source._members[0][i])).endswith("0.png")
    )
    with pytest.raises(CorruptImageError, match=r"0\.png of class 'a'.*not a regular file"):
        source.images(np.array([0]), np.array([where]))
    assert threading.active_count() < 50


def test_bombs_cut_off_files_and_dead_links_are_named(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 100)
    corners().save(folder / "bomb.png")
    with pytest.raises(CorruptImageError, match=r"bomb\.png of class 'thing'.*DecompressionBomb"):
        read(folder)
    monkeypatch.undo()
    monkeypatch.setenv("FSL_BASESEL_CACHE", str(folder.parent.parent / "cache"))
    whole = (folder / "bomb.png").read_bytes()
    (folder / "bomb.png").write_bytes(whole[:-30])
    with pytest.raises(CorruptImageError, match=r"bomb\.png of class 'thing'.*truncated"):
        read(folder)
    os.unlink(folder / "bomb.png")
    (folder / "dead.png").symlink_to("nowhere")
    corners().save(folder / "good.png")
    pool = ClassPool(image_folder(folder.parent, on_corrupt="skip"))
    with pytest.warns(UserWarning, match=r"dead\.png of class 'thing' .FileNotFoundError"):
        pool.expand([0])
