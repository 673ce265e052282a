"""Fixtures of the gradient's tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numba
import numpy as np
import pytest
import torch


@pytest.fixture(scope="session")
def numba_ready() -> None:
    """Numba learns what `np.empty` is at its first compilation, so that comes before the poison."""
    numba.njit(lambda: np.zeros(1))()


@pytest.fixture
def poisoned(numba_ready: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Memory asked for without contents holds NaN or the largest integer, so gaps show."""

    def numpy_poison(make: Callable[..., np.ndarray]) -> Callable[..., np.ndarray]:
        def poison(*args: Any, **kwargs: Any) -> np.ndarray:
            array = make(*args, **kwargs)
            if array.dtype.kind == "f":
                array.fill(np.nan)
            elif array.dtype.kind in "iu":
                array.fill(np.iinfo(array.dtype).max)
            return array

        return poison

    def torch_poison(make: Callable[..., torch.Tensor]) -> Callable[..., torch.Tensor]:
        def poison(*args: Any, **kwargs: Any) -> torch.Tensor:
            tensor = make(*args, **kwargs)
            return tensor.fill_(torch.nan) if tensor.is_floating_point() else tensor

        return poison

    for name in ("empty", "empty_like"):
        monkeypatch.setattr(np, name, numpy_poison(getattr(np, name)))
        monkeypatch.setattr(torch, name, torch_poison(getattr(torch, name)))
