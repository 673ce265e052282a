"""Heads that are trained, against learn2learn's own loops on the same tasks."""

from __future__ import annotations

import copy
import pickle

import pytest
import pytorch_lightning as pl
import torch
from torch import nn
from torch.utils.data import DataLoader

from fsl_basesel.errors import InputError
from lightning_modules.episodes import Episode, split_task
from lightning_modules.heads import ANIL, MAML, EpisodicHead, ProtoNet

l2l = pytest.importorskip("learn2learn")
lightning = pytest.importorskip("learn2learn.algorithms.lightning")

pytestmark = [
    pytest.mark.filterwarnings("ignore:You are trying to `self.log:UserWarning"),
    pytest.mark.filterwarnings("ignore:.*does not have many workers"),
    pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning"),
    pytest.mark.filterwarnings("ignore:.*LeafSpec:DeprecationWarning"),
]

TASK = {"ways": 3, "shots": 2, "queries": 4}
THEIR_TASK = {"train_ways": 3, "train_shots": 2, "train_queries": 4}
THEIR_TASK |= {"test_ways": 3, "test_shots": 2, "test_queries": 4}


def make(kind: str, network: nn.Module, **options: object) -> EpisodicHead:
    """A head of ours in double precision, its classifier away from zero."""
    if kind.startswith("proto"):
        return ProtoNet(network, kind.split("-")[1], shots=2, **options)
    maker = MAML if kind == "maml" else ANIL
    head = maker(3, 8, network, shots=2, inner_lr=0.3, steps=3, **options).double()
    torch.manual_seed(7)
    classifier = head.learner.module
    classifier = classifier if kind == "anil" else classifier.classifier
    nn.init.normal_(classifier.weight, std=0.3)
    return head


def theirs(kind: str, head: EpisodicHead) -> pl.LightningModule:
    """learn2learn's module with copies of the weights of `head`."""
    if kind.startswith("proto"):
        return lightning.LightningPrototypicalNetworks(
            copy.deepcopy(head.backbone), distance_metric=kind.split("-")[1], **THEIR_TASK
        )
    steps = {"adaptation_steps": 3, "adaptation_lr": 0.3, **THEIR_TASK}
    if kind == "maml":
        return lightning.LightningMAML(copy.deepcopy(head.learner.module), **steps)
    parts = copy.deepcopy(head.backbone), copy.deepcopy(head.learner.module)
    return lightning.LightningANIL(*parts, **steps)


def as_sorted_there(kind: str, task: tuple) -> tuple:
    """The task in the order in which learn2learn splits it: its ProtoNet sorts, and not stably."""
    if not kind.startswith("proto"):
        return task
    order = torch.sort(task[1]).indices
    return task[0][order], task[1][order]


def gradients(module: nn.Module) -> list[torch.Tensor]:
    return [p.grad for p in module.parameters() if p.grad is not None]


KINDS = ["proto-euclidean", "proto-cosine", "maml", "anil"]


@pytest.mark.parametrize("kind", KINDS)
def test_training_has_the_loss_and_gradients_of_learn2learn(tasks, small_net, kind):
    head = make(kind, small_net())
    other = theirs(kind, head)
    head.train(), other.train()
    for task in tasks[:2]:
        loss = head.training_step(as_sorted_there(kind, task), 0)
        loss.backward()
        expected, _ = other.meta_learn(task, 0, **TASK)
        expected.backward()
        assert loss.item() == pytest.approx(expected.item(), abs=1e-9)
    ours, expected = gradients(head), gradients(other)
    assert len(ours) == len(expected) > 4
    for mine, grad in zip(ours, expected, strict=True):
        torch.testing.assert_close(mine, grad, rtol=0, atol=1e-8)
    buffers = zip(head.buffers(), other.buffers(), strict=True)
    assert all(torch.allclose(mine, grad) for mine, grad in buffers)


