"""The plug: learn2learn's own data sets, tasks and Lightning modules on selected classes."""

from __future__ import annotations

import pickle
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import ModelCheckpoint
from torch import nn
from torch.utils.data import DataLoader, Dataset

import fsl_basesel as fb
from fsl_basesel.errors import InputError
from lightning_modules import ColdStartSelection, SelectBaseClasses
from lightning_modules.callbacks.novel_evaluation import NovelEvaluation
from lightning_modules.heads import ANIL, MAML, ProtoNet
from lightning_modules.learn2learn import (
    SelectedTasks,
    TaskLoader,
    select_classes,
    selection_problem,
)
from tests.lightning_modules.noisy import noisy_task
from tests.lightning_modules.runs import tiny_pool, tiny_trainer

l2l = pytest.importorskip("learn2learn")
lightning = pytest.importorskip("learn2learn.algorithms.lightning")
batching = pytest.importorskip("learn2learn.utils.lightning")
kinds = l2l.data.transforms

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*(LeafSpec|max_epochs|not empty|logging interval)"),
    pytest.mark.filterwarnings("ignore:.*(does not have many workers|no last checkpoint)"),
    pytest.mark.filterwarnings("ignore:.*(no logger configured|across ranks is zero)"),
]

LABELS = [3, 5, 8, 13, 21, 34, 55, 89]


class Numbers(Dataset):
    """8 classes with labels that are no positions; the input of image i is i."""

    def __init__(self, per_class: int = 6, labels: list = LABELS) -> None:
        self.labels = [label for label in labels for _ in range(per_class)]

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, Any]:
        return torch.tensor([float(index)]), self.labels[index]


class OwnDraw:
    """A task transform that learn2learn does not know."""

    def __init__(self, dataset: Any, n: int, k: int) -> None:
        self.dataset, self.n, self.k = dataset, n, k

    def __call__(self, description: list) -> list:
        table = self.dataset.indices_to_labels
        labels = random.sample(sorted({table[one.index] for one in description}), self.n)
        groups = [[one for one in description if table[one.index] == label] for label in labels]
        return [one for group in groups for one in random.sample(group, self.k)]


@pytest.fixture
def dataset() -> Any:
    return l2l.data.MetaDataset(Numbers())


def drawing(dataset: Any, kind: str, n: int = 2, k: int = 3) -> list:
    """Ways to say the same thing."""
    return {
        "fused": lambda: [kinds.FusedNWaysKShots(dataset, n, k)],
        "separate": lambda: [kinds.NWays(dataset, n), kinds.KShots(dataset, k)],
        "filtered": lambda: [
            kinds.FilterLabels(dataset, LABELS[:6]),
            kinds.NWays(dataset, n),
            kinds.KShots(dataset, k),
        ],
        "own": lambda: [OwnDraw(dataset, n, k)],
        "loading first": lambda: [
            kinds.LoadData(dataset),
            kinds.NWays(dataset, n),
            kinds.KShots(dataset, k),
        ],
    }[kind]()


def taskset(dataset: Any, kind: str = "fused", num_tasks: int = -1, n: int = 2, k: int = 3) -> Any:
    steps = drawing(dataset, kind, n, k)
    steps += [] if kind == "loading first" else [kinds.LoadData(dataset)]
    return l2l.data.Taskset(dataset, steps, num_tasks)


def classes_of(tasks: Any, draws: int = 60) -> set:
    return {int(label) for _ in range(draws) for label in tasks.sample()[1]}


def test_a_data_set_is_filtered_and_stays_as_it_was(dataset):
    chosen = select_classes(dataset, [21, 5])
    assert isinstance(chosen, l2l.data.FilteredMetaDataset)
    assert chosen.labels == [21, 5]
    assert [int(chosen[i][0]) for i in range(len(chosen))] == [*range(24, 30), *range(6, 12)]
    assert dataset.labels == LABELS


@pytest.mark.parametrize("labels", [np.array([21, 5]), torch.tensor([21, 5]), (21, 5)])
def test_labels_may_be_numbers_of_numpy_or_torch(dataset, labels):
    assert select_classes(dataset, labels).labels == [21, 5]


