"""Reading class features: every format, every layout, every way a file can be wrong."""

from __future__ import annotations

import io
import json
import os
import zipfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
import torch
from safetensors.torch import save_file

from fsl_basesel.errors import InputError
from fsl_basesel.files.classes import open_file, read_classes

DATA = Path(os.environ.get("FSL_BASESEL_DATA", "../shared/data"))
NAMES = ["owl", "élan", "牛"]
SAMPLES = np.array([[0.0, 2.0], [3.0, 1.0], [0.0, 4.0], [-1.0, 0.5], [1.0, 1.0]])
LABELS = np.array([0, 1, 0, 2, 1])
CENTROIDS = np.array([[0.0, 3.0], [2.0, 1.0], [-1.0, 0.5]])


def write_centroids(path: Path) -> Path:
    """The three classes, one row each, in the format of the ending."""
    if path.suffix == ".npz":
        np.savez(path, centroids=CENTROIDS, names=NAMES)
    elif path.suffix == ".npy":
        np.save(path, CENTROIDS)
    elif path.suffix == ".pt":
        torch.save({"centroids": torch.tensor(CENTROIDS), "names": NAMES}, path)
    elif path.suffix == ".safetensors":
        save_file(
            {"centroids": torch.tensor(CENTROIDS)}, path, metadata={"names": json.dumps(NAMES)}
        )
    else:
        table = pa.table({"class_name": NAMES, "f0": CENTROIDS[:, 0], "f1": CENTROIDS[:, 1]})
        write = pa.csv.write_csv if path.suffix == ".csv" else pa.parquet.write_table
        write(table, path)
    return path


def write_samples(path: Path) -> Path:
    """The same three classes as five samples with labels."""
    names = [NAMES[label] for label in LABELS]
    if path.suffix == ".npz":
        np.savez(path, feat=SAMPLES, label=LABELS, class_name=NAMES)
    elif path.suffix == ".pt":
        tensors = {"feat": torch.tensor(SAMPLES), "label": torch.tensor(LABELS)}
        torch.save(tensors | {"names": NAMES}, path)
    elif path.suffix == ".safetensors":
        tensors = {"features": torch.tensor(SAMPLES), "labels": torch.tensor(LABELS)}
        save_file(tensors, path, metadata={"names": json.dumps(NAMES)})
    else:
        table = pa.table({"label": names, "f0": SAMPLES[:, 0], "f1": SAMPLES[:, 1]})
        write = pa.csv.write_csv if path.suffix == ".csv" else pa.parquet.write_table
        write(table, path)
    return path


@pytest.mark.parametrize("ending", [".npz", ".npy", ".pt", ".safetensors", ".csv", ".parquet"])
def test_one_row_a_class_is_read_as_it_is(tmp_path: Path, ending: str) -> None:
    classes = read_classes(write_centroids(tmp_path / f"pool{ending}"))
    np.testing.assert_array_equal(classes.values, CENTROIDS)
    assert classes.names == (("0", "1", "2") if ending == ".npy" else tuple(NAMES))
    assert classes.images is None


@pytest.mark.parametrize("ending", [".npz", ".pt", ".safetensors", ".csv", ".parquet"])
def test_samples_are_averaged_to_float64_means(tmp_path: Path, ending: str) -> None:
    classes = read_classes(write_samples(tmp_path / f"pool{ending}"))
    np.testing.assert_array_equal(classes.values, CENTROIDS)
    assert classes.values.dtype == np.float64
    assert classes.names == tuple(NAMES)
    assert classes.images is not None
    assert classes.images.tolist() == [2, 2, 1]