@pytest.mark.parametrize("kind", KINDS)
def test_evaluation_has_the_accuracies_of_learn2learn(tasks, small_net, kind):
    """Without batch normalisation, whose statistics learn2learn lets the queries change."""
    head = make(kind, small_net(normalised=False))
    other = theirs(kind, head)
    for task in tasks:
        episode = split_task(*as_sorted_there(kind, task), shots=2)
        expected_loss, expected = other.meta_learn(task, 0, **TASK)
        assert float(head.accuracy(episode)) == pytest.approx(float(expected), abs=1e-6)
        loss = nn.functional.cross_entropy(head(episode), episode.query_labels)
        assert loss.item() == pytest.approx(expected_loss.item(), abs=1e-8)


@pytest.mark.parametrize("kind", ["maml", "anil"])
def test_first_order_gradients_are_those_of_the_adapted_weights(tasks, small_net, kind):
    """First-order MAML: the gradient where the adaptation ends, taken for that where it starts."""
    network = small_net(normalised=False)
    head = make(kind, network, first_order=True)
    head.training_step(tasks[0], 0).backward()
    # By hand: plain gradient descent on copies, then one backward pass.
    by_hand = make(kind, small_net(normalised=False))
    episode = split_task(*tasks[0], shots=2)
    if kind == "maml":
        trained, support = copy.deepcopy(by_hand.learner.module), episode.support
    else:
        trained, support = copy.deepcopy(by_hand.learner.module), network(episode.support).detach()
    for _ in range(3):
        loss = nn.functional.cross_entropy(trained(support), episode.support_labels)
        steps = torch.autograd.grad(loss, list(trained.parameters()))
        with torch.no_grad():
            for parameter, step in zip(trained.parameters(), steps, strict=True):
                parameter -= 0.3 * step
    query = episode.query if kind == "maml" else network(episode.query).detach()
    nn.functional.cross_entropy(trained(query), episode.query_labels).backward()
    ours = [p.grad for p in head.learner.parameters()]
    for mine, expected in zip(ours, trained.parameters(), strict=True):
        torch.testing.assert_close(mine, expected.grad, rtol=0, atol=1e-9)


class Tasks(pl.LightningDataModule):
    """The same tasks to train, validate and test on."""

    def __init__(self, tasks: list) -> None:
        super().__init__()
        self.tasks = tasks

    def train_dataloader(self) -> DataLoader:
        return DataLoader(self.tasks, batch_size=None)

    val_dataloader = test_dataloader = train_dataloader


def trainer(tmp_path, **options) -> pl.Trainer:
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    quiet |= {"enable_model_summary": False, "accelerator": "cpu", "default_root_dir": tmp_path}
    return pl.Trainer(**(quiet | options))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("running", [True, False], ids=["running statistics", "batch statistics"])
def test_trainer_validates_and_tests_without_changing_the_module(
    tasks, small_net, tmp_path, kind, running
):
    head = make(kind, small_net(running=running))
    before = {name: value.clone() for name, value in head.state_dict().items()}
    expected = torch.stack([head.accuracy(split_task(*task, shots=2)) for task in tasks]).mean()
    for run, name in (("validate", "val"), ("test", "test")):
        (found,) = getattr(trainer(tmp_path), run)(head, Tasks(tasks), verbose=False)
        assert found[f"{name}_accuracy"] == pytest.approx(float(expected), abs=1e-6)
    for name, value in head.state_dict().items():
        assert torch.equal(value, before[name]), name
    assert all(p.grad is None for p in head.parameters())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("running", [True, False], ids=["running statistics", "batch statistics"])
@pytest.mark.parametrize("training", [True, False], ids=["train mode", "eval mode"])
def test_no_query_has_a_part_in_the_score_of_another(tasks, small_net, kind, running, training):
    head = make(kind, small_net(running=running)).train(training)
    for task in tasks:  # meta-training leaves running statistics behind
        head.train()
        head.training_step(task, 0)
    head.train(training)
    episode = split_task(*tasks[0], shots=2)
    together = head(episode)
    for row in (0, 5, 11):
        alone = head(episode._replace(query=episode.query[row : row + 1]))
        torch.testing.assert_close(alone[0], together[row], rtol=0, atol=1e-9)
    assert all(part.training == training for part in head.modules())