@pytest.mark.parametrize("kind", ["fused", "separate", "filtered", "loading first", "own"])
def test_tasks_come_from_the_selected_classes_only(dataset, kind):
    tasks = taskset(dataset, kind)
    assert select_classes(tasks, [5, 13, 34]) is tasks
    assert classes_of(tasks) == {5, 13, 34}
    for _ in range(10):
        data, labels = tasks.sample()
        assert len(labels.unique()) == 2
        assert sorted(torch.bincount(labels).tolist())[-2:] == [3, 3]
        assert len(set(data.flatten().tolist())) == 6
        positions = data.flatten().long().tolist()
        assert labels.tolist() == [dataset.indices_to_labels[i] for i in positions]


@pytest.mark.parametrize("kind", ["fused", "separate", "filtered", "loading first", "own"])
def test_a_curriculum_calls_again_with_more_classes(dataset, kind):
    tasks = taskset(dataset, kind)
    for count in (2, 4, 6, 3):
        select_classes(tasks, LABELS[:count])
        assert classes_of(tasks) == set(LABELS[:count])
        assert len(tasks.task_transforms) <= 4


def test_cached_tasks_of_other_classes_are_forgotten(dataset):
    tasks = taskset(dataset, num_tasks=5)
    assert len(list(iter(tasks))) == 5
    select_classes(tasks, [55, 89])
    assert {int(label) for _, labels in tasks for label in labels} == {55, 89}
    again = [labels.tolist() for _, labels in tasks]
    assert [labels.tolist() for _, labels in tasks] == again  # and the new ones are kept


def test_restricting_tasks_equals_making_tasks_of_the_filtered_data_set(dataset):
    chosen = [89, 3, 21, 8]
    restricted = select_classes(taskset(dataset, "separate"), chosen)
    filtered = select_classes(dataset, chosen)
    made = taskset(filtered, "fused")
    for seed in range(20):
        random.seed(seed)
        ours = restricted.sample()
        random.seed(seed)
        theirs = made.sample()
        assert torch.equal(ours[0], theirs[0])
        assert torch.equal(ours[1], theirs[1])


def test_restricted_tasks_work_in_the_workers_of_a_loader(dataset):
    tasks = select_classes(taskset(dataset, num_tasks=6), [3, 34, 89])
    loader = DataLoader(tasks, batch_size=None, num_workers=1, multiprocessing_context="fork")
    assert {int(label) for _, labels in loader for label in labels} <= {3, 34, 89}
    assert pickle.loads(pickle.dumps(tasks.task_transforms[0])).filter_labels == [3, 34, 89]


@pytest.mark.parametrize("kind", ["fused", "separate", "filtered"])
@pytest.mark.parametrize(
    ("classes", "message"),
    [
        ([5], "as many classes as a task has ways, 2, but got 1"),
        ([5, 7], r"labels of the data set \(8 classes, such as 3\) but got 7 \(1 of 2"),
        ([5, 5], "2 of which 1 differ"),
        ([], "0 of which 0 differ"),
        ([5, "x"], "but got 'x'"),
    ],
)
def test_classes_that_cannot_be_are_refused_and_nothing_changes(dataset, kind, classes, message):
    tasks = taskset(dataset, kind)
    before = list(tasks.task_transforms)
    with pytest.raises(InputError, match=message):
        select_classes(tasks, classes)
    assert tasks.task_transforms == before
    # learn2learn's table is a defaultdict: a wrong label must not have been added to it.
    assert list(dataset.labels_to_indices) == LABELS


def test_other_reasons_to_refuse(dataset):
    with pytest.raises(InputError, match=r"at least 7 images of every class, .* but class 3 has 6"):
        select_classes(taskset(dataset, k=7), [3, 5])
    steps = [kinds.NWays(dataset, 2), kinds.KShots(dataset, 7, replacement=True)]
    drawn = select_classes(l2l.data.Taskset(dataset, [*steps, kinds.LoadData(dataset)]), [3, 5])
    assert len(drawn.sample()[1]) == 14
    with pytest.raises(InputError, match="own filter leaves out"):
        select_classes(taskset(dataset, "filtered"), [3, 89])
    with pytest.raises(InputError, match=r"to be a list, .* but got function"):
        select_classes(l2l.data.Taskset(dataset, lambda task: task), [3, 5])
    with pytest.raises(InputError, match=r"Expected a learn2learn MetaDataset, .* but got Numbers"):
        select_classes(Numbers(), [3, 5])


def features_of(labels: list) -> torch.Tensor:
    generator = torch.Generator().manual_seed(0)
    return torch.rand(len(labels), 5, generator=generator)