@pytest.mark.parametrize("ending", [".npz", ".npy", ".pt", ".safetensors", ".csv", ".parquet"])
@pytest.mark.parametrize("keep", [0.5, 0.95])
def test_a_truncated_file_is_named(tmp_path: Path, ending: str, keep: float) -> None:
    path = write_centroids(tmp_path / f"pool{ending}")
    whole = path.read_bytes()
    path.write_bytes(whole[: int(keep * len(whole)) - (2 if ending == ".csv" else 0)])
    if ending == ".csv":  # half a line is noticed, half a number cannot be
        path.write_bytes(whole[: whole.rindex(b",")])
    with pytest.raises(InputError, match=rf"pool{ending} .*cannot be read.*write or copy it again"):
        read_classes(path)


@pytest.mark.parametrize("ending", [".npz", ".npy", ".pt", ".safetensors", ".csv", ".parquet"])
def test_an_empty_file_and_random_bytes_are_refused(tmp_path: Path, ending: str) -> None:
    path = tmp_path / f"pool{ending}"
    path.write_bytes(b"")
    with pytest.raises(InputError, match="got an empty file"):
        read_classes(path)
    path.write_bytes(np.random.default_rng(0).bytes(400))
    with pytest.raises(InputError, match=f"pool{ending}"):
        read_classes(path)


@pytest.mark.parametrize("key", ["features", "feat", "Centroids", "emb"])
def test_usual_keys_of_features_are_known(tmp_path: Path, key: str) -> None:
    np.savez(tmp_path / "a.npz", **{key: CENTROIDS, "source_file": ["a", "b", "c"]})
    np.testing.assert_array_equal(read_classes(tmp_path / "a.npz").values, CENTROIDS)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        (
            {"backbone_out": CENTROIDS, "names": NAMES},
            r"holds backbone_out float64 \[3, 2\]",
        ),
        ({"x": SAMPLES, "y": LABELS}, r"holds x float64 \[5, 2\], y int64 \[5\]"),
        ({"owl": CENTROIDS[0], "elk": CENTROIDS[1]}, r"holds owl float64 \[2\], elk float64 \[2\]"),
        ({"bits": np.eye(2, dtype=np.uint8)}, r"holds bits uint8 \[2, 2\]"),
        ({}, r"holds nothing"),
    ],
)
def test_a_file_that_does_not_say_what_it_is_gets_one_error_that_says_how(
    tmp_path: Path, arrays: dict, message: str
) -> None:
    np.savez(tmp_path / "a.npz", **arrays)
    with pytest.raises(InputError, match=message) as caught:
        read_classes(tmp_path / "a.npz")
    assert "under one of the keys features, feat, centroids, emb" in str(caught.value)
    assert "say which array it is with a.npz:KEY" in str(caught.value)


def test_any_key_can_be_named(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=SAMPLES, y=LABELS, classes=NAMES)
    classes = read_classes(f"{tmp_path / 'a.npz'}:features=x,labels=y,names=classes")
    np.testing.assert_array_equal(classes.values, CENTROIDS)
    assert classes.names == tuple(NAMES)
    with pytest.raises(InputError, match=r"'shape=x' to name arrays .* as in features=KEY,labels"):
        read_classes(f"{tmp_path / 'a.npz'}:shape=x")


