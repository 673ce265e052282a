import numpy as np
import pytest
import torch

from fsl_basesel.errors import InputError
from lightning_modules.episodes import EpisodeSampler, split_task

LABELS = np.repeat([7, 2, 9, 4, 11, 0], [12, 9, 10, 15, 8, 8])


def test_an_episode_has_the_asked_for_images_and_no_image_twice():
    draw = EpisodeSampler(LABELS, ways=4, shots=3, queries=5).draw(range(200))
    assert draw.support.shape == (200, 4, 3)
    assert draw.query.shape == (200, 4, 5)
    together = torch.cat([draw.support, draw.query], -1)
    labels = torch.from_numpy(LABELS)
    assert torch.equal(labels[together], draw.classes[..., None].expand_as(together))
    for positions, classes in zip(together, draw.classes, strict=True):
        assert len(set(positions.flatten().tolist())) == 32
        assert len(set(classes.tolist())) == 4


def test_an_episode_depends_on_seed_and_number_alone():
    sampler = EpisodeSampler(LABELS, 3, 2, 2, seed=5)
    together = sampler.draw([3, 8, 1])
    again = EpisodeSampler(torch.from_numpy(LABELS), 3, 2, 2, seed=5)
    torch.manual_seed(99)
    for row, number in enumerate([3, 8, 1]):
        alone = again.draw([number])
        for one, other in zip(alone, together, strict=True):
            assert torch.equal(one[0], other[row])
    other = EpisodeSampler(LABELS, 3, 2, 2, seed=6).draw([3, 8, 1])
    assert not torch.equal(other.support, together.support)


def test_more_shots_add_to_the_support_set_and_keep_the_queries():
    one = EpisodeSampler(LABELS, 5, 1, 3).draw(range(10))
    five = EpisodeSampler(LABELS, 5, 5, 3).draw(range(10))
    assert torch.equal(one.query, five.query)
    assert torch.equal(one.support, five.support[..., :1])


def test_images_of_a_class_do_not_depend_on_the_other_classes():
    all_classes = EpisodeSampler(LABELS, 6, 2, 3).draw([4])
    kept = np.flatnonzero(LABELS != 9)
    fewer = EpisodeSampler(LABELS[kept], 5, 2, 3).draw([4])
    by_class = dict(
        zip(all_classes.classes[0].tolist(), all_classes.query[0].tolist(), strict=True)
    )
    for label, positions in zip(fewer.classes[0].tolist(), fewer.query[0], strict=True):
        assert kept[positions].tolist() == by_class[label]


def test_every_class_and_every_image_is_as_likely_as_any_other():
    labels = np.repeat(np.arange(8), 10)
    draw = EpisodeSampler(labels, 3, 1, 1).draw(range(20_000))
    classes = torch.bincount(draw.classes.flatten(), minlength=8).double()
    images = torch.bincount(draw.support.flatten(), minlength=80).double()
    pairs = torch.bincount((draw.support * 80 + draw.query).flatten(), minlength=6400).double()
    for counts in (classes, images, pairs[pairs > 0]):
        expected = counts.sum() / len(counts)
        # The statistic of a chi-square test is near its degrees of freedom: within 5 deviations.
        statistic = float(((counts - expected) ** 2 / expected).sum())
        assert abs(statistic - len(counts)) < 5 * (2 * len(counts)) ** 0.5
    assert int((pairs > 0).sum()) == 8 * 10 * 9  # the query is never the support image


def test_an_episode_of_inputs_holds_the_drawn_rows():
    sampler = EpisodeSampler(LABELS, 4, 2, 3)
    inputs = torch.arange(len(LABELS) * 2.0).reshape(-1, 2)
    draw, episode = sampler.draw([6]), sampler.episode(inputs, 6)
    assert torch.equal(episode.support, inputs[draw.support[0].flatten()])
    assert torch.equal(episode.query, inputs[draw.query[0].flatten()])
    assert episode.support_labels.tolist() == [0, 0, 1, 1, 2, 2, 3, 3]
    assert episode.query_labels.tolist() == [0, 0, 0, 1, 1, 1, 2, 2, 2, 3, 3, 3]


@pytest.mark.parametrize(
    ("ways", "shots", "queries", "message"),
    [
        (7, 1, 1, r"at least ways = 7 classes but got 6"),
        (3, 4, 5, r"shots \+ queries = 9 images of every class but class 0 has 8 \(2 of 6"),
        (3, 0, 5, r"`shots` to be at least 1 but got 0"),
    ],
)
def test_what_cannot_be_drawn_is_refused(ways: int, shots: int, queries: int, message: str):
    with pytest.raises(InputError, match=message):
        EpisodeSampler(LABELS, ways, shots, queries)


def test_a_task_is_split_as_learn2learn_does():
    partition_task = pytest.importorskip("learn2learn").data.partition_task
    generator = torch.Generator().manual_seed(0)
    labels = torch.arange(4).repeat_interleave(7)[torch.randperm(28, generator=generator)]
    data = torch.rand(28, 3, generator=generator)
    episode = split_task(data, labels, shots=2)
    (support, support_labels), (query, query_labels) = partition_task(data, labels, shots=2)
    assert torch.equal(episode.support, support)
    assert torch.equal(episode.support_labels, support_labels)
    assert torch.equal(episode.query, query)
    assert torch.equal(episode.query_labels, query_labels)
    assert episode.ways == 4


@pytest.mark.parametrize("labels", [[0, 0, 1], [0, 0, 2, 2]])
def test_a_task_without_queries_or_with_a_gap_in_its_labels_is_refused(labels: list[int]):
    with pytest.raises(InputError, match="but label 1 has"):
        split_task(torch.rand(len(labels)), torch.tensor(labels), shots=1)