def test_a_selection_is_matched_by_names(dataset):
    named = fb.SelectionProblem.from_centroids(
        features_of(LABELS), m=3, k=1, names=[str(label) for label in LABELS]
    )
    selection = fb.select(named)
    assert select_classes(dataset, selection).labels == [int(name) for name in selection.names]
    numbered = fb.select(fb.SelectionProblem.from_centroids(features_of(LABELS), m=3, k=1))
    assert numbered.names != selection.names
    assert select_classes(dataset, numbered).labels == [LABELS[i] for i in numbered.indices]


def test_a_selection_that_could_mean_other_classes_is_refused(dataset):
    numbered = fb.select(fb.SelectionProblem.from_centroids(features_of(LABELS[:6]), m=3, k=1))
    with pytest.raises(
        InputError, match="but got column numbers of 6; build the problem with names"
    ):
        select_classes(dataset, numbered)
    problem = fb.SelectionProblem.from_centroids(
        features_of(LABELS), m=3, k=1, names=[f"class {label}" for label in LABELS]
    )
    with pytest.raises(InputError, match="such as '3', but got 'class"):
        select_classes(dataset, fb.select(problem))


class Pictures(Dataset):
    """Images of named classes, as torchvision's folders have them."""

    def __init__(self, classes: int = 6, per_class: int = 5, seed: int = 0) -> None:
        generator = torch.Generator().manual_seed(seed)
        self.classes = [f"thing {c}" for c in range(classes)]
        self.targets = [c for c in range(classes) for _ in range(per_class)]
        base = torch.rand(classes, 1, 8, 8, generator=generator)
        noise = torch.rand(len(self.targets), 1, 8, 8, generator=generator)
        self.images = 0.7 * base[torch.tensor(self.targets)] + 0.3 * noise

    def __len__(self) -> int:
        return len(self.targets)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        return self.images[index], self.targets[index]


def test_the_problem_of_a_data_set_has_its_centroids_and_names():
    candidates, novel = l2l.data.MetaDataset(Pictures()), l2l.data.MetaDataset(Pictures(4, seed=1))
    problem = selection_problem(candidates, nn.Flatten(), novel, m=2, k=1)
    assert problem.names == tuple(f"thing {c}" for c in range(6))
    expected = [
        images.images.reshape(-1, 5, 64).double().mean(1)
        for images in (Pictures(), Pictures(4, seed=1))
    ]
    unit = [nn.functional.normalize(rows, dim=1) for rows in expected]
    torch.testing.assert_close(
        torch.as_tensor(problem.similarity).double(), unit[1] @ unit[0].T, atol=1e-6, rtol=0
    )
    selection = fb.select(problem)
    assert select_classes(candidates, selection).labels == selection.indices
    filtered = l2l.data.FilteredMetaDataset(candidates, [4, 1, 5])
    general = selection_problem(filtered, nn.Flatten(), m=2, k=1, preview=3)
    assert general.names == ("thing 1", "thing 4", "thing 5")
    chosen = select_classes(filtered, fb.select(general))
    assert set(chosen.labels) < {1, 4, 5}


def test_the_omniglot_benchmark_is_accepted_and_its_overlap_ended(monkeypatch):
    class FewOmniglot(Numbers):
        def __init__(self, **options: Any) -> None:
            super().__init__(per_class=3, labels=list(range(1623)))

        def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
            return torch.full((1, 4, 4), float(index)), self.labels[index]

    monkeypatch.setattr(l2l.vision.datasets, "FullOmniglot", FewOmniglot)
    random.seed(0)
    tasksets = l2l.vision.benchmarks.get_tasksets("omniglot", 5, 2, 5, 2)
    own = {name: set(getattr(tasksets, name).dataset.labels) for name in tasksets._fields}

    def drawn(tasks: Any) -> set:
        table = tasks.task_transforms[0].dataset.indices_to_labels
        tasks.task_transforms = [*tasks.task_transforms[:2]]
        return {table[int(i)] for _ in range(150) for i in tasks.sample()[0][:, 0, 0, 0]}

    chosen = sorted(own["train"])[:50]
    with pytest.warns(UserWarning, match="drawn from 1623 classes although their data set has"):
        assert select_classes(tasksets, chosen) is tasksets
    assert drawn(tasksets.train) == set(chosen)
    assert drawn(tasksets.test) <= own["test"]
    assert drawn(tasksets.validation) <= own["validation"]
    with pytest.raises(InputError, match="labels of the data set"):
        select_classes(tasksets, sorted(own["test"])[:50])