@pytest.mark.parametrize("precision", ["32-true", "bf16-mixed"])
@pytest.mark.parametrize("kind", KINDS)
def test_training_learns_the_tasks(tasks, small_net, tmp_path, kind, precision, device):
    network = small_net().float()
    head = make(kind, network).float()
    head.lr = 0.02
    if kind == "proto-cosine":
        head.scale = 10.0
    single = [(data.float(), labels) for data, labels in tasks]
    settings = {"precision": precision, "accelerator": "gpu" if device == "cuda" else "cpu"}
    run = trainer(tmp_path, max_epochs=6, limit_val_batches=0, **settings)
    head.train()
    first = torch.stack([head.training_step(task, 0).detach() for task in single]).mean()
    run.fit(head, Tasks(single))
    assert run.callback_metrics["train_loss"] < 0.7 * first
    (found,) = run.test(head, Tasks(single), verbose=False)
    if kind != "maml":  # after so few steps it does not yet suit the statistics of normalisation
        assert found["test_accuracy"] > 0.6
    pickle.dumps(head.state_dict())
    copy.deepcopy(head)


@pytest.mark.parametrize("kind", ["maml", "anil"])
def test_a_frozen_backbone_stays_and_the_rest_adapts(tasks, small_net, kind):
    network = small_net()
    network.requires_grad_(False)
    head = make(kind, network).eval()
    head.training_step(tasks[0], 0).backward()
    assert all(p.grad is None for p in network.parameters())
    assert len(gradients(head)) == 2


def test_fewer_ways_use_the_first_outputs_and_more_are_refused():
    head = ANIL(ways=5, dims=4, steps=3)
    support = torch.eye(4)[:3]
    scores = head.scores(support, torch.arange(3), support, ways=3)
    assert scores.shape == (3, 3)
    assert scores.argmax(-1).tolist() == [0, 1, 2]
    with pytest.raises(InputError, match=r"at most 5 ways, .* of this ANIL, but got 6"):
        head.scores(torch.rand(6, 4), torch.arange(6), support, ways=6)


def test_several_episodes_at_once_give_what_each_gives_alone(episodes):
    some = episodes(5, 2)
    support = torch.stack([episode.support for episode in some])
    query = torch.stack([episode.query for episode in some])
    for head in (ProtoNet(), ProtoNet(distance="cosine"), ANIL(5, 16).double()):
        together = head.scores(support, some[0].support_labels, query, 5)
        for row, episode in enumerate(some):
            torch.testing.assert_close(together[row], head(episode))


def test_distances_hold_where_features_are_far_from_zero():
    generator = torch.Generator().manual_seed(0)
    prototypes = 1000 + torch.rand(5, 64, generator=generator)
    query = 1000 + torch.rand(7, 64, generator=generator)
    exact = (query.double()[:, None] - prototypes.double()).square().sum(-1)
    scores = ProtoNet().scores(prototypes, torch.arange(5), query, 5)
    torch.testing.assert_close(-scores.double(), exact, rtol=1e-4, atol=1e-4)


def test_tasks_need_to_say_what_is_learnt_from(tasks):
    with pytest.raises(InputError, match="Expected `shots` to be set, as a batch of ProtoNet"):
        ProtoNet(nn.Flatten()).training_step(tasks[0], 0)
    episode = split_task(*tasks[0], shots=2)
    assert isinstance(ProtoNet(nn.Flatten()).episode_of(episode), Episode)


@pytest.mark.parametrize(
    "build",
    [lambda: ProtoNet(distance="manhattan"), lambda: MAML(5, 0), lambda: ANIL(5, 3, steps=0)],
)
def test_settings_without_sense_are_refused(build):
    with pytest.raises(InputError, match="Expected `"):
        build()
