"""`SelectBaseClasses`: one selection before training, by the right features."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytorch_lightning as pl
import torch
from pytorch_lightning.callbacks import ModelCheckpoint

import fsl_basesel as fb
from fsl_basesel.errors import InputError
from lightning_modules import BaseClassifier, ColdStartSelection, SelectBaseClasses
from lightning_modules.features import image_centroids
from tests.lightning_modules.runs import (
    WithDropout,
    tiny_data,
    tiny_model,
    tiny_pool,
    tiny_task,
    tiny_trainer,
)


def expected_choice(module: Any, m: int, k: int, novel: bool = True, **options: Any) -> list[int]:
    pool, task = tiny_pool(), tiny_task()
    problem = fb.SelectionProblem.from_centroids(
        image_centroids(pool.preview_set(), 12, module, batch_size=16),
        image_centroids(task.support_set(), 4, module, batch_size=16) if novel else None,
        m=m,
        k=k,
        **options,
    )
    return fb.select(problem).indices


def fitted(folder: Path, callback: SelectBaseClasses, model: Any = None, **data: Any) -> Any:
    module = tiny_data(**data)
    trainer = tiny_trainer(folder, callback, max_epochs=1, limit_train_batches=1)
    trainer.fit(model or tiny_model(), module)
    return module


def test_selects_by_the_model_that_is_trained_as_it_is_at_the_start(tmp_path: Path) -> None:
    expected = expected_choice(tiny_model(), m=5, k=2)
    data = fitted(tmp_path, SelectBaseClasses(5, 2, verbose=False))
    assert list(data.class_numbers) == expected
    assert fb.Selection.load(tmp_path / "selection-stage-1.json").indices == expected


def test_without_a_task_the_defaults_are_others_but_for_the_paper(tmp_path: Path) -> None:
    found = []
    for number, (general, how) in enumerate(
        [(False, {}), (True, {}), (True, {"k": 2}), (True, {"method": "paper"})]
    ):
        folder = tmp_path / str(number)
        callback = SelectBaseClasses(3, general=general, verbose=False, **how)
        fitted(folder, callback)
        settings = fb.Selection.load(folder / "selection-stage-1.json").hyperparameters
        assert callback.settings()["k"] == settings["k"]
        found.append((settings["similarity"], settings["k"]))
    assert found == [("cosine", 3), ("whitened", 1), ("cosine", 2), ("cosine", 3)]
    assert ColdStartSelection(general=True).settings()["k"] == 3
    assert "similarity" not in ColdStartSelection(general=True).settings()  # the paper's


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        ([0, 0, 0, 0], "sum above 0"),
        ([1, -1, 1, 1], "at least 0, .* but got -1"),
        ([1, float("nan"), 1, 1], "but got nan"),
        ([1, 2], r"4 finite numbers .* but got float64 of shape \(2,\)"),
    ],
)
def test_bad_weights_are_refused_before_any_training(
    tmp_path: Path, weights: list[float], message: str
) -> None:
    def fit() -> None:
        callback = ColdStartSelection((2, 4), 1, k=1, weights=weights, verbose=False)
        tiny_trainer(tmp_path, callback).fit(tiny_model(), tiny_data())

    with pytest.raises(InputError, match=f"`weights` .*{message}"):
        fit()
    assert not list(tmp_path.glob("selection*"))


def test_without_a_task_the_weights_are_those_of_the_candidates(tmp_path: Path) -> None:
    callback = SelectBaseClasses(3, weights=range(12), verbose=False)
    tiny_trainer(tmp_path, callback, max_epochs=1).fit(tiny_model(), tiny_data(novel=None))
    assert fb.Selection.load(tmp_path / "selection-stage-1.json").hyperparameters["weighted"]


def test_methods_that_compare_centroids_refuse_a_function_before_any_training() -> None:
    with pytest.raises(InputError, match="a similarity with a name for method 'domsim'"):
        ColdStartSelection((2, 4), 1, method="domsim", similarity=np.dot)


def test_a_function_is_known_again_in_another_process() -> None:
    similarity = functools.partial(np.dot)
    named = SelectBaseClasses(3, similarity=similarity).settings()["similarity"]
    assert "dot" in named
    assert "0x" not in named


def test_selects_by_another_model_and_leaves_it_alone(tmp_path: Path) -> None:
    extractor = BaseClassifier("conv3", seed=9)
    before = {name: tensor.clone() for name, tensor in extractor.state_dict().items()}
    expected = expected_choice(extractor, m=4, k=1)
    data = fitted(tmp_path, SelectBaseClasses(4, 1, extractor=extractor, verbose=False))
    assert list(data.class_numbers) == expected
    assert all(torch.equal(t, before[name]) for name, t in extractor.state_dict().items())


def test_selects_by_a_checkpoint(tmp_path: Path) -> None:
    pretrained = BaseClassifier("conv3", capacity=3, seed=9)
    trainer = tiny_trainer(tmp_path, max_epochs=1, limit_train_batches=2)
    data = tiny_data(pool=tiny_pool(seed=4), novel=None)
    data.add_classes([0, 1, 2])
    trainer.fit(pretrained, data)
    trainer.save_checkpoint(tmp_path / "pretrained.ckpt")
    expected = expected_choice(pretrained, m=4, k=1)
    path = str(tmp_path / "pretrained.ckpt")
    data = fitted(tmp_path, SelectBaseClasses(4, 1, extractor=path, verbose=False))
    assert list(data.class_numbers) == expected


@pytest.mark.parametrize(
    "similarity", ["centred", "whitened", lambda b, n: -((n[:, None] - b) ** 2).sum(2)]
)
def test_selects_by_the_similarity_it_is_told(tmp_path: Path, similarity: Any) -> None:
    expected = expected_choice(tiny_model(), m=5, k=1, similarity=similarity)
    callback = SelectBaseClasses(5, 1, similarity=similarity, verbose=False)
    assert list(fitted(tmp_path, callback).class_numbers) == expected
    name = similarity if isinstance(similarity, str) else "<lambda>"
    assert callback.settings()["similarity"] == name
    assert "similarity" not in SelectBaseClasses(5).settings()
    with pytest.raises(InputError, match="`similarity` of cosine, centred, whitened or a function"):
        SelectBaseClasses(5, similarity="euclid")


def test_novel_classes_count_by_their_weights(tmp_path: Path) -> None:
    weights = [0.0, 5.0, 0.0, 1.0]
    expected = expected_choice(tiny_model(), m=3, k=1, weights=weights)
    callback = SelectBaseClasses(3, 1, weights=weights, verbose=False)
    assert list(fitted(tmp_path, callback).class_numbers) == expected
    assert (
        callback.settings()["weights"] != SelectBaseClasses(3, weights=[1, 2]).settings()["weights"]
    )
    assert "weights" not in SelectBaseClasses(3).settings()
    with pytest.raises(InputError, match="`weights`"):
        fitted(tmp_path / "other", SelectBaseClasses(3, 1, weights=[1.0], verbose=False))


COSTS = [1.0, 3.0, 2.0] * 4
GROUPS = ["even", "odd"] * 6


def test_a_budget_and_limits_are_kept_to(tmp_path: Path) -> None:
    names = tiny_pool().names
    limits = {"budget": 7.0, "cost": COSTS, "groups": GROUPS, "at_most": {"even": 2}}
    expected = expected_choice(tiny_model(), 6, 1, exclude=[1], include=[4], **limits)
    options = {"exclude": [names[1]], "include": [names[4]]} | limits
    callback = SelectBaseClasses(6, 1, **options, verbose=False)
    data = fitted(tmp_path, callback)
    assert list(data.class_numbers) == expected
    assert 0 < len(expected) < 6 == data.capacity  # the head has room for m, the budget buys fewer
    assert 4 in expected
    kept = fb.Selection.load(tmp_path / "selection-stage-1.json")
    assert kept.spent == sum(COSTS[u] for u in expected) <= 7.0
    other = SelectBaseClasses(6, 1, **options | {"budget": 8.0})
    assert callback.settings()["limits"] != other.settings()["limits"]
    assert "limits" not in SelectBaseClasses(6).settings()


def test_limits_that_cannot_work_are_refused_before_training(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="`m` with a budget"):
        SelectBaseClasses(budget=5.0)
    with pytest.raises(InputError, match="`cost` with a budget"):
        SelectBaseClasses(5, cost=COSTS)
    refused: list[tuple[str, dict[str, Any]]] = [
        ("already in", {"selected": ["base 2"], "exclude": ["base 2"]}),
        ("to be at most 4, the classes that", {"groups": GROUPS, "at_most": 2}),
        ("buys none; raise it", {"budget": 0.5}),
        ("a budget of at least 1", {"budget": 0.5, "include": ["base 3"]}),
    ]
    for message, limits in refused:
        with pytest.raises(InputError, match=message):
            fitted(tmp_path, SelectBaseClasses(5, 1, **limits, verbose=False))


def test_the_model_needs_no_features_where_another_has_them(tmp_path: Path) -> None:
    class Bare(pl.LightningModule):
        def __init__(self) -> None:
            super().__init__()
            self.net = torch.nn.Linear(64, 12)

        def training_step(self, batch: Any, batch_idx: int) -> torch.Tensor:
            return torch.nn.functional.cross_entropy(self.net(batch[0].flatten(1)), batch[1])

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), 0.1)

    data = fitted(tmp_path, SelectBaseClasses(4, 1, extractor=tiny_model(), verbose=False), Bare())
    assert len(data.classes) == 4
    with pytest.raises(InputError, match="Expected Bare to have `features`"):
        fitted(tmp_path, SelectBaseClasses(4, 1), Bare())


def test_without_a_novel_task_it_is_general_selection(tmp_path: Path) -> None:
    expected = expected_choice(tiny_model(), m=5, k=2, novel=False)
    data = fitted(tmp_path, SelectBaseClasses(5, 2, verbose=False), novel=None)
    assert list(data.class_numbers) == expected


def test_classes_selected_before_come_first_and_count(tmp_path: Path) -> None:
    expected = expected_choice(tiny_model(), m=3, k=2, selected=[8, 1])
    selected = ["base 8", "base 1"]
    data = fitted(tmp_path, SelectBaseClasses(3, 2, selected=selected, verbose=False))
    assert list(data.class_numbers) == [8, 1, *expected]


def test_selector_lambda_and_cost_reach_the_problem(tmp_path: Path) -> None:
    cost = [1.0] * 6 + [0.0] * 6
    selector = fb.GreedyOnTarget()
    callback = SelectBaseClasses(4, 2, 0.1, selector, cost=cost, mu=10.0, verbose=False)
    data = fitted(tmp_path, callback)
    assert min(data.class_numbers) >= 6  # the dear ones are left alone
    saved = fb.Selection.load(tmp_path / "selection-stage-1.json")
    assert saved.method == "greedy-target"
    assert (saved.hyperparameters["lam"], saved.hyperparameters["mu"]) == (0.1, 10.0)


def test_a_resumed_run_does_not_select_again(tmp_path: Path, monkeypatch: Any) -> None:
    data = tiny_data()
    checkpoint = ModelCheckpoint(tmp_path, save_last=True)
    trainer = tiny_trainer(
        tmp_path, SelectBaseClasses(4, 2, verbose=False), checkpoint, max_epochs=1
    )
    trainer.fit(tiny_model(), data)
    monkeypatch.setattr(SelectBaseClasses, "choose", lambda *args: pytest.fail("selected again"))
    again = tiny_data()
    checkpoint = ModelCheckpoint(tmp_path, save_last=True)
    trainer = tiny_trainer(
        tmp_path, SelectBaseClasses(4, 2, verbose=False), checkpoint, max_epochs=2
    )
    trainer.fit(tiny_model(), again, ckpt_path="last")
    assert again.classes == data.classes
    assert trainer.current_epoch == 2


def test_misuse() -> None:
    with pytest.raises(InputError, match="`m` to be at least 1 but got 0"):
        SelectBaseClasses(0)
    with pytest.raises(InputError, match="`k` to be at least 1"):
        SelectBaseClasses(5, 0)
    with pytest.raises(InputError, match="`lam` to be finite and at least 0"):
        SelectBaseClasses(5, 1, -0.1)
    with pytest.raises(InputError, match="`method` to be one of auto"):
        SelectBaseClasses(5, 1, 0.0, "best")


def test_more_classes_than_the_pool_has_are_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"at least 13 classes.*but got 12"):
        fitted(tmp_path, SelectBaseClasses(13))
    with pytest.raises(InputError, match="name of a class but got 'base 77'"):
        fitted(tmp_path, SelectBaseClasses(3, selected=["base 77"]))


def test_an_extractor_without_features_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="Expected WithDropout to have `features`"):
        fitted(tmp_path, SelectBaseClasses(3, extractor=WithDropout()))
