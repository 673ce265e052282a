"""The objective against its plain definition, and what the problem refuses."""

import pickle

import numpy as np
import pytest
import torch

from fsl_basesel import InputError, SelectionProblem
from tests.fsl_basesel.enumeration import all_choices, plain_value, random_problem


def settings(problem: SelectionProblem) -> dict:
    names = ("m", "k", "lam", "selected", "cost", "mu")
    return {name: getattr(problem, name) for name in names}


@pytest.mark.parametrize("seed", range(60))
def test_value_and_gains_follow_the_definition(seed: int) -> None:
    problem = random_problem(seed, general=seed % 5 == 0, signed=seed % 2 == 0)
    matrix = problem.similarity
    for choice in all_choices(problem)[:10]:
        value = plain_value(matrix, choice, **settings(problem))
        assert problem.value(choice) == pytest.approx(value, abs=1e-13)
        gains = problem.gains(choice)
        for u in range(problem.n_candidates):
            if u in choice or u in problem.selected:
                assert gains[u] == -torch.inf
            else:
                more = plain_value(matrix, (*choice, u), **settings(problem))
                assert float(gains[u]) == pytest.approx(more - value, abs=1e-12)


def test_similarity_ratio_is_top_mean_over_mean() -> None:
    problem = SelectionProblem([[0.8, 0.4, 0.0, 0.6], [0.1, 0.2, 0.3, 0.4]], m=2, k=2, selected=[0])
    ratio = problem.similarity_ratio([2, 3])
    assert ratio.tolist() == pytest.approx([0.7 / (1.4 / 3), 0.35 / (0.8 / 3)])
    assert problem.similarity_ratio([]).tolist() == [1.0, 1.0]  # one base class: top mean = mean
    assert np.isnan(SelectionProblem([[0.5]], m=0, k=1).similarity_ratio([])).all()


def test_half_precision_and_integers_are_taken_exactly() -> None:
    values = np.array([[0.5, 0.25], [1.0, 0.125]])
    for given in (values.astype(np.float16), torch.tensor(values).bfloat16(), values.tolist()):
        problem = SelectionProblem(given, m=1, k=1)
        assert np.array_equal(problem.similarity, values)
    assert SelectionProblem([[1, 0], [0, 1]], m=1, k=1).by_candidate.dtype == np.float64


def test_problem_does_not_follow_later_changes_of_the_input() -> None:
    matrix = np.array([[0.5, 0.25], [1.0, 0.125]])
    problem = SelectionProblem(matrix, m=1, k=1)
    matrix[:] = 0.0
    assert problem.value([0]) == 0.75
    with pytest.raises(AttributeError):
        problem.m = 2  # type: ignore[misc]
    with pytest.raises(ValueError, match="read-only"):
        problem.by_candidate[0, 0] = 1.0


def test_a_read_only_view_of_memory_that_can_change_is_copied() -> None:
    columns = np.full((5, 2), 0.5)
    view = columns.T.view()
    view.flags.writeable = False  # what pandas hands out
    problem = SelectionProblem(view, m=1, k=1)
    columns[:] = 0.0
    assert problem.value([0]) == 0.5


def test_unusual_arrays_are_taken_by_value(recwarn: pytest.WarningsRecorder) -> None:
    values = np.array([[0.5, 0.25, 0.75], [1.0, 0.125, 0.0]])
    turned = np.ascontiguousarray(values[::-1, ::-1])[::-1, ::-1]
    for given in (values.astype(">f8"), turned, np.ma.masked_array(values), values.astype(">f4")):
        assert np.array_equal(SelectionProblem(given, m=1, k=1).similarity, values)
    problem = SelectionProblem(values, m=1, k=1, cost=torch.ones(3).bfloat16(), mu=0.5)
    assert problem.modular.tolist() == [0.5, 0.5, 0.5]
    x = np.array([0.25, 0.5, 1.0])
    frozen = x.copy()
    frozen.flags.writeable = False
    for given in (x.astype(">f8"), np.ascontiguousarray(x[::-1])[::-1], frozen, x.tolist()):
        expected = problem.gradient(torch.tensor(x))
        assert np.array_equal(problem.gradient(given), expected.numpy())
    assert not recwarn.list


def test_replace_shares_the_matrix_and_keeps_the_rest() -> None:
    problem = random_problem(1, selected=[0], lam=0.2, m=2)
    other = problem.replace(k=2, lam=0.0)
    assert np.shares_memory(problem.by_candidate, other.by_candidate)
    assert (other.k, other.lam, other.m, other.selected) == (2, 0.0, 2, (0,))
    with pytest.raises(InputError, match="Expected settings among"):
        problem.replace(names=["a"])


