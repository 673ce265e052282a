"""What starting costs: no torch without a tensor, and names that load when they are used."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import torch

import fsl_basesel as fb


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout


def test_selecting_from_arrays_imports_no_torch() -> None:
    code = """
import sys
import fsl_basesel as fb
fb.methods()
assert "numba" not in sys.modules, "numba is imported before it is needed"
import numpy as np
rng = np.random.default_rng(0)
problem = fb.SelectionProblem.from_centroids(rng.random((9, 4)), rng.random((5, 4)), m=3, k=2)
for method in ("auto", "dual", "greedy-target", "greedy-novel", "random-greedy", "random"):
    fb.select(problem, method).to_json()
problem.gains([1]), problem.similarity_ratio([1]), problem.value([1])
for heavy in ("torch", "matplotlib", "lightning", "sklearn"):
    assert heavy not in sys.modules, heavy
print("light")
"""
    assert run(code).strip() == "light"


def test_every_name_loads_and_unknown_ones_are_attribute_errors() -> None:
    for name in fb.__all__:
        assert getattr(fb, name) is getattr(fb, name)
        assert name in dir(fb)
    assert isinstance(fb.__version__, str)
    with pytest.raises(AttributeError, match="no attribute 'selct'"):
        fb.selct  # noqa: B018
    assert callable(fb.select)


def test_arrays_in_arrays_out_and_tensors_for_tensors() -> None:
    values = np.random.default_rng(0).random((5, 8))
    arrays, tensors = (
        fb.SelectionProblem(given, m=3, k=2) for given in (values, torch.tensor(values))
    )
    x = np.full(8, 0.25)
    calls = {
        "gains": lambda problem: problem.gains([1]),
        "ratio": lambda problem: problem.similarity_ratio([1]),
        "gradient": lambda problem: problem.gradient(x),
        "batch": lambda problem: problem.multilinear(x[None]),
        "similarity": lambda problem: problem.similarity,
    }
    for name, call in calls.items():
        array, tensor = call(arrays), call(tensors)
        assert isinstance(array, np.ndarray), name
        assert array.dtype == np.float64
        assert isinstance(tensor, torch.Tensor), name
        assert np.array_equal(array, tensor.numpy()), name
    assert isinstance(arrays.gradient(torch.tensor(x)), torch.Tensor)
    assert isinstance(arrays.gains(torch.tensor([1])), torch.Tensor)


def test_users_register_selectors_of_their_own() -> None:
    @fb.register
    class Last(fb.Selector):
        """The last classes of the pool."""

        name = "test-last"
        guarantee = "none"

        def choose(self, problem, generator):  # type: ignore[no-untyped-def]
            return fb.Choice(problem.unselected[::-1][: problem.m].tolist())

    try:
        problem = fb.SelectionProblem(np.eye(4), m=2, k=1)
        assert "test-last" in fb.methods()
        assert fb.select(problem, "test-last").indices == [3, 2]
        assert fb.register(Last) is Last  # a module that is loaded again

        class Auto(fb.Selector):
            name, guarantee = "auto", "none"

            def choose(self, problem, generator):  # type: ignore[no-untyped-def]
                raise AssertionError

        with pytest.raises(fb.InputError, match="'auto' is a method already"):
            fb.register(Auto)
        del Auto.guarantee
        with pytest.raises(fb.InputError, match="attributes `name` and `guarantee`"):
            fb.register(Auto)
        with pytest.raises(fb.InputError, match="subclass of Selector"):
            fb.register(dict)  # type: ignore[arg-type]
    finally:
        from fsl_basesel import selectors

        selectors._registered.pop("test-last", None)


def test_a_seed_is_a_number_or_a_generator_by_either_word() -> None:
    problem = fb.SelectionProblem(np.random.default_rng(0).random((5, 30)), m=6, k=2)
    expected = fb.RandomSelection().select(problem, 7).indices
    for how in ({"seed": 7}, {"generator": 7}):
        assert fb.RandomSelection().select(problem, **how).indices == expected
    for how in ({"seed": 7}, {"generator": 7}):
        drawn = {name: np.random.Generator(np.random.PCG64(seed)) for name, seed in how.items()}
        selection = fb.RandomSelection().select(problem, **drawn)
        assert (selection.indices, selection.seed) == (expected, None)
    drawn = np.random.Generator(np.random.PCG64(7))
    assert fb.select(problem, "random", seed=drawn).indices == expected
