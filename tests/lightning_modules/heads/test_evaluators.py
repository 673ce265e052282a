"""Heads that only evaluate, against scikit-learn on the same episodes."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from fsl_basesel.errors import InputError
from lightning_modules.episodes import Episode, EpisodeSampler, split_task
from lightning_modules.heads import (
    Head,
    NearestCentroid,
    SoftmaxRegression,
    WhitenedCentroid,
)

linear_model = pytest.importorskip("sklearn.linear_model")
neighbors = pytest.importorskip("sklearn.neighbors")
pairwise = pytest.importorskip("sklearn.metrics.pairwise")

EVALUATORS = [NearestCentroid(), SoftmaxRegression()]
KINDS = [{"ways": 5, "shots": 1}, {"ways": 5, "shots": 5}, {"ways": 12, "shots": 5}]


def numpy_of(episode: Episode) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    return tuple(part.numpy() for part in episode[:4])


@pytest.mark.filterwarnings("ignore:invalid value encountered in divide")  # variance of one image
@pytest.mark.parametrize("kind", KINDS)
def test_nearest_centroid_gives_the_accuracies_of_scikit_learn(episodes, kind):
    head = NearestCentroid()
    for episode in episodes(**kind):
        support, support_labels, query, query_labels = numpy_of(episode)
        centroids = neighbors.NearestCentroid().fit(support, support_labels).centroids_
        cosines = pairwise.cosine_similarity(query, centroids)
        np.testing.assert_allclose(head(episode).numpy(), cosines, atol=1e-12)
        expected = (cosines.argmax(1) == query_labels).mean()
        assert float(head.accuracy(episode)) == pytest.approx(expected, abs=1e-6)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("decay", [5e-4, 1e-2])
def test_softmax_regression_is_that_of_scikit_learn(episodes, kind, decay):
    head = SoftmaxRegression(weight_decay=decay, tolerance=1e-9)
    for episode in episodes(**kind, count=3):
        support, support_labels, query, query_labels = numpy_of(episode)
        support = support / np.linalg.norm(support, axis=1, keepdims=True)
        query = query / np.linalg.norm(query, axis=1, keepdims=True)
        model = linear_model.LogisticRegression(
            C=1 / (decay * len(support)), tol=1e-10, max_iter=10_000
        ).fit(support, support_labels)
        ours = head(episode).softmax(-1).numpy()
        np.testing.assert_allclose(ours, model.predict_proba(query), atol=2e-5)
        expected = model.score(query, query_labels)
        assert float(head.accuracy(episode)) == pytest.approx(expected, abs=1e-6)


def test_softmax_regression_on_raw_features_is_that_of_scikit_learn(episodes):
    episode = episodes(12, 5)[0]
    support, support_labels, query, _ = numpy_of(episode)
    head = SoftmaxRegression(weight_decay=0.1, normalise=False, tolerance=1e-9)
    model = linear_model.LogisticRegression(C=10 / len(support), tol=1e-10, max_iter=10_000)
    expected = model.fit(support, support_labels).predict_proba(query)
    np.testing.assert_allclose(head(episode).softmax(-1).numpy(), expected, atol=2e-5)


@pytest.mark.parametrize("head", EVALUATORS, ids=lambda head: head.name)
def test_many_episodes_at_once_give_what_each_gives_alone(features, head: Head):
    inputs, labels = features
    sampler = EpisodeSampler(labels, 5, 3, 4)
    draw = sampler.draw(range(7))
    together = head.scores(
        inputs[draw.support].flatten(1, 2),
        sampler.support_labels,
        inputs[draw.query].flatten(1, 2),
        ways=5,
    )
    for number in range(7):
        alone = head(sampler.episode(inputs, number))
        torch.testing.assert_close(together[number], alone, rtol=0, atol=1e-9)


@pytest.mark.parametrize("head", EVALUATORS, ids=lambda head: head.name)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
def test_low_precision_features_and_autocast_change_little(episodes, head, dtype, device):
    head = head.to(device)
    for episode in episodes(5, 5, count=2):
        support, labels, query, query_labels, ways = episode
        exact = head.accuracy(episode)
        moved = Episode(
            support.to(device, dtype),
            labels.to(device),
            query.to(device, dtype),
            query_labels.to(device),
            ways,
        )
        with torch.inference_mode(), torch.autocast(device, dtype=torch.bfloat16):
            scores = head(moved)
        assert scores.dtype in (torch.float32, torch.float64)
        assert abs(head.accuracy(moved).cpu() - exact) <= 2 / len(query)


@pytest.mark.parametrize("head_class", [NearestCentroid, SoftmaxRegression])
def test_a_backbone_runs_in_evaluation_mode_and_is_left_as_it_was(tasks, small_net, head_class):
    network = small_net()
    network.layers[1].eval()  # one layer is frozen by its owner
    head = head_class(network)
    assert head.training
    modes = [part.training for part in head.modules()]
    before = {name: value.clone() for name, value in head.state_dict().items()}
    episode = split_task(*tasks[0], shots=2)
    together = head(episode)
    assert [part.training for part in head.modules()] == modes
    for name, value in head.state_dict().items():
        assert torch.equal(value, before[name])
    # No query has a part in the score of another: one at a time gives the same.
    for row in range(0, len(episode.query), 4):
        alone = head(episode._replace(query=episode.query[row : row + 1]))
        torch.testing.assert_close(alone[0], together[row], rtol=0, atol=1e-8)


def test_features_of_length_zero_are_no_error():
    support = torch.tensor([[0.0, 0.0], [1.0, 0.0]])
    scores = NearestCentroid().scores(support, torch.tensor([0, 1]), support, ways=2)
    assert scores.tolist() == [[0.0, 0.0], [0.0, 1.0]]
    scores = SoftmaxRegression().scores(support, torch.tensor([0, 1]), support, ways=2)
    assert bool(scores.isfinite().all())


def test_settings_without_sense_are_refused():
    with pytest.raises(InputError, match="Expected `"):
        SoftmaxRegression(weight_decay=0)


def test_whitened_centroids_are_those_of_a_direct_computation():
    rng = np.random.default_rng(0)
    base, base_labels = rng.random((60, 7)) ** 2, np.repeat(np.arange(6), 10)
    support, labels = rng.random((2, 12, 7)), np.repeat(np.arange(4), 3)
    query = rng.random((2, 9, 7))
    head = WhitenedCentroid(torch.from_numpy(base), torch.from_numpy(base_labels))
    found = head.scores(
        torch.from_numpy(support), torch.from_numpy(labels), torch.from_numpy(query), 4
    )
    base_means = np.stack([base[base_labels == c].mean(0) for c in range(6)])
    for episode in range(2):
        means = np.stack([support[episode][labels == c].mean(0) for c in range(4)])
        away = [base[i] - base_means[base_labels[i]] for i in range(60)]
        away += [support[episode][i] - means[labels[i]] for i in range(12)]
        covariance = sum(np.outer(row, row) for row in away) / 72
        covariance = 0.5 * covariance + 0.5 * np.trace(covariance) / 7 * np.eye(7)
        # Products after whitening are products with the inverse of the covariance.
        inverse = np.linalg.inv(covariance)

        def cosine(a: np.ndarray, b: np.ndarray, inverse: np.ndarray = inverse) -> float:
            return a @ inverse @ b / np.sqrt((a @ inverse @ a) * (b @ inverse @ b))

        for c in range(4):
            near = sorted(range(6), key=lambda b: -cosine(means[c], base_means[b]))[:2]
            mixed = 0.8 * means[c] + 0.2 * base_means[near].mean(0)
            expected = [cosine(row, mixed) for row in query[episode]]
            np.testing.assert_allclose(found[episode, :, c].numpy(), expected, atol=1e-6)


def test_whitened_centroids_need_images_of_base_classes():
    with pytest.raises(InputError, match=r"one label for each, but got shapes \(3, 2\) and \(2,\)"):
        WhitenedCentroid(torch.rand(3, 2), torch.tensor([0, 1]))
