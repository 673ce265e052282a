"""Reading class features: every format, every layout, every way a file can be wrong."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet
import pytest
import torch
from safetensors.torch import save_file

from fsl_basesel.errors import InputError
from fsl_basesel.files.classes import locate, read_classes

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
        torch.save({"X": torch.tensor(SAMPLES), "y": torch.tensor(LABELS), "classes": NAMES}, path)
    elif path.suffix == ".safetensors":
        tensors = {"embeddings": torch.tensor(SAMPLES), "targets": torch.tensor(LABELS)}
        save_file(tensors, path, metadata={"class_names": json.dumps(NAMES)})
    else:
        table = pa.table({"label": names, "f0": SAMPLES[:, 0], "f1": SAMPLES[:, 1]})
        write = pa.csv.write_csv if path.suffix == ".csv" else pa.parquet.write_table
        write(table, path)
    return path


@pytest.mark.parametrize("ending", [".npz", ".npy", ".pt", ".safetensors", ".csv", ".parquet"])
def test_one_row_a_class_is_read_as_it_is(tmp_path: Path, ending: str) -> None:
    classes = read_classes(write_centroids(tmp_path / f"pool{ending}"))
    np.testing.assert_array_equal(classes.centroids, CENTROIDS)
    assert classes.names == (("0", "1", "2") if ending == ".npy" else tuple(NAMES))
    assert classes.images is None


@pytest.mark.parametrize("ending", [".npz", ".pt", ".safetensors", ".csv", ".parquet"])
def test_samples_are_averaged_to_float64_means(tmp_path: Path, ending: str) -> None:
    classes = read_classes(write_samples(tmp_path / f"pool{ending}"))
    np.testing.assert_array_equal(classes.centroids, CENTROIDS)
    assert classes.centroids.dtype == np.float64
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


@pytest.mark.parametrize("key", ["features", "feats", "FEAT", "embedding", "emb", "x", "X"])
def test_common_words_for_features_are_known(tmp_path: Path, key: str) -> None:
    np.savez(tmp_path / "a.npz", **{key: CENTROIDS, "source_file": ["a", "b", "c"]})
    np.testing.assert_array_equal(read_classes(tmp_path / "a.npz").centroids, CENTROIDS)


def test_the_only_float_matrix_is_taken_under_any_key(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", backbone_out=CENTROIDS, names=NAMES, seen=[1, 2, 3])
    assert read_classes(tmp_path / "a.npz").names == tuple(NAMES)


def test_a_key_after_the_colon_chooses_among_several(tmp_path: Path) -> None:
    path = tmp_path / "a.npz"
    np.savez(path, feat=SAMPLES, label=LABELS, class_name=NAMES, emb=-SAMPLES)
    with pytest.raises(
        InputError, match=r"got several \(feat, emb\); say which one with a.npz:feat"
    ):
        read_classes(path)
    np.testing.assert_array_equal(read_classes(f"{path}:emb").centroids, -CENTROIDS)
    np.testing.assert_array_equal(read_classes(path, key="emb").centroids, -CENTROIDS)
    with pytest.raises(InputError, match=r"array 'nope'.*feat float64 \[5, 2\]"):
        read_classes(f"{path}:nope")


def test_a_dict_of_one_vector_or_stack_a_class(tmp_path: Path) -> None:
    torch.save(
        {"owl": torch.tensor([[0.0, 2.0], [0.0, 4.0]]), "élan": torch.tensor([2.0, 1.0])},
        tmp_path / "a.pt",
    )
    classes = read_classes(tmp_path / "a.pt")
    assert classes.names == ("owl", "élan")
    np.testing.assert_array_equal(classes.centroids, CENTROIDS[:2])


@pytest.mark.parametrize(
    ("dtype", "kept"),
    [
        (np.float16, np.float32),
        (np.float32, np.float32),
        (np.float64, np.float64),
        (np.int16, np.float64),
        (np.uint8, np.float64),
        (np.bool_, np.float64),
    ],
)
def test_numbers_of_every_type_are_widened(tmp_path: Path, dtype: type, kept: type) -> None:
    values = np.array([[1, 0], [3, 4]]).astype(dtype)
    np.save(tmp_path / "a.npy", values)
    centroids = read_classes(tmp_path / "a.npy").centroids
    assert centroids.dtype == kept
    np.testing.assert_array_equal(centroids, values)


def test_bfloat16_tensors_keep_their_values(tmp_path: Path) -> None:
    values = torch.tensor([[0.1, 2.0], [3.0, 4.0]], dtype=torch.bfloat16)
    torch.save(values, tmp_path / "a.pt")
    save_file({"feats": values}, tmp_path / "a.safetensors")
    for name in ("a.pt", "a.safetensors"):
        centroids = read_classes(tmp_path / name).centroids
        np.testing.assert_array_equal(centroids, values.float().numpy())


def test_float16_samples_are_summed_in_float64(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    feats = rng.uniform(0, 60000, (4000, 3)).astype(np.float16)  # a float16 sum would overflow
    np.savez(tmp_path / "a.npz", feats=feats, labels=np.zeros(4000, int), names=["all"])
    expected = feats.astype(np.float64).mean(0, keepdims=True)
    np.testing.assert_allclose(read_classes(tmp_path / "a.npz").centroids, expected, rtol=1e-14)


@pytest.mark.parametrize(
    ("labels", "names"),
    [
        ([7, 3, 7, 3, 10], ("3", "7", "10")),
        (["7", "3", "7", "3", "10"], ("3", "7", "10")),
        (["b", "a", "b", "a", "c"], ("b", "a", "c")),
        ([7.0, 3.0, 7.0, 3.0, 10.0], ("3", "7", "10")),
    ],
)
def test_order_of_classes_without_a_list_of_names(
    tmp_path: Path, labels: list, names: tuple[str, ...]
) -> None:
    np.savez(tmp_path / "a.npz", x=SAMPLES, y=np.array(labels))
    assert read_classes(tmp_path / "a.npz").names == names


def test_text_labels_follow_the_list_of_names(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=SAMPLES, y=["b", "a", "b", "a", "b"], classes=["a", "b", "c"])
    with pytest.warns(UserWarning, match="1 of the 3 classes .* have no sample .*first: 'c'"):
        assert read_classes(tmp_path / "a.npz").names == ("a", "b")


def test_names_beside_labels_may_go_by_row(tmp_path: Path) -> None:
    rows = [NAMES[label] for label in LABELS]
    np.savez(tmp_path / "a.npz", x=SAMPLES, y=LABELS[::-1].copy(), names=rows[::-1])
    assert read_classes(tmp_path / "a.npz").names == tuple(NAMES)


def test_repeated_names_mean_samples_but_one_repeat_is_a_slip(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=SAMPLES, names=["b", "a", "b", "a", "b"])
    assert read_classes(tmp_path / "a.npz").names == ("b", "a")
    np.savez(tmp_path / "a.npz", x=SAMPLES, names=["crane", "owl", "crane", "elk", "yak"])
    with pytest.raises(InputError, match="got 'crane' in rows 0 and 2; make the names different"):
        read_classes(tmp_path / "a.npz")


def test_counts_beside_centroids_are_kept(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", emb=CENTROIDS, class_name=NAMES, image_count=[3, 1, 2])
    images = read_classes(tmp_path / "a.npz").images
    assert images is not None
    assert images.tolist() == [3, 1, 2]


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        ({"x": [1.0, 2.0]}, r"matrix of numbers \[rows, dimensions\] but got float64 \[2\]"),
        ({"x": np.zeros((2, 2, 2))}, r"but got float64 \[2, 2, 2\]"),
        ({"x": np.zeros((0, 4))}, r"but got float64 \[0, 4\]"),
        ({"x": [["a", "b"]]}, r"but got text \[1, 2\]"),
        ({"x": np.eye(2) * 1j}, r"but got complex128"),
        ({"x": [[1.0, np.nan], [np.inf, 1.0]]}, r"got nan in row 0, column 1 \(2 such entries\)"),
        ({"x": np.eye(3), "y": [0, 1]}, r"Expected 3 labels .* but got int64 \[2\]"),
        ({"x": np.eye(3), "y": np.eye(3)}, r"Expected 3 labels .* but got float64 \[3, 3\]"),
        ({"x": np.eye(3), "y": [0, -1, 1]}, r"0 or more but got -1 in row 1"),
        ({"x": np.eye(3), "y": [0.5, 0, 1]}, r"whole numbers or text but got float64"),
        ({"x": np.eye(3), "y": [0, 0, 5], "names": NAMES}, r"0 to 2 .* but got 5 in row 2"),
        ({"x": np.eye(3), "y": [2, 0, 1], "names": NAMES}, r"a name could go by row or by label"),
        ({"x": np.eye(3), "y": ["a", "a", "b"], "names": ["a", "q"]}, r"but got 'b'"),
        ({"x": np.eye(4), "y": [0, 0, 1, 1], "names": ["a", "b", "a"]}, r"got 'a' in rows 0 and 2"),
        ({"x": np.eye(3), "names": ["a", "b"]}, r"Expected 3 class names .* but got 2"),
        ({"x": np.eye(2), "names": ["a", " "]}, r"got an empty one in row 1"),
        ({"x": np.eye(2), "names": [["a", "b"]]}, r"list of text but got text \[1, 2\]"),
        ({"x": np.eye(2), "y": [0, 1], "label": [0, 1]}, r"one array of labels .* y and label"),
        ({"bits": np.eye(2, dtype=np.uint8), "y": [0, 1]}, r"holds bits uint8 \[2, 2\], y int64"),
        ({}, r"it holds nothing"),
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
    np.savez(tmp_path / "a.npz", feats=CENTROIDS, names=objects)
    with pytest.raises(InputError, match=r"`names` of .*a\.npz.*pickle.*dtype=str"):
        read_classes(tmp_path / "a.npz")
    np.savez(tmp_path / "a.npz", feats=CENTROIDS, notes=objects)
    np.testing.assert_array_equal(read_classes(tmp_path / "a.npz").centroids, CENTROIDS)
    np.save(tmp_path / "a.npy", objects)
    with pytest.raises(InputError, match="a pickle"):
        read_classes(tmp_path / "a.npy")


def test_names_in_bytes_are_utf8(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", x=CENTROIDS, names=np.array([n.encode() for n in NAMES]))
    assert read_classes(tmp_path / "a.npz").names == tuple(NAMES)
    np.savez(tmp_path / "a.npz", x=CENTROIDS, names=np.array([b"owl", b"\xe9lan", b"yak"]))
    with pytest.raises(InputError, match=r"names of .* in UTF-8 but got other bytes"):
        read_classes(tmp_path / "a.npz")


class Boom:
    """Writes a file when unpickled, as a malicious pickle would run code."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple:
        return (Path.touch, (self.path,))