def test_rows_are_sorted_once_for_a_matrix_and_a_floor() -> None:
    rng = np.random.default_rng(0)
    problem = SelectionProblem(rng.random((20, 300)), m=5, k=3)
    x = 0.5 * rng.random(300)
    whole = problem.gradient(x, backend="reference")
    assert np.abs(problem.gradient(x) - whole).max() < 1e-14
    again = problem.replace(m=7)
    assert np.abs(again.gradient(x) - whole).max() < 1e-14
    assert again.sorted_rows is problem.sorted_rows
    assert problem.replace(floor=-1.0).sorted_rows is not problem.sorted_rows
    assert pickle.loads(pickle.dumps(problem)).multilinear(x) == problem.multilinear(x)


def test_the_gradient_of_likely_classes_that_are_far_down_every_row() -> None:
    columns = np.linspace(1, 0, 4000)[:, None] * np.ones((1, 8))
    x = np.where(np.arange(4000) < 3000, 0.0, 0.9)
    problem = SelectionProblem(columns.T, m=5, k=2)
    whole = problem.gradient(x, backend="reference")
    assert np.abs(problem.gradient(x) - whole).max() < 1e-14


def test_own_similarity_function_and_general_selection() -> None:
    rng = np.random.default_rng(0)
    candidates, novel = rng.random((7, 3)), rng.random((4, 3))
    problem = SelectionProblem.from_centroids(
        candidates,
        novel,
        m=2,
        k=1,
        similarity=lambda block, target: -torch.cdist(torch.tensor(target), torch.tensor(block)),
    )
    distance = np.linalg.norm(novel[:, None] - candidates[None], axis=2)
    assert np.allclose(problem.similarity, -distance)
    general = SelectionProblem.from_centroids(candidates, m=2, k=1, names=list("abcdefg"))
    assert general.novel_names == tuple("abcdefg")
    assert np.allclose(np.diagonal(general.similarity), 1.0)
    with pytest.raises(InputError, match="`similarity` to return one row for each of the 2 novel"):
        SelectionProblem.from_centroids(candidates, novel, m=1, similarity=lambda b, t: b)


def test_similarity_in_blocks_equals_similarity_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    from fsl_basesel import similarity

    rng = np.random.default_rng(0)
    candidates, novel = rng.standard_normal((57, 8)), rng.standard_normal((9, 8))
    whole = SelectionProblem.from_centroids(candidates, novel, m=1).by_candidate
    monkeypatch.setattr(similarity, "BLOCK", 10)
    assert np.allclose(SelectionProblem.from_centroids(candidates, novel, m=1).by_candidate, whole)


def test_huge_and_tiny_features_keep_their_direction() -> None:
    candidates = np.array([[1e300, 1e300], [1e-300, 0.0]])
    problem = SelectionProblem.from_centroids(candidates, np.array([[1.0, 0.0]]), m=1)
    assert problem.by_candidate[:, 0] == pytest.approx([np.sqrt(0.5), 1.0])


