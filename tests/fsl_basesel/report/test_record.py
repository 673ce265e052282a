"""What a selection leaves for its report."""

import random

import numpy as np
import pytest
import torch
from PIL import Image

import fsl_basesel as fb
from fsl_basesel.data import ClassPool, NovelTask, from_arrays, from_features, glyphs, image_folder
from fsl_basesel.data.source import ImageSource
from fsl_basesel.errors import InputError
from fsl_basesel.report import record
from fsl_basesel.report.run import read_run
from fsl_basesel.similarity import ClassCentroids


class Counting(ImageSource):
    """Notes which images are asked for."""

    def __init__(self, classes: int, size: int = 8, value: float = 0.5) -> None:
        self.asked: list[tuple[int, int]] = []
        self.size, self.value = size, value
        super().__init__([f"class {c}" for c in range(classes)], [30] * classes)

    def images(self, classes: np.ndarray, items: np.ndarray) -> torch.Tensor:
        self.asked += zip(classes.tolist(), items.tolist(), strict=True)
        random.random(), torch.rand(1), np.random.rand()  # noqa: NPY002
        return torch.full((len(classes), 3, self.size, self.size), self.value)


def test_centroids_names_and_groups_are_read_back(tmp_path):
    draw = np.random.default_rng(0)
    base, novel = draw.random((3, 5)).astype(np.float32), draw.random((2, 5)).astype(np.float32)
    names = ["a", "β <script>", "c\nd"]
    path = record.save_classes(
        tmp_path / "new",
        2,
        ClassCentroids(base, names, ["g", "g", "h"]),
        ClassCentroids(novel, ["x", "y"]),
    )
    assert path == tmp_path / "new" / "classes-stage-2.npz"
    candidates, target = record.load_classes(path)
    assert np.array_equal(candidates.values, base)
    assert np.array_equal(target.values, novel)
    assert candidates.names == tuple(names)
    assert target.names == ("x", "y")
    assert candidates.groups == ("g", "g", "h")
    assert target.groups is None
    assert [one.name for one in path.parent.iterdir()] == [path.name]  # nothing temporary is left


def test_general_selection_has_no_novel_classes(tmp_path):
    path = record.save_classes(tmp_path, 1, ClassCentroids(np.eye(2)))
    assert record.load_classes(path)[1] is None


def test_a_stage_leaves_its_own_files_and_none_of_an_earlier_selection(tmp_path, monkeypatch):
    draw = np.random.default_rng(0)
    classes = ClassCentroids(draw.random((6, 4))), ClassCentroids(draw.random((3, 4)))
    problem = fb.SelectionProblem.from_centroids(*classes, m=2, k=1, weights=[1, 2, 5])
    selection = fb.select(problem)

    def files() -> set[str]:
        return {path.name for path in tmp_path.iterdir()}

    images = ClassPool(Counting(6)), ClassPool(Counting(3))
    record.save_stage(tmp_path, 2, selection, classes, problem, images)
    both = {"selection-stage-2.json", "pictures.npz"}
    assert files() == both | {"classes-stage-2.npz", "problem-stage-2.npz"}
    stage = read_run(tmp_path).last
    assert stage.selection == selection
    np.testing.assert_allclose(stage.problem.weights, np.array([1, 2, 5]) / 8)
    record.save_stage(tmp_path, 2, selection, classes)
    assert files() == both | {"classes-stage-2.npz"}
    record.save_stage(tmp_path, 2, selection)
    assert files() == both
    monkeypatch.setattr(record, "LARGEST", 17)  # of 18 similarities
    record.save_stage(tmp_path, 2, selection, problem=problem, file="selection.json")
    assert files() == both | {"selection.json"}


def test_one_image_a_class_is_read_and_random_numbers_stay_the_same(tmp_path):
    pool, task = ClassPool(Counting(70), preview=4), NovelTask(Counting(3), shots=5, queries=5)
    random.seed(0), torch.manual_seed(0), np.random.seed(0)  # noqa: NPY002
    before = random.getstate(), torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    record.save_pictures(tmp_path, pool, task)
    assert pool.source.asked == [(c, 0) for c in range(70)]
    assert [c for c, _ in task.source.asked] == [0, 1, 2]
    assert random.getstate() == before[0]
    assert torch.equal(torch.get_rng_state(), before[1])
    assert np.array_equal(np.random.get_state()[1], before[2])  # noqa: NPY002