def test_a_pt_file_with_other_objects_runs_no_code(tmp_path: Path) -> None:
    torch.save({"features": torch.eye(2), "extra": Boom(tmp_path / "ran")}, tmp_path / "a.pt")
    with pytest.raises(InputError, match=r"other Python objects.*torch\.save"):
        read_classes(tmp_path / "a.pt")
    assert not (tmp_path / "ran").exists()
    torch.save([torch.eye(2)], tmp_path / "a.pt")
    with pytest.raises(InputError, match="got a list"):
        read_classes(tmp_path / "a.pt")
    torch.save({"features": {"deep": torch.eye(2)}}, tmp_path / "a.pt")
    with pytest.raises(InputError, match=r"`features` of .* got a dict"):
        read_classes(tmp_path / "a.pt")


def test_missing_folder_and_unknown_endings_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"file at .*no\.npz but there is none"):
        read_classes(tmp_path / "no.npz")
    with pytest.raises(InputError, match="got a folder"):
        read_classes(tmp_path)
    (tmp_path / "a.mat").write_bytes(b"x")
    with pytest.raises(InputError, match=r"end in one of \.npz, .* but got '\.mat'"):
        read_classes(tmp_path / "a.mat")


def test_a_colon_that_belongs_to_the_file_stays(tmp_path: Path) -> None:
    path = tmp_path / "a.npz:b.npz"
    np.savez(path, x=CENTROIDS)
    assert locate(path) == (path, None)


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
    assert read.centroids.shape == (classes, width)
    assert read.names[0] == name
    assert read.images is not None
    assert read.images[0] == images
    with np.load(DATA / file) as saved:
        if "feat" in saved:
            last = saved["feat"][saved["label"] == classes - 1].astype(np.float64).mean(0)
        else:
            last = saved["emb"][-1].astype(np.float64)
    np.testing.assert_allclose(read.centroids[-1], last, rtol=1e-12)


@pytest.mark.skipif(not DATA.is_dir(), reason=f"no real data in {DATA} (set FSL_BASESEL_DATA)")
def test_classifier_weights_of_the_real_file_serve_as_centroids() -> None:
    read = read_classes(f"{DATA / 'imagenet1k_efflite0_feats.npz'}:classifier_weight")
    assert read.centroids.shape == (1000, 1280)