GOOD = np.full((2, 3), 0.5)
BAD_INPUT = {
    "nan": ({"similarity": [[0.1, float("nan")]], "m": 1}, "`similarity` to hold finite .* nan at"),
    "inf": ({"similarity": [[0.1, float("inf")]], "m": 1}, "`similarity` to hold finite .* inf at"),
    "one dimension": ({"similarity": [0.1, 0.2], "m": 1}, r"`similarity` .*shape \(2,\)"),
    "empty novel": ({"similarity": np.empty((0, 3)), "m": 1}, r"at least one row .*\(0, 3\)"),
    "text": ({"similarity": [["a", "b"]], "m": 1}, "`similarity` .*dtype <U1"),
    "ragged": ({"similarity": [[0.1, 0.2], [0.3]], "m": 1}, "`similarity` .*it is no array"),
    "masked": (
        {"similarity": np.ma.masked_array(GOOD, GOOD == GOOD), "m": 1},
        "`similarity` .*masked entries",
    ),
    "sparse": ({"similarity": torch.eye(3).to_sparse(), "m": 1}, "`similarity` .*no array .*parse"),
    "complex": ({"similarity": GOOD + 1j, "m": 1}, "dtype complex128"),
    "m negative": ({"m": -1}, "`m` to be at least 0 and at most 3.* got -1"),
    "m too large": ({"m": 4}, "`m` .*at most 3, the candidates not yet selected, but got 4"),
    "m above what is left": ({"m": 3, "selected": [1]}, "`m` .*at most 2.* but got 3"),
    "m a fraction": ({"m": 1.5}, "`m` to be an integer but got 1.5"),
    "m a truth value": ({"m": True}, "`m` to be an integer but got True"),
    "k zero": ({"k": 0}, "`k` to be at least 1 but got 0"),
    "lam negative": ({"lam": -0.1}, "`lam` to be finite and at least 0 but got -0.1"),
    "lam nan": ({"lam": float("nan")}, "`lam` .*got nan"),
    "lam text": ({"lam": "big"}, "`lam` to be a number but got 'big'"),
    "cost without a use": ({"cost": [1, 2, 3]}, "`cost` with a budget .* or leave `cost` out"),
    "mu negative": ({"mu": -1}, "`mu` .*got -1"),
    "selected out of range": ({"selected": [3]}, "`selected` .*0 to 2 but got 3"),
    "selected negative": ({"selected": [-1]}, "`selected` .*got -1"),
    "selected twice": ({"selected": [1, 1]}, "`selected` .*1 came more than once"),
    "selected no numbers": ({"selected": ["cat"]}, r"`selected` .*got \['cat'\]"),
    "selected a number": ({"selected": 1}, "`selected` .*got 1"),
    "cost too short": ({"cost": [1.0], "mu": 1}, r"`cost` to be 3 finite numbers.* shape \(1,\)"),
    "cost ragged": ({"cost": [[1], [1, 2], 1], "mu": 1}, "`cost` to be 3 finite numbers.*no array"),
    "cost masked": (
        {"cost": np.ma.masked_array(np.ones(3), [True, False, False]), "mu": 1},
        "`cost` .*masked entries",
    ),
    "cost nan": (
        {"cost": [1, 2, float("nan")], "mu": 1},
        "`cost` to be 3 finite .* got nan for candidate 2",
    ),
    "names twice": ({"names": ["a", "b", "a"]}, "`names` to be unique but 'a'"),
    "names too few": ({"names": ["a"]}, r"`names` to name every candidate \(3\) .*1 names"),
    "novel names twice": ({"novel_names": ["n", "n"]}, "`novel_names` to be unique but 'n'"),
    "floor text": ({"floor": "low"}, "`floor` to be a number but got 'low'"),
    "floor too high": ({"floor": 0.6}, "`floor` to be at most the smallest similarity"),
}


@pytest.mark.parametrize("case", BAD_INPUT)
def test_bad_input_is_refused_with_argument_expectation_and_value(case: str) -> None:
    arguments, message = BAD_INPUT[case]
    with pytest.raises(InputError, match=message):
        SelectionProblem(**({"similarity": GOOD, "m": 1, "k": 1} | arguments))


def test_bad_centroids_are_refused() -> None:
    fine = np.eye(3)
    zero = np.diag([1.0, 0.0, 1.0])
    with pytest.raises(InputError, match=r"row 1 \(class 'dog'\) is all zeros"):
        SelectionProblem.from_centroids(zero, fine, m=1, names=["cat", "dog", "emu"])
    with pytest.raises(InputError, match="same number of dimensions but got 3 and 2"):
        SelectionProblem.from_centroids(fine, np.ones((2, 2)), m=1)
    with pytest.raises(InputError, match=r"`novel` .*at least one row"):
        SelectionProblem.from_centroids(fine, np.empty((0, 3)), m=1)
    with pytest.raises(InputError, match="`candidates` to hold finite"):
        SelectionProblem.from_centroids(fine * np.nan, fine, m=1)


def test_bad_indices_are_refused() -> None:
    problem = SelectionProblem(GOOD, m=1, k=1, selected=[0])
    with pytest.raises(InputError, match="outside the classes already selected but got 0"):
        problem.value([0])
    with pytest.raises(InputError, match=r"`indices` .*got 7"):
        problem.gains([7])
    with pytest.raises(InputError, match="between 0 and 1"):
        problem.multilinear([0.0, 1.5, 0.0])
    for wrong in ([0.0, 1.0], "abc", None, [1j, 0, 0], [[0.0], [0.0, 1.0]]):
        with pytest.raises(InputError, match=r"`x` of shape \[3\]"):
            problem.gradient(wrong)  # type: ignore[arg-type]
