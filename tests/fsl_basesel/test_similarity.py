"""Class centroids from features and labels, and what is refused."""

from __future__ import annotations

import os
import subprocess
import sys
import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.covariance import EmpiricalCovariance, shrunk_covariance
from sklearn.metrics.pairwise import cosine_similarity
from threadpoolctl import threadpool_info

import fsl_basesel as fb
from fsl_basesel.errors import InputError
from fsl_basesel.similarity import SIMILARITIES, ClassCentroids, class_centroids


def test_centroids_are_class_means_in_float64() -> None:
    rng = np.random.default_rng(0)
    features = rng.random((50, 3), dtype=np.float32)
    labels = np.concatenate([np.arange(4), rng.integers(0, 4, 46)])
    expected = [features[labels == c].astype(np.float64).mean(0) for c in range(4)]
    found = class_centroids(features, labels)
    assert found.dtype == np.float64
    assert np.allclose(found, expected, rtol=1e-15)


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([-1, 0], "`labels` of at least 0 but got -1"),
        ([0.0, 1.0], "`labels` to be 2 integers or names"),
        ([0], "`labels` to be 2 integers"),
    ],
)
def test_bad_labels_are_refused(labels: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        class_centroids([[1.0], [2.0]], labels)


def test_labels_may_have_gaps_or_be_names() -> None:
    features = np.random.default_rng(0).random((6, 3))
    labels = np.array([7, 2, 7, 7, 40, 2])
    expected = np.stack([features[labels == label].mean(axis=0) for label in (2, 7, 40)])
    assert np.allclose(class_centroids(features, labels), expected)
    names = np.array([{2: "ant", 7: "bee", 40: "cat"}[label] for label in labels.tolist()])
    assert np.array_equal(class_centroids(features, names), class_centroids(features, labels))
    assert np.array_equal(
        class_centroids(features, names.tolist()), class_centroids(features, labels)
    )


def test_images_at_unit_length_and_at_most_so_many_of_a_class() -> None:
    features = np.array([[3.0, 4.0], [0.0, 2.0], [10.0, 0.0], [1.0, 0.0]])
    labels = [0, 0, 0, 1]
    unit = class_centroids(features, labels, normalize=True)
    assert np.allclose(unit, [[(0.6 + 0 + 1) / 3, (0.8 + 1 + 0) / 3], [1, 0]])
    assert np.allclose(class_centroids(features, labels, limit=2), [[1.5, 3.0], [1.0, 0.0]])
    both = class_centroids(features, labels, limit=2, normalize=True)
    assert np.allclose(both, [[0.3, 0.9], [1.0, 0.0]])
    assert np.array_equal(
        class_centroids(features, labels, limit=9), class_centroids(features, labels)
    )
    with pytest.raises(InputError, match="`limit` to be at least 1 but got 0"):
        class_centroids(features, labels, limit=0)
    with pytest.raises(InputError, match="of image 1 are all zeros"):
        class_centroids([[1.0], [0.0]], [0, 1], normalize=True)


def test_class_centroids_keep_names_groups_and_numbers_of_images() -> None:
    kept = ClassCentroids(np.eye(2, dtype=np.float16), ["a", "b"], ["x", "x"], [3, 4])
    assert kept.values.dtype == np.float32
    assert len(kept) == 2
    assert (kept.names, kept.groups) == (("a", "b"), ("x", "x"))
    assert kept.images is not None
    assert kept.images.tolist() == [3, 4]
    bare = ClassCentroids([[1, 2]])
    assert (bare.names, bare.groups, bare.images) == (("0",), None, None)
    with pytest.raises(AttributeError):
        bare.names = ("b",)  # type: ignore[misc]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([1.0, 2.0],), "`values` to be a matrix"),
        ((np.eye(2), ["a", "a"]), "`names` to be unique but 'a'"),
        ((np.eye(2), ["a"]), r"`names` to name every class \(2\) but got 1"),
        (
            (np.eye(2), None, ["x"]),
            "`groups` to have one entry for each of the 2 classes but got 1",
        ),
        ((np.eye(2), None, None, [1]), "`images` to be 2 integers"),
        ((np.eye(2), None, None, [1, -1]), "got -1 for class 1"),
        ((np.eye(2), None, None, [1.5, 2.0]), "`images` to be 2 integers"),
    ],
)
def test_class_centroids_that_do_not_fit_are_refused(arguments: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        ClassCentroids(*arguments)


def centroids(seed: int, count: int, dimensions: int) -> np.ndarray:
    """Centroids with a mean far from zero and very different variances, as networks give them."""
    rng = np.random.default_rng(seed)
    mixing = rng.standard_normal((dimensions, dimensions)) * np.geomspace(1, 0.01, dimensions)
    return rng.standard_normal((count, dimensions)) @ mixing + 3.0


def similarities(candidates: np.ndarray, novel: np.ndarray | None, **how: Any) -> np.ndarray:
    return fb.SelectionProblem.from_centroids(candidates, novel, m=1, k=1, **how).by_candidate.T


def directly(
    candidates: np.ndarray, novel: np.ndarray, shrinkage: float = 0.5, each: bool = False
) -> np.ndarray:
    """Whitened similarities with scikit-learn's covariance and an eigenvalue decomposition."""
    covariance = EmpiricalCovariance().fit(candidates).covariance_
    values, vectors = np.linalg.eigh(shrunk_covariance(covariance, shrinkage))
    whitening = vectors / np.sqrt(values)
    centre = candidates.mean(axis=0)
    other = novel.mean(axis=0) if each else centre
    return cosine_similarity((novel - other) @ whitening, (candidates - centre) @ whitening)


@pytest.mark.parametrize(("count", "dimensions"), [(3, 2), (40, 100), (300, 17), (5000, 300)])
def test_whitened_is_the_direct_computation(count: int, dimensions: int) -> None:
    candidates, novel = centroids(0, count, dimensions), centroids(1, 20, dimensions)
    found = similarities(candidates, novel, similarity="whitened")
    assert np.abs(found - directly(candidates, novel)).max() < 1e-10
    other = similarities(candidates, novel, similarity="whitened", shrinkage=0.1)
    assert np.abs(other - directly(candidates, novel, 0.1)).max() < 1e-10
    each = similarities(candidates, novel, similarity="whitened", centre="each")
    assert np.abs(each - directly(candidates, novel, each=True)).max() < 1e-10


def test_centred_is_the_cosine_of_the_differences_from_the_mean() -> None:
    candidates, novel = centroids(0, 30, 8), centroids(1, 5, 8) + 1.0
    mean = candidates.mean(axis=0)
    expected = cosine_similarity(novel - mean, candidates - mean)
    assert np.allclose(similarities(candidates, novel, similarity="centred"), expected, atol=1e-12)
    each = cosine_similarity(novel - novel.mean(axis=0), candidates - mean)
    found = similarities(candidates, novel, similarity="centred", centre="each")
    assert np.allclose(found, each, atol=1e-12)


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    count=st.integers(3, 40),
    dimensions=st.integers(2, 12),
    exponent=st.sampled_from([-900, -30, 0, 30, 900]),
    name=st.sampled_from(["centred", "whitened"]),
)
def test_named_similarities_see_neither_scale_nor_place_nor_rotation(
    seed: int, count: int, dimensions: int, exponent: int, name: str
) -> None:
    candidates, novel = centroids(seed, count, dimensions), centroids(seed + 1, 4, dimensions)
    found = similarities(candidates, novel, similarity=name)
    assert np.abs(found).max() <= 1.0
    scaled = [np.ldexp(rows, exponent) for rows in (candidates, novel)]
    assert np.array_equal(similarities(*scaled, similarity=name), found)
    rotation = np.linalg.qr(np.random.default_rng(seed).standard_normal((dimensions, dimensions)))[
        0
    ]
    turned = similarities(candidates @ rotation + 1.0, novel @ rotation + 1.0, similarity=name)
    assert np.allclose(turned, found, atol=1e-9)
    order = np.random.default_rng(seed).permutation(count)
    assert np.allclose(
        similarities(candidates[order], novel, similarity=name), found[:, order], atol=1e-9
    )


