"""Episodes and small networks that the tests of the heads share."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
import torch
from threadpoolctl import threadpool_limits
from torch import Tensor, nn

from lightning_modules.episodes import Episode, EpisodeSampler

DEVICES = ["cpu"] + (["cuda"] if torch.cuda.is_available() else [])


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Episodes are small: waiting for a second thread takes longer than the work."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with threadpool_limits(1):
        yield
    torch.set_num_threads(threads)


@pytest.fixture(params=DEVICES)
def device(request: pytest.FixtureRequest) -> str:
    return request.param


@pytest.fixture
def features() -> tuple[Tensor, Tensor]:
    """Features of 12 overlapping classes, 30 images each, float64, none negative."""
    generator = torch.Generator().manual_seed(0)
    centres = torch.randn(12, 16, generator=generator, dtype=torch.float64)
    labels = torch.arange(12).repeat_interleave(30)
    noise = torch.randn(360, 16, generator=generator, dtype=torch.float64)
    return (centres[labels] + 1.5 * noise).relu(), labels


@pytest.fixture
def episodes(features: tuple[Tensor, Tensor]) -> Callable[..., list[Episode]]:
    """Makes the first `count` episodes of some kind from `features`."""

    def make(ways: int = 5, shots: int = 5, queries: int = 8, count: int = 6) -> list[Episode]:
        inputs, labels = features
        sampler = EpisodeSampler(labels, ways, shots, queries, seed=1)
        return [sampler.episode(inputs, number) for number in range(count)]

    return make


class SmallNet(nn.Module):
    """Two convolutions with batch normalisation, 8 features from 8 x 8 pixels."""

    def __init__(self, running: bool = True, normalised: bool = True) -> None:
        super().__init__()
        layers: list[nn.Module] = [nn.Conv2d(1, 4, 3, padding=1)]
        layers += [nn.BatchNorm2d(4, track_running_stats=running)] if normalised else []
        layers += [nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(4, 8, 3, padding=1)]
        layers += [nn.BatchNorm2d(8, track_running_stats=running)] if normalised else []
        self.layers = nn.Sequential(*layers, nn.ReLU())
        self.double()

    def forward(self, images: Tensor) -> Tensor:
        return self.layers(images).mean((2, 3))


@pytest.fixture
def small_net() -> Callable[..., SmallNet]:
    def make(**options: bool) -> SmallNet:
        torch.manual_seed(3)
        return SmallNet(**options)

    return make


@pytest.fixture
def tasks() -> list[tuple[Tensor, Tensor]]:
    """learn2learn tasks of images: 3 ways, 2 shots and 4 queries, class after class."""
    generator = torch.Generator().manual_seed(5)
    made = []
    for _ in range(4):
        centres = torch.randn(3, 1, 8, 8, generator=generator, dtype=torch.float64)
        labels = torch.arange(3).repeat_interleave(6)
        noise = torch.randn(18, 1, 8, 8, generator=generator, dtype=torch.float64)
        made.append((centres[labels] + 0.7 * noise, labels))
    return made