class Encoder(nn.Module):
    """16 features of 8 x 8 pixels."""

    def __init__(self, outputs: int = 16) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.net = nn.Sequential(nn.Conv2d(1, 16, 3), nn.BatchNorm2d(16), nn.ReLU())

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return self.net(images).mean((2, 3))


THEIRS = {"train_ways": 2, "train_shots": 1, "train_queries": 2}
THEIRS |= {"test_ways": 2, "test_shots": 1, "test_queries": 2}


def learn2learn_module(name: str) -> pl.LightningModule:
    if name == "ProtoNet":
        return lightning.LightningPrototypicalNetworks(Encoder(), **THEIRS)
    encoder, classifier = Encoder(), nn.Linear(16, 2)
    if name == "ANIL":
        return lightning.LightningANIL(encoder, classifier, **THEIRS)
    module = lightning.LightningMAML(nn.Sequential(encoder, classifier), **THEIRS)
    module.features = encoder  # what the selection looks at
    return module


def tasks_module(**options: Any) -> SelectedTasks:
    settings = {"ways": 2, "shots": 1, "queries": 2, "tasks": 6, "val_per_class": 3} | options
    return SelectedTasks(tiny_pool(), noisy_task(), **settings)


class Watch(pl.Callback):
    """Which classes of the pool the training tasks show, by their pixels."""

    def __init__(self) -> None:
        pool = tiny_pool()
        images = pool.source.images(np.repeat(np.arange(12), 10), np.tile(np.arange(10), 12))
        self.known = {image.numpy().tobytes(): i // 10 for i, image in enumerate(images)}
        self.seen: dict[int, set[int]] = {}
        self.batches: list[bytes] = []

    def on_train_batch_start(
        self, trainer: pl.Trainer, pl_module: Any, batch: Any, batch_idx: int
    ) -> None:
        found = [self.known[image.numpy().tobytes()] for image in batch[0]]
        assert [found[i : i + 3] for i in (0, 3)] == [[found[0]] * 3, [found[3]] * 3]
        assert batch[1].tolist() == [0, 0, 0, 1, 1, 1]
        self.seen.setdefault(trainer.current_epoch, set()).update(found)
        self.batches.append(batch[0].numpy().tobytes())


@pytest.mark.parametrize("name", ["ProtoNet", "ANIL", "MAML"])
def test_learn2learns_modules_train_on_classes_chosen_on_the_way(tmp_path: Path, name: str):
    watch, selection = Watch(), ColdStartSelection((3, 6), 3, k=1, warm_start=True, verbose=False)
    data, module = tasks_module(tasks=12), learn2learn_module(name)
    trainer = tiny_trainer(tmp_path, selection, watch, inference_mode=name == "ProtoNet")
    before = {key: value.clone() for key, value in module.state_dict().items()}
    trainer.fit(module, data)
    first, second = set(data.class_numbers[:3]), set(data.class_numbers)
    assert [watch.seen[epoch] for epoch in range(6)] == [first] * 3 + [second] * 3
    assert len(set(watch.batches)) == 72  # a new task every time
    changed = [not torch.equal(value, before[key]) for key, value in module.state_dict().items()]
    assert sum(changed) > len(changed) / 2
    assert "valid_accuracy" in trainer.callback_metrics
    (result,) = trainer.test(module, data, verbose=False)
    assert 0 <= result["test_accuracy"] <= 1


@pytest.mark.parametrize("make", [ProtoNet, ANIL, MAML])
def test_our_heads_train_and_judge_themselves_on_the_novel_classes(tmp_path: Path, make: Any):
    options = {"shots": 1, "lr": 0.01}
    head = make(Encoder(), **options) if make is ProtoNet else make(2, 16, Encoder(), **options)
    novel = NovelEvaluation(ways=2, shots=1, queries=3, episodes=10, every="epoch", verbose=False)
    selection = SelectBaseClasses(m=5, k=1, verbose=False)
    data = tasks_module()
    trainer = tiny_trainer(tmp_path, selection, novel, max_epochs=2)
    trainer.fit(head, data)
    assert {row["head"] for row in novel.rows} == {head.name}
    assert len(novel.rows) == 2
    (result,) = trainer.test(head, data, verbose=False)
    tasks = [head.episode_of(task) for task in data.test_dataloader()]
    expected = torch.stack([head.accuracy(episode) for episode in tasks]).mean()
    assert result["test_accuracy"] == pytest.approx(float(expected), abs=1e-6)


@pytest.mark.parametrize("steps", [4, 6])
def test_a_resumed_run_sees_the_tasks_it_would_have_seen(tmp_path: Path, steps: int):
    def fit(folder: Path, **options: Any) -> tuple[dict, list[bytes]]:
        watch = Watch()
        saving = ModelCheckpoint(folder, save_last=True, every_n_train_steps=1)
        selection = SelectBaseClasses(m=4, k=1, verbose=False)
        head = ProtoNet(Encoder(), shots=1)
        trainer = tiny_trainer(folder, selection, watch, saving, max_epochs=2, **options)
        trainer.fit(head, tasks_module(val_per_class=0), ckpt_path="last", weights_only=True)
        return head.state_dict(), watch.batches

    whole, batches = fit(tmp_path / "whole")
    _, first = fit(tmp_path / "halves", max_steps=steps)
    halves, second = fit(tmp_path / "halves")
    assert first + second == batches
    assert all(torch.equal(value, halves[name]) for name, value in whole.items())


def test_no_two_processes_get_the_same_task():
    images = tiny_pool().source
    labels = np.repeat(np.arange(12), 10)
    pictures = fb.data.ImageSet(images, labels, np.tile(np.arange(10), 12), labels)
    seen = []
    for rank in range(3):
        for epoch in range(2):
            kind = {"ways": 3, "shots": 1, "queries": 2, "tasks": 5, "world": 3}
            loader = TaskLoader(pictures, **kind, rank=rank, epoch=lambda epoch=epoch: epoch)
            seen += [batch.numpy().tobytes() for batch, _ in loader]
    assert len(set(seen)) == 30


def test_a_curriculum_through_learn2learns_own_batcher(tmp_path: Path):
    dataset = l2l.data.MetaDataset(Pictures())
    steps = [kinds.NWays(dataset, 2), kinds.KShots(dataset, 3), kinds.LoadData(dataset)]
    tasks = l2l.data.Taskset(dataset, [*steps, kinds.RemapLabels(dataset)], num_tasks=50)
    seen: dict[int, set] = {0: set(), 1: set()}

    class Curriculum(pl.Callback):
        def on_train_epoch_start(self, trainer: pl.Trainer, pl_module: Any) -> None:
            select_classes(tasks, range(2 + 2 * trainer.current_epoch))

        def on_train_batch_start(self, trainer: pl.Trainer, *args: Any) -> None:
            described = tasks.sampled_descriptions.values()
            found = {dataset.indices_to_labels[d.index] for task in described for d in task}
            seen[trainer.current_epoch] |= found

    batcher = batching.EpisodicBatcher(tasks, epoch_length=30)
    trainer = tiny_trainer(tmp_path, Curriculum(), max_epochs=2, limit_val_batches=0)
    trainer.fit(learn2learn_module("ProtoNet"), batcher)
    assert seen == {0: {0, 1}, 1: {0, 1, 2, 3}}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"ways": 0}, "`ways` to be at least 1"),
        ({"batch_size": 8}, "Expected no `batch_size`"),
        ({"tasks": -1}, "`tasks` to be at least 1"),
    ],
)
def test_settings_without_sense_are_refused(options: dict, message: str):
    with pytest.raises(InputError, match=message):
        tasks_module(**options)


def test_too_few_classes_for_a_task_and_no_novel_task_are_refused():
    data = tasks_module(ways=3)
    data.add_classes([0, 1])
    with pytest.raises(InputError, match="at least ways = 3 classes but got 2"):
        data.train_dataloader()
    with pytest.raises(InputError, match="Expected a novel task to test on"):
        SelectedTasks(tiny_pool(), None, 2, 1, 2, 3).test_dataloader()


def test_everything_imports_without_learn2learn():
    code = (
        "import sys; sys.modules['learn2learn'] = None\n"
        "import lightning_modules.learn2learn, lightning_modules.heads as heads\n"
        "import lightning_modules.callbacks.novel_evaluation\n"
        "heads.NearestCentroid()\n"
        "try: heads.ProtoNet()\n"
        "except ImportError as error: assert 'pip install' in str(error)\n"
        "else: raise SystemExit('learn2learn was found')"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=200)