def test_a_key_after_the_colon_chooses_among_several(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.savez(path, feat=SAMPLES, label=LABELS, class_name=NAMES, emb=-SAMPLES)
    with pytest.raises(
        InputError, match=r"got feat and emb; say which one with a.npz:features=feat"
    ):
        read_classes(path)
    np.testing.assert_array_equal(read_classes(f"{path}:emb").values, -CENTROIDS)
    with pytest.raises(InputError, match=r"'nope' to name arrays.*feat float64 \[5, 2\]"):
        read_classes(f"{path}:nope")


@pytest.mark.parametrize(
    ("dtype", "kept"),
    [
        (np.float16, np.float32),
        (np.float32, np.float32),
        (np.float64, np.float64),
        (np.int16, np.float64),
        (np.uint8, np.float64),
    ],
)
def test_numbers_of_every_type_are_widened(tmp_path: Path, dtype: type, kept: type) -> None:
    values = np.array([[1, 0], [3, 4]]).astype(dtype)
    np.save(tmp_path / "a.npy", values)
    centroids = read_classes(tmp_path / "a.npy").values
    assert centroids.dtype == kept
    np.testing.assert_array_equal(centroids, values)


def test_bfloat16_tensors_keep_their_values(tmp_path: Path) -> None:
    values = torch.tensor([[0.1, 2.0], [3.0, 4.0]], dtype=torch.bfloat16)
    torch.save(values, tmp_path / "a.pt")
    save_file({"feat": values}, tmp_path / "a.safetensors")
    for name in ("a.pt", "a.safetensors"):
        centroids = read_classes(tmp_path / name).values
        np.testing.assert_array_equal(centroids, values.float().numpy())


def test_float16_samples_are_summed_in_float64(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    feats = rng.uniform(0, 60000, (4000, 3)).astype(np.float16)  # a float16 sum would overflow
    np.savez(tmp_path / "a.npz", feat=feats, labels=np.zeros(4000, int), names=["all"])
    expected = feats.astype(np.float64).mean(0, keepdims=True)
    np.testing.assert_allclose(read_classes(tmp_path / "a.npz").values, expected, rtol=1e-14)


@pytest.mark.parametrize(
    ("labels", "names"),
    [
        ([7, 3, 7, 3, 10], ("3", "7", "10")),
        (["7", "3", "7", "3", "10"], ("7", "3", "10")),
        (["b", "a", "b", "a", "c"], ("b", "a", "c")),
    ],
)
def test_order_of_classes_without_a_list_of_names(
    tmp_path: Path, labels: list, names: tuple[str, ...]
) -> None:
    np.savez(tmp_path / "a.npz", features=SAMPLES, labels=np.array(labels))
    assert read_classes(tmp_path / "a.npz").names == names


def test_text_labels_follow_the_list_of_names(tmp_path: Path) -> None:
    labels = ["b", "a", "b", "a", "b"]
    np.savez(tmp_path / "a.npz", features=SAMPLES, labels=labels, names=["a", "b", "c"])
    with pytest.warns(UserWarning, match="1 of the 3 classes have no sample and are left out"):
        assert read_classes(tmp_path / "a.npz").names == ("a", "b")


def test_names_that_repeat_are_refused_and_called_labels(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", features=SAMPLES, names=["b", "a", "b", "a", "b"])
    with pytest.raises(InputError, match=r"5 different names.*but got 2.*call their classes"):
        read_classes(tmp_path / "a.npz")


def test_groups_and_weights_follow_the_classes_that_are_kept(tmp_path: Path) -> None:
    about = {"names": ["a", "none", "b"], "groups": ["x", "y", "z"], "weights": [0.5, 9, 2]}
    np.savez(tmp_path / "a.npz", features=SAMPLES, labels=[0, 2, 0, 2, 2], **about)
    with pytest.warns(UserWarning, match="no sample"):
        classes = read_classes(tmp_path / "a.npz")
    assert (classes.names, classes.groups) == (("a", "b"), ("x", "z"))
    assert classes.weights.tolist() == [0.5, 2]


def test_counts_beside_centroids_are_kept(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", emb=CENTROIDS, class_name=NAMES, image_count=[3, 1, 2])
    images = read_classes(tmp_path / "a.npz").images
    assert images is not None
    assert images.tolist() == [3, 1, 2]


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"features": [1.0, 2.0]}, r"a matrix of numbers \(rows x dimensions\).*shape \(2,\)"),
        ({"features": np.zeros((2, 2, 2))}, r"shape \(2, 2, 2\)"),
        ({"features": np.zeros((0, 4))}, r"shape \(0, 4\)"),
        ({"features": [["a", "b"]]}, r"dtype <U1"),
        ({"features": np.eye(2) * 1j}, r"dtype complex128"),
        ({"features": np.eye(2) > 0}, r"dtype bool"),
        ({"features": [[1.0, np.nan], [np.inf, 1.0]]}, r"got nan at \[0, 1\]"),
        ({"features": np.eye(3), "labels": [0, 1]}, r"3 labels but got int64 \[2\]"),
        ({"features": np.eye(3), "labels": np.eye(3)}, r"3 labels but got float64 \[3, 3\]"),
        ({"features": np.eye(3), "labels": [0, -1, 1]}, r"from 0.*but got int64 \[3\] from -1"),
        ({"features": np.eye(3), "labels": [0.5, 0, 1]}, r"class numbers.*but got float64"),
        ({"features": np.eye(3), "labels": [0, 0, 5], "names": NAMES}, r"0 to 2 .* but got 5"),
        ({"features": np.eye(3), "labels": ["a", "a", "b"], "names": ["a", "q"]}, r"got \{'b'\}"),
        (
            {"features": np.eye(2), "labels": [0, 1], "names": ["a", "a"]},
            r"'a' came more than once",
        ),
        ({"features": np.eye(3), "names": ["a", "b"]}, r"3 different names.*but got 2"),
        ({"features": np.eye(2), "names": ["a", " "]}, r"list of names but got an empty one"),
        ({"features": np.eye(2), "names": [["a", "b"]]}, r"list of names but got text \[1, 2\]"),
        ({"features": np.eye(2), "labels": [0, 1], "label": [0, 1]}, r"one array of labels .* and"),
        ({"features": np.eye(2), "groups": ["a"]}, r"2 groups, one per class, but got text \[1\]"),
        ({"features": np.eye(2), "weights": [1.0, -1.0]}, r"at least 0.*but got -1"),
        ({"features": np.eye(2), "images": [0.5, 1]}, r"`images` to be 2 integers.*float64"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, arrays: dict, message: str) -> None:
    np.savez(tmp_path / "pool.npz", **arrays)
    with pytest.raises(InputError, match=message) as caught:
        read_classes(tmp_path / "pool.npz")
    assert "pool.npz" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_pickles_are_refused_but_an_unused_one_does_no_harm(tmp_path: Path) -> None:
    objects = np.array([{"a": 1}, None, "x"], dtype=object)
    np.savez(tmp_path / "a.npz", feat=CENTROIDS, names=objects)
    with pytest.raises(InputError, match=r"a\.npz: .*list of names but got object.*dtype=str"):
        read_classes(tmp_path / "a.npz")
    np.savez(tmp_path / "a.npz", feat=CENTROIDS, notes=objects)
    np.testing.assert_array_equal(read_classes(tmp_path / "a.npz").values, CENTROIDS)
    np.save(tmp_path / "a.npy", objects)
    with pytest.raises(InputError, match=r"a\.npy.*cannot be read"):
        read_classes(tmp_path / "a.npy")


def declare(path: Path, shape: tuple[int, ...], member: str | None = None) -> None:
    """A file whose header declares an array of this shape, with hardly any content."""
    header = io.BytesIO()
    about = {"descr": "<f8", "fortran_order": False, "shape": shape}
    np.lib.format.write_array_header_1_0(header, about)
    content = header.getvalue() + b"12345678"
    if member is None:
        path.write_bytes(content)
    else:
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr(f"{member}.npy", content)


def test_what_does_not_fit_into_memory_is_refused_with_its_size(tmp_path: Path) -> None:
    huge = (1_000_000_000, 1500)
    declare(tmp_path / "a.npz", huge, "features")
    with pytest.raises(
        InputError,
        match=r"features of .*a\.npz \(float64 \[1000000000, 1500\]\)"
        r".*takes 12000\.0 GB and .* GB are free",
    ):
        read_classes(tmp_path / "a.npz")
    declare(tmp_path / "a.npy", huge)
    with pytest.raises(InputError, match=r"takes 12000\.0 GB"):
        read_classes(tmp_path / "a.npy")
    declare(tmp_path / "a.npz", (100, 10), "features")
    with pytest.raises(InputError, match=r"features declares 8000 bytes but .* are there"):
        read_classes(tmp_path / "a.npz")


def test_twelve_gigabytes_are_refused_where_three_are_free(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fsl_basesel.memory.free_bytes", lambda: 3_000_000_000)
    declare(tmp_path / "a.npz", (1_500_000, 1000), "features")
    with pytest.raises(InputError, match=r"takes 12\.0 GB and 3\.0 GB are free"):
        read_classes(tmp_path / "a.npz")


def test_names_in_bytes_are_utf8(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", emb=CENTROIDS, names=np.array([n.encode() for n in NAMES]))
    assert read_classes(tmp_path / "a.npz").names == tuple(NAMES)
    np.savez(tmp_path / "a.npz", emb=CENTROIDS, names=np.array([b"owl", b"\xe9lan", b"yak"]))
    with pytest.raises(InputError, match=r"names in UTF-8 but got other bytes"):
        read_classes(tmp_path / "a.npz")


class Boom:
    """Writes a file when unpickled, as a malicious pickle would run code."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple:
        return (Path.touch, (self.path,))


def test_a_pt_file_with_other_objects_runs_no_code(tmp_path: Path) -> None:
    torch.save({"features": torch.eye(2), "extra": Boom(tmp_path / "ran")}, tmp_path / "a.pt")
    with pytest.raises(InputError, match=r"a\.pt to be a whole \.pt file"):
        read_classes(tmp_path / "a.pt")
    assert not (tmp_path / "ran").exists()
    torch.save([torch.eye(2)], tmp_path / "a.pt")
    with pytest.raises(InputError, match="holds nothing"):
        read_classes(tmp_path / "a.pt")
    torch.save({"features": {"deep": torch.eye(2)}}, tmp_path / "a.pt")
    with pytest.raises(InputError, match=r"holds nothing"):
        read_classes(tmp_path / "a.pt")


def test_missing_folder_and_unknown_endings_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"file at .*no\.npz but there is nothing"):
        read_classes(tmp_path / "no.npz")
    with pytest.raises(InputError, match="there is a folder"):
        read_classes(tmp_path)
    (tmp_path / "a.mat").write_bytes(b"x")
    with pytest.raises(InputError, match=r"end in one of \.npz, .* but got '\.mat'"):
        read_classes(tmp_path / "a.mat")


def test_a_colon_that_belongs_to_the_file_stays(tmp_path: Path) -> None:
    path = tmp_path / "a.npz:b.npz"
    np.savez(path, feat=CENTROIDS)
    assert open_file(path)[0] == path


@pytest.mark.skipif(not DATA.is_dir(), reason=f"no real data in {DATA} (set FSL_BASESEL_DATA)")
@pytest.mark.parametrize(
    ("file", "classes", "width", "name", "images"),
    [
        ("imagenet1k_efflite0_feats.npz", 1000, 1280, "n01440764 tench", 6),
        ("caltech101_efflite0_feats.npz", 101, 1280, "Faces", 20),
        ("lvis1203_clip_text.npz", 1203, 512, "aerosol_can", 64),
    ],
)
def test_real_files_are_read_directly(
    file: str, classes: int, width: int, name: str, images: int
) -> None:
    read = read_classes(DATA / file)
    assert read.values.shape == (classes, width)
    assert read.names[0] == name
    assert read.images is not None
    assert read.images[0] == images
    with np.load(DATA / file) as saved:
        if "feat" in saved:
            last = saved["feat"][saved["label"] == classes - 1].astype(np.float64).mean(0)
        else:
            last = saved["emb"][-1].astype(np.float64)
    np.testing.assert_allclose(read.values[-1], last, rtol=1e-12)


@pytest.mark.skipif(not DATA.is_dir(), reason=f"no real data in {DATA} (set FSL_BASESEL_DATA)")
def test_classifier_weights_of_the_real_file_serve_as_centroids() -> None:
    read = read_classes(f"{DATA / 'imagenet1k_efflite0_feats.npz'}:classifier_weight")
    assert read.values.shape == (1000, 1280)
