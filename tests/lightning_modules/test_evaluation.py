"""Few-shot accuracy on the novel task, against plain loops over its images."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fsl_basesel.data import NovelTask, from_features
from fsl_basesel.errors import InputError
from lightning_modules import BaseClassifier
from lightning_modules.episodes import Episode, EpisodeSampler
from lightning_modules.evaluation import evaluate_novel
from lightning_modules.features import image_features
from lightning_modules.heads import ANIL, MAML, NearestCentroid, ProtoNet, SoftmaxRegression
from tests.lightning_modules.noisy import noisy_task

pairwise = pytest.importorskip("sklearn.metrics.pairwise")


def model() -> BaseClassifier:
    return BaseClassifier("conv3", capacity=5, seed=2)


def cosine_accuracy(support: Tensor, labels: Tensor, query: Tensor, answers: Tensor) -> float:
    centroids = np.stack([support[labels == c].double().mean(0) for c in labels.unique()])
    found = pairwise.cosine_similarity(query.double(), centroids).argmax(1)
    return float((found == answers.numpy()).mean())


@torch.no_grad()
def test_the_protocol_of_the_paper_is_a_loop_over_the_draws_of_the_task():
    network, novel = model().eval(), noisy_task()
    (found,) = evaluate_novel(network, novel, [NearestCentroid()], shots=2, episodes=4)
    expected = []
    for repeat in range(4):
        draw = novel.drawn(repeat)
        support, labels = draw.support_set(2).batch(range(12))
        query, answers = draw.test_set().batch(range(30))
        features = network.features(support), network.features(query)
        expected.append(cosine_accuracy(features[0], labels, features[1], answers))
    assert found.accuracies == pytest.approx(expected, abs=1e-6)
    assert (found.ways, found.shots) == (6, 2)
    assert len(set(expected)) > 1


@torch.no_grad()
def test_random_episodes_are_those_of_the_sampler():
    network, novel = model().eval(), noisy_task()
    (found,) = evaluate_novel(network, novel, [NearestCentroid()], 3, 2, 4, episodes=9, seed=7)
    parts = novel.support_set(), novel.test_set()
    images = torch.cat([part.batch(range(len(part)))[0] for part in parts])
    labels = np.concatenate([part.labels for part in parts])
    sampler = EpisodeSampler(labels, 3, 2, 4, seed=7)
    features = network.features(images)
    expected = [cosine_accuracy(*sampler.episode(features, n)[:4]) for n in range(9)]
    assert found.accuracies == pytest.approx(expected, abs=1e-6)


def test_classes_may_have_different_numbers_of_test_images():
    generator = torch.Generator().manual_seed(0)
    labels = torch.tensor([0] * 6 + [1] * 9 + [2] * 4)
    features = torch.rand(19, 5, generator=generator) + torch.eye(5)[labels]
    novel = NovelTask(from_features(features, labels), shots=2, queries=5)
    assert len(novel.test_set()) == 4 + 5 + 2
    (found,) = evaluate_novel(None, novel, [NearestCentroid()], shots=2, episodes=3)
    expected = []
    for repeat in range(3):
        draw = novel.drawn(repeat)
        support, classes = draw.support_set().batch(range(6))
        query, answers = draw.test_set().batch(range(11))
        expected.append(cosine_accuracy(support, classes, query, answers))
    assert found.accuracies == pytest.approx(expected, abs=1e-6)


def test_every_head_and_model_gets_the_same_episodes():
    novel = noisy_task()
    alone = [
        evaluate_novel(model(), novel, [head], 3, 1, 4, episodes=20)[0]
        for head in (NearestCentroid(), SoftmaxRegression())
    ]
    # Another seed of the network, other heads before: nothing of it has a part in the episodes.
    evaluate_novel(BaseClassifier("conv3", seed=9), novel, [NearestCentroid()], 3, 1, 4, episodes=2)
    torch.manual_seed(1)
    together = evaluate_novel(
        model(), novel, [SoftmaxRegression(), NearestCentroid()], 3, 1, 4, episodes=20
    )
    assert together == alone[::-1]


@pytest.mark.parametrize("block", [1, 1000, 1 << 24])
def test_the_size_of_blocks_does_not_matter(block: int, monkeypatch: pytest.MonkeyPatch):
    novel = noisy_task()
    heads = [NearestCentroid(), SoftmaxRegression()]
    expected = evaluate_novel(model(), novel, heads, 3, 1, 4, episodes=11)
    monkeypatch.setattr("lightning_modules.evaluation.BLOCK_NUMBERS", block)
    assert evaluate_novel(model(), novel, heads, 3, 1, 4, episodes=11) == expected


def test_the_network_is_left_as_it_was():
    network = model().train()
    network.backbone.blocks[1].eval()  # frozen by its owner
    modes = [part.training for part in network.modules()]
    before = {name: value.clone() for name, value in network.state_dict().items()}
    state = torch.get_rng_state()
    evaluate_novel(
        network, noisy_task(), [NearestCentroid(), SoftmaxRegression()], 3, 1, 4, episodes=3
    )
    assert [part.training for part in network.modules()] == modes
    assert torch.equal(torch.get_rng_state(), state)
    for name, value in network.state_dict().items():
        assert torch.equal(value, before[name])


@pytest.mark.parametrize("make", [lambda net: ProtoNet(net), lambda net: ANIL(3, 128, net)])
def test_a_head_with_a_backbone_of_its_own_uses_that(make: Callable[[nn.Module], nn.Module]):
    pytest.importorskip("learn2learn")
    head, novel = make(BaseClassifier("conv3", seed=4).backbone), noisy_task()
    (found,) = evaluate_novel(model(), novel, [head], 3, 2, 3, episodes=5, seed=1)
    expected = [float(head.accuracy(episode)) for episode in image_episodes(novel, 3, 2, 3, 5, 1)]
    assert found.accuracies == pytest.approx(expected, abs=1e-6)


def image_episodes(
    novel: NovelTask, ways: int, shots: int, queries: int, count: int, seed: int
) -> list[Episode]:
    parts = novel.support_set(), novel.test_set()
    images = torch.cat([part.batch(range(len(part)))[0] for part in parts])
    labels = np.concatenate([part.labels for part in parts])
    sampler = EpisodeSampler(labels, ways, shots, queries, seed)
    return [sampler.episode(images, number) for number in range(count)]


def test_a_head_that_adapts_its_backbone_gets_images():
    pytest.importorskip("learn2learn")
    novel = noisy_task()
    head = MAML(3, 128, BaseClassifier("conv3", seed=4).backbone, inner_lr=0.5, steps=2)
    (found,) = evaluate_novel(None, novel, [head], 3, 2, 3, episodes=4, seed=1)
    expected = [float(head.accuracy(episode)) for episode in image_episodes(novel, 3, 2, 3, 4, 1)]
    assert found.accuracies == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("ways", [None, 3])
def test_one_episode_is_an_accuracy_without_an_interval(ways: int | None):
    (several,) = evaluate_novel(model(), noisy_task(), [NearestCentroid()], ways, 2, 3, episodes=4)
    (one,) = evaluate_novel(model(), noisy_task(), [NearestCentroid()], ways, 2, 3, episodes=1)
    assert one.accuracies == several.accuracies[:1]
    assert np.isnan(one.interval)


def test_features_that_depend_on_the_batch_are_refused():
    network = nn.Sequential(nn.Flatten(), nn.BatchNorm1d(64, track_running_stats=False))
    holder = nn.Module()
    holder.features = network
    with pytest.raises(InputError, match="the same features whatever its batch"):
        image_features(noisy_task().support_set(), holder)


def test_intervals_are_those_of_students_t():
    stats = pytest.importorskip("scipy.stats")
    (found,) = evaluate_novel(model(), noisy_task(), [NearestCentroid()], shots=2, episodes=4)
    values = found.accuracies
    assert len(set(values)) > 1
    low, high = stats.t.interval(0.95, 3, loc=np.mean(values), scale=stats.sem(values))
    assert (found.mean - found.interval, found.mean + found.interval) == pytest.approx((low, high))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"heads": []}, "one or more `heads`"),
        ({"heads": [NearestCentroid(), NearestCentroid()]}, "different names"),
        ({"episodes": 0}, "`episodes` to be at least 1"),
        ({"ways": 7, "shots": 1, "queries": 1}, "at least ways = 7 classes but got 6"),
        ({"ways": 2, "shots": 1}, r"shots \+ queries = 16 images of every class but class 0 has 9"),
        ({"shots": 5}, "from 1 to 4 but got 5"),
    ],
)
def test_what_cannot_be_evaluated_is_refused(options: dict, message: str):
    with pytest.raises(InputError, match=message):
        evaluate_novel(model(), noisy_task(), **({"heads": [NearestCentroid()]} | options))
