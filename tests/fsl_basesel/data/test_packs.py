"""`JpegPack`: pictures of one file as a data set, decoded when they are asked for."""

from __future__ import annotations

import io
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from fsl_basesel.data import from_dataset
from fsl_basesel.data.packs import JpegPack
from fsl_basesel.errors import InputError


def write_pack(path: Path, greys: list[int], labels: list[int], names: list[str]) -> None:
    """Pictures of 40 pixels, each of one grey."""
    files = []
    for grey in greys:
        file = io.BytesIO()
        Image.new("RGB", (40, 40), (grey,) * 3).save(file, "JPEG")
        files.append(file.getvalue())
    offset = np.cumsum([0, *(len(file) for file in files)])
    jpeg = np.frombuffer(b"".join(files), np.uint8)
    np.savez(path, jpeg=jpeg, offset=offset, label=labels, class_name=names)


def test_pictures_come_with_their_labels_and_names(tmp_path: Path) -> None:
    path = tmp_path / "pack.npz"
    write_pack(path, [10, 200, 90], [0, 1, 0], ["dög", "cat"])
    pack = JpegPack(str(path), size=16)
    assert (len(pack), pack.targets, pack.classes) == (3, [0, 1, 0], ["dög", "cat"])
    for number, grey in enumerate((10, 200, 90)):
        for _ in range(2):  # decoded, then kept
            picture, label = pack[number]
            assert picture.size == (16, 16)
            assert label == pack.targets[number]
            assert abs(int(np.asarray(picture).mean()) - grey) <= 2
    source = from_dataset(pack)
    assert source.names == ("dög", "cat")
    assert source.sizes.tolist() == [2, 1]


def test_a_file_that_is_no_pack_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"nothing\.npz' to be a pack of pictures"):
        JpegPack(str(tmp_path / "nothing.npz"))
    np.savez(tmp_path / "other.npz", a=1)
    with pytest.raises(InputError, match=r"jpeg, offset, label, class_name but .*lacks .*'jpeg'"):
        JpegPack(str(tmp_path / "other.npz"))


def test_tiny_imagenet(data_folder: Path) -> None:
    path = data_folder / "tinyimagenet_train100.npz"
    if not path.exists():
        pytest.skip(f"there is no {path.name} in FSL_BASESEL_DATA")
    source = from_dataset(JpegPack(str(path), size=32))
    assert len(source) == 200
    assert set(source.sizes.tolist()) == {100}
    images = source.images(np.array([0, 199]), np.array([0, 99]))
    assert images.shape == (2, 3, 32, 32)
    assert 0.05 < float(images.std()) < 0.5