def test_full_shrinkage_is_centred() -> None:
    candidates, novel = centroids(0, 30, 8), centroids(1, 5, 8)
    centred = similarities(candidates, novel, similarity="centred")
    assert np.allclose(similarities(candidates, novel, similarity="whitened", shrinkage=1), centred)


THREADS = """
import hashlib, sys
import numpy as np
import fsl_basesel as fb
import fsl_basesel.similarity
rng = np.random.default_rng(0)
for dtype in (np.float32, np.float64):
    candidates, novel = rng.random((2500, 600)).astype(dtype), rng.random((100, 600)).astype(dtype)
    for name in fb.similarity.SIMILARITIES:
        problem = fb.SelectionProblem.from_centroids(candidates, novel, m=20, k=1, similarity=name)
        print(hashlib.sha256(problem.by_candidate.tobytes()).hexdigest())
        print([fb.select(problem, method).indices for method in ("auto", "domsim", "kmedoids")])
"""


def test_one_and_two_threads_give_the_same_bits() -> None:
    def printed(threads: int) -> str:
        names = ("OMP", "OPENBLAS", "MKL", "NUMBA")
        environment = os.environ | {f"{name}_NUM_THREADS": str(threads) for name in names}
        command = [sys.executable, "-c", THREADS]
        return subprocess.run(
            command, env=environment, capture_output=True, text=True, check=True
        ).stdout

    one = printed(1)
    assert len(one.splitlines()) == 12
    assert printed(2) == one