def test_pictures_that_are_there_are_not_read_again_but_those_of_other_classes_are(tmp_path):
    pool = ClassPool(Counting(4))
    record.save_pictures(tmp_path, pool)
    record.save_pictures(tmp_path, pool)
    assert len(pool.source.asked) == 4
    other = ClassPool(Counting(5))
    path = record.save_pictures(tmp_path, other)
    assert len(record.load_pictures(path).candidates) == 5


def test_thumbnails_are_small_and_show_the_image(tmp_path):
    pool = ClassPool(Counting(2, size=100, value=0.25))
    picture = record.load_pictures(record.save_pictures(tmp_path, pool)).candidates["class 1"]
    assert picture.shape == (64, 64, 3)
    assert (picture == 64).all()


def test_thumbnails_of_glyphs_are_their_first_preview(tmp_path):
    pool, novel = glyphs(candidates=3, novel=2)
    read = record.load_pictures(record.save_pictures(tmp_path, pool, novel))
    expected = pool.preview_set([1]).batch([0])[0][0, 0]
    assert np.abs(read.candidates[pool.names[1]] / 255 - expected.numpy()).max() < 0.003
    assert set(read.novel) == set(novel.names)


def test_images_normalised_for_a_network_are_stretched_to_bytes(tmp_path):
    images = torch.tensor([-2.0, 3.0]).repeat(2, 1, 8, 4)
    pool = ClassPool(from_arrays(images, [0, 1]))
    picture = record.load_pictures(record.save_pictures(tmp_path, pool)).candidates["0"]
    assert sorted(np.unique(picture)) == [0, 255]


def test_features_have_no_pictures(tmp_path):
    pool = ClassPool(from_features(np.eye(4), [0, 1, 2, 3]))
    assert record.save_pictures(tmp_path, pool) is None
    assert not list(tmp_path.iterdir())


def test_a_damaged_image_does_not_stop_a_run(tmp_path):
    for name in "abc":
        (tmp_path / "images" / name).mkdir(parents=True)
        Image.new("RGB", (12, 9), "red").save(tmp_path / "images" / name / "1.png")
    pool = ClassPool(image_folder(tmp_path / "images", size=9))
    (tmp_path / "images" / "c" / "1.png").write_bytes(b"damaged")
    assert set(record.load_pictures(record.save_pictures(tmp_path, pool)).candidates) == {"a", "b"}


class Uneven(ImageSource):
    """Images of different shapes, which make no batch."""

    def images(self, classes: np.ndarray, items: np.ndarray) -> torch.Tensor:
        return torch.stack([torch.rand(1 + 2 * int(c == 1), 10 + c, 20 - c) for c in classes])


def test_images_of_different_shapes_are_brought_to_one(tmp_path):
    pool = ClassPool(Uneven(["a", "b", "c"], [1, 1, 1]))
    read = record.load_pictures(record.save_pictures(tmp_path, pool)).candidates
    assert {picture.shape for picture in read.values()} == {(10, 10, 3)}


@pytest.mark.parametrize(("classes", "side"), [(500, 64), (100_000, 12), (10**9, 8)])
def test_very_many_classes_have_smaller_pictures(classes, side, tmp_path, monkeypatch):
    monkeypatch.setattr(record, "BUDGET", record.BUDGET * 5 // classes)  # what is left for five
    path = record.save_pictures(tmp_path, ClassPool(Counting(5, size=100)))
    read = record.load_pictures(path).candidates
    assert {picture.shape for picture in read.values()} == {(side, side, 3)}


def test_a_damaged_file_is_named(tmp_path):
    path = tmp_path / "classes-stage-1.npz"
    path.write_bytes(b"PK nonsense")
    with pytest.raises(InputError, match=r"classes-stage-1\.npz.*save_classes"):
        record.load_classes(path)
    np.savez(path, other=np.zeros(1))
    with pytest.raises(InputError, match="candidates"):
        record.load_classes(path)
