"""Algorithm 4 in tensors alone, with the torch gradient on the CPU, against the CPU's own."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from fsl_basesel import SelectionProblem
from fsl_basesel.multilinear import device_steps
from fsl_basesel.selectors import double_greedy

numbers = st.floats(-1, 1).map(lambda value: round(value, 2))  # two digits, so that ties happen


@given(st.lists(st.tuples(numbers, numbers), min_size=1, max_size=12), st.data())
def test_rates_equal_those_of_the_cpu(
    pairs: list[tuple[float, float]], data: st.DataObject
) -> None:
    a = np.array([first for first, _ in pairs])
    b = np.array([max(second, -first) for first, second in pairs])
    m = data.draw(st.integers(0, len(pairs)))
    every = torch.ones(len(pairs), dtype=torch.bool)
    found = device_steps.rates(torch.from_numpy(a), torch.from_numpy(b), every, m).numpy()
    assert found.sum() == pytest.approx(m, abs=1e-9)
    if 0 < m < len(pairs):
        np.testing.assert_allclose(found, double_greedy.rates(a, b, m), atol=1e-9)


def test_rates_leave_out_what_is_selected() -> None:
    free = torch.tensor([True, False, True, True])
    a, b = torch.tensor([0.5, 9.0, 0.25, 0.0]).double(), torch.tensor([0.1, 9.0, 0.1, 0.1]).double()
    found = device_steps.rates(a, b, free, 2)
    assert found[1] == 0.0
    np.testing.assert_allclose(
        found[free], double_greedy.rates(a[free].numpy(), b[free].numpy(), 2)
    )


@pytest.mark.parametrize("backend", ["torch", "reference"])
@pytest.mark.parametrize(("m", "k", "selected"), [(6, 2, ()), (9, 3, (0, 7)), (1, 1, (3,))])
def test_the_climb_meets_where_the_cpu_meets(
    m: int, k: int, selected: tuple[int, ...], backend: str
) -> None:
    similarity = np.random.default_rng(m).random((5, 25))
    problem = SelectionProblem(similarity, m=m, k=k, lam=0.4, selected=selected)
    both = [problem, problem.replace(m=2, lam=0.1)]
    x = device_steps.climb(both, 10, backend, "cpu")
    assert not x[:, list(selected)].any()
    np.testing.assert_allclose(x, double_greedy.fractional_batch(both, 10), atol=1e-9)