@pytest.mark.parametrize("name", SIMILARITIES)
def test_centroids_are_not_copied_as_a_whole(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMBA_NUM_THREADS", "1")  # each thread has blocks of its own
    pool, task = centroids(0, 40_000, 64).astype(np.float32), centroids(1, 10, 64)
    similarities(pool[:50], task, similarity=name)  # imports what it needs
    tracemalloc.start()
    try:
        similarities(pool, task.astype(np.float32), similarity=name)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < pool.nbytes  # 10 MB: names, the result, some blocks


MACHINES = """
import numpy as np
import fsl_basesel as fb
rng = np.random.default_rng(0)
centres = np.abs(rng.standard_normal((9, 200)))
pool, task = (centres[rng.integers(9, size=n)] + np.abs(rng.standard_normal((n, 200)))
              for n in (300, 40))
pool, task = np.tile(pool, (2, 1)).astype(np.float32), task.astype(np.float32)  # many ties
for name in ("cosine", "centred", "whitened"):
    problem = fb.SelectionProblem.from_centroids(pool, task, m=60, k=3, similarity=name)
    for method in ("auto", "greedy-novel", "double-greedy", "domsim", "kmedoids"):
        print(name, method, fb.select(problem, method, certify=False).indices)
"""


@pytest.mark.skipif(
    not any(info.get("architecture") not in (None, "Nehalem") for info in threadpool_info()),
    reason="needs OpenBLAS for x86, which can be told to use older vector units",
)
def test_machines_with_other_vector_units_choose_alike() -> None:
    def printed(kernels: dict[str, str]) -> str:
        command = [sys.executable, "-c", MACHINES]
        return subprocess.run(
            command, env=os.environ | kernels, capture_output=True, text=True, check=True
        ).stdout

    here = printed({})
    assert len(here.splitlines()) == 15
    assert printed({"OPENBLAS_CORETYPE": "Nehalem"}) == here


@pytest.mark.parametrize("name", ["centred", "whitened"])
def test_what_has_no_spread_is_refused_by_name(name: str) -> None:
    novel = centroids(1, 4, 5)
    with pytest.raises(InputError, match=f"at least 3 candidates .*{name!r}.* got 2 in 5"):
        similarities(novel[:2], novel, similarity=name)
    with pytest.raises(InputError, match=r"at least 2 dimensions .* got 4 in 1"):
        similarities(novel[:, :1], novel[:, :1], similarity=name)
    with pytest.raises(InputError, match="all 6 centroids are equal"):
        similarities(np.full((6, 5), 0.1), novel, similarity=name)
    with pytest.raises(InputError, match="at least 2 novel classes for centre='each'"):
        similarities(centroids(0, 9, 5), novel[:1], similarity=name, centre="each")
    pool = np.concatenate([np.eye(5), -np.eye(5), np.zeros((1, 5))]) + 0.5
    with pytest.raises(InputError, match=r"row 10 \(class '10'\) is equal to it"):
        similarities(pool, novel, similarity=name)


@pytest.mark.parametrize(
    ("how", "message"),
    [
        ({"similarity": "euclid"}, "`similarity` of cosine, .* or a function but got 'euclid'"),
        (
            {"similarity": "whitened", "centre": "none"},
            "`centre` to be one of candidates, each but got 'none'",
        ),
        ({"similarity": "whitened", "shrinkage": 0}, "`shrinkage` above 0 and at most 1 but got 0"),
        ({"similarity": "whitened", "shrinkage": 1.5}, "`shrinkage` above 0"),
        ({"similarity": "whitened", "shrinkage": "a"}, "`shrinkage` to be a number but got 'a'"),
        ({"similarity": np.eye(3)}, "`similarity` of cosine, .* or a function but got array"),
        ({"centre": "each"}, "no `centre` with similarity 'cosine'"),
        ({"similarity": "centred", "shrinkage": 0.1}, "no `shrinkage` with similarity 'centred'"),
        ({"similarity": np.dot, "centre": "each"}, "no `centre` with similarity '<"),
    ],
)
def test_unknown_options_are_refused(how: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        similarities(centroids(0, 9, 12), centroids(1, 4, 12), **how)


@pytest.mark.parametrize("name", ["centred", "whitened"])
def test_features_of_any_size_are_compared_or_refused(name: str) -> None:
    pool, task = centroids(0, 9, 5), centroids(1, 4, 5)
    expected = similarities(pool, task, similarity=name, centre="each")
    apart = similarities(1e9 * pool, 1e-9 * task, similarity=name, centre="each")
    assert np.allclose(apart, expected, atol=1e-6)
    similarities(1e-300 * pool, task, similarity=name)
    huge = pool * (1.7e308 / np.abs(pool).max())
    with pytest.raises(InputError, match=r"centroids of at most 1e\+280 .* but got 1.7e\+308"):
        similarities(np.tile(huge, (3, 1)), huge[:3], similarity=name)
    task[0] *= 1e13  # the others are still told from the mean
    assert np.isfinite(similarities(pool, task, similarity=name)).all()


def test_a_shrinkage_that_leaves_the_covariance_singular_is_refused() -> None:
    half = np.eye(8, 3)  # of which two equal copies have a covariance of half the rank, exactly
    with pytest.raises(InputError, match=r"`shrinkage` large enough .* got 1e-17"):
        similarities(
            np.hstack([half, half]), centroids(1, 4, 6), similarity="whitened", shrinkage=1e-17
        )


def test_a_selection_records_options_and_weights_that_are_not_the_default() -> None:
    pool, task = centroids(0, 9, 5), centroids(1, 4, 5)

    def recorded(**how: Any) -> dict[str, Any]:
        problem = fb.SelectionProblem.from_centroids(pool, task, m=2, k=1, **how)
        settings = fb.select(problem).hyperparameters
        return {key: settings.get(key) for key in ("centre", "shrinkage", "weighted")}

    options = {"centre": "each", "shrinkage": 0.3}
    assert recorded(similarity="whitened", **options) == options | {"weighted": None}
    assert recorded(weights=[1, 2, 0, 1])["weighted"] is True
    assert set(recorded(similarity="whitened").values()) == {None}


def test_without_a_task_whitened_and_k_of_1_are_the_default() -> None:
    pool, task = centroids(0, 9, 5), centroids(1, 4, 5)

    def found(novel: np.ndarray | None, **how: Any) -> tuple[str, int]:
        problem = fb.SelectionProblem.from_centroids(pool, novel, m=2, **how)
        return problem.similarity_name, problem.k

    assert found(task) == ("cosine", 3)
    assert found(None) == ("whitened", 1)
    assert found(None, k=1) == ("whitened", 1)  # the default, said aloud
    assert found(None, k=3) == ("cosine", 3)
    assert found(None, similarity="cosine") == ("cosine", 1)
    assert found(task, k=1) == ("cosine", 1)


def test_domsim_refuses_by_name_a_task_whose_mean_has_no_direction() -> None:
    pool = centroids(0, 9, 5)
    for how in ({"novel": pool}, {"novel": centroids(1, 4, 5), "centre": "each"}):
        problem = fb.SelectionProblem.from_centroids(pool, m=2, k=1, similarity="whitened", **how)
        with pytest.raises(InputError, match=r"direction for method 'domsim'.*or another method"):
            fb.select(problem, "domsim")


@pytest.mark.parametrize("shape", [(6, 6), (2, 6), (6, 2), (1, 5), (2, 1), (5, 1)])
def test_a_function_that_is_the_wrong_way_round_is_refused_whatever_the_sizes(
    shape: tuple[int, int],
) -> None:
    novel, candidates = (np.random.default_rng(0).random((size, 3)) for size in shape)
    right = similarities(candidates, novel, similarity=lambda block, target: target @ block.T)
    assert np.array_equal(right, novel @ candidates.T)
    with pytest.raises(InputError, match="`similarity` to return one row for each of the"):
        similarities(candidates, novel, similarity=lambda block, target: block @ target.T)


@pytest.mark.parametrize("name", SIMILARITIES)
def test_domsim_and_kmedoids_follow_the_similarity_of_the_problem(name: str) -> None:
    candidates, novel = centroids(0, 25, 6), centroids(1, 7, 6)
    problem = fb.SelectionProblem.from_centroids(candidates, novel, m=5, k=1, similarity=name)
    towards = similarities(candidates, novel.mean(axis=0, keepdims=True), similarity=name)[0]
    assert fb.select(problem, "domsim").indices == np.argsort(-towards)[:5].tolist()
    # The chosen medoids cannot be improved by exchanging one of them, in this similarity.
    among = similarities(candidates, None, similarity=name)
    chosen = fb.select(problem, "kmedoids").indices
    cost = (1 - among[chosen]).min(axis=0).sum()
    for out in chosen:
        for other in set(range(25)) - set(chosen):
            swapped = [*(set(chosen) - {out}), other]
            assert (1 - among[swapped]).min(axis=0).sum() >= cost - 1e-9


@pytest.mark.parametrize("method", ["domsim", "kmedoids"])
def test_methods_on_centroids_refuse_a_function_by_name(method: str) -> None:
    problem = fb.SelectionProblem.from_centroids(
        np.eye(4), np.eye(4), m=2, k=1, similarity=lambda block, target: target @ block.T
    )
    with pytest.raises(InputError, match=f"similarity with a name .* method {method!r}"):
        fb.select(problem, method)
