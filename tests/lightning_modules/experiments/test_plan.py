"""Experiments in YAML: what trials follow from them, and which of these are the same."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from fsl_basesel import selectors
from fsl_basesel.errors import InputError
from lightning_modules.experiments import plan
from lightning_modules.experiments.result_tables import paper_numbers
from lightning_modules.experiments.training import data_module
from tests.lightning_modules.experiments.small import small_yaml


def test_every_experiment_can_be_planned_with_the_data_of_the_paper_or_without() -> None:
    names = plan.names()
    for setting in ("pretrained", "cold-start", "general", "heads", "novel-classes",
                    "cold-start-domains", "preliminary", "worth"):  # fmt: skip
        assert {setting, f"{setting}-glyphs"} <= set(names)
    for name in names:
        rows = plan.load(name, ".").rows()
        keys = {row.trial.key for row in rows}
        assert len(rows) >= len(keys) > 0


def test_the_papers_tables_have_the_papers_settings() -> None:
    experiment = plan.load("cold-start", ".")
    trials = {row.label: row.trial for row in experiment.rows()}
    assert trials["Alg. 2, K=3"].schedule == (6, 12, 25, 50, 100)
    assert trials["Alg. 2, K=3, 10-20-40-80-100"].schedule == (10, 20, 40, 80, 100)
    assert trials["Alg. 2, K=3, 50-100"].schedule == (50, 100)
    assert trials["Pre-trained, Alg. 2, K=3"].setting == "pretrained"
    for name in ("pretrained", "general"):
        experiment = plan.load(name, ".")
        assert set(experiment.datasets) == {"imagenet", "caltech256", "cub"}
        first = experiment.rows()[0].trial
        assert first.model == {"backbone": "resnet18"}
        assert (first.training["epochs"], first.training["batch_size"]) == (120, 64)
        assert experiment.repeats == 10


def test_every_number_of_the_paper_is_shown_by_an_experiment() -> None:
    shown = set()
    for name in plan.names():
        experiment = plan.load(name, ".")
        for row in experiment.rows():
            table = experiment.datasets[row.dataset].get("paper")
            shown |= {(table, row.label, f"{row.trial.m}/{shots}") for shots in row.trial.shots}
    for table, heads in paper_numbers().items():
        for labels in heads.values():
            for label, cells in labels.items():
                assert {(table, label, cell) for cell in cells} <= shown


def test_random_selection_is_one_trial_whatever_the_setting() -> None:
    trials = [
        plan.load(name, repeats=1).rows()[0].trial
        for name in ("pretrained-glyphs", "general-glyphs", "cold-start-glyphs", "worth-glyphs")
    ]
    assert len({replace(trial, m=100).key for trial in trials}) == 1


def test_methods_that_look_at_something_keep_their_setting() -> None:
    assert [name for name in selectors.methods() if plan.is_blind(name)] == ["random"]
    rows = plan.load("general-glyphs").rows()
    settings = {row.trial.method: row.trial.setting for row in rows}
    assert settings.pop("random") == "pretrained"
    assert set(settings.values()) == {"general"}


@pytest.mark.parametrize("name", ["demo", "objective-controls-glyphs"])
def test_the_task_has_groups_of_its_own_in_the_pool_where_these_are_drawn_first(name: str) -> None:
    """None or all would make the control another draw of Random, and run_trial refuses it."""
    experiment = plan.load(name)
    rows = [row for row in experiment.rows() if row.trial.seed == experiment.all_seeds[0]]
    assert {row.dataset for row in rows if row.trial.control == "domain"} == {"plain", "fine"}
    for row in rows:
        if row.trial.control == "domain":
            data = data_module(row.trial.data, row.trial.seed, row.trial.training, "candidates")
            wanted = set(data.task.groups or ())
            assert 0 < sum(group in wanted for group in data.pool.groups or ()) < len(data.pool)


def test_a_trial_with_any_other_setting_has_another_key(tmp_path: Path) -> None:
    trial = plan.load(small_yaml(tmp_path)).rows()[1].trial
    others = [
        replace(trial, seed=7), replace(trial, m=3), replace(trial, k=2), replace(trial, lam=0.1),
        replace(trial, method="dual"), replace(trial, draw=1), replace(trial, supports=1),
        replace(trial, shots=(1,)), replace(trial, model={"backbone": "conv3"}),
    ]  # fmt: skip
    assert len({trial.key, *(other.key for other in others)}) == len(others) + 1


def test_repeats_have_classes_of_their_own_unless_they_share_a_split(tmp_path: Path) -> None:
    own = plan.load(small_yaml(tmp_path)).rows()
    assert {row.trial.data["init_args"]["split_seed"] for row in own} == {0, 1}
    shared = plan.load(small_yaml(tmp_path, share_split=True)).rows()
    assert {row.trial.data["init_args"]["split_seed"] for row in shared} == {0}
    assert {row.trial.seed for row in shared} == {0, 1}


def test_a_file_may_extend_another(tmp_path: Path) -> None:
    small_yaml(tmp_path)
    path = tmp_path / "more.yaml"
    path.write_text("extends: small.yaml\nrepeats: 5\ndata: {init_args: {candidates: 20}}\n")
    experiment = plan.load(str(path))
    assert experiment.repeats == 5
    arguments = experiment.data["init_args"]
    assert (arguments["candidates"], arguments["novel_classes"]) == (20, 4)


def test_the_example_of_the_docs_is_an_experiment(tmp_path: Path) -> None:
    page = (Path(__file__).parents[3] / "docs" / "reproduce.md").read_text(encoding="utf-8")
    example = page.split("```yaml\n")[1].split("```")[0]
    path = tmp_path / "mine.yaml"
    path.write_text(example, encoding="utf-8")
    assert len(plan.load(str(path), repeats=2).rows()) == 6


def test_a_file_that_is_extended_must_be_there_and_not_lead_back(tmp_path: Path) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text("extends: ../nowhere.yml\n")
    with pytest.raises(InputError, match=r"common-glyphs\.yml.* but there is no \.\./nowhere\.yml"):
        plan.load(str(path))
    path.write_text("extends: mine.yaml\n")
    with pytest.raises(InputError, match="leads back to it"):
        plan.load(str(path))


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"methods": {"x": {"method": "magic"}}}, "the method of 'x' to be known"),
        ({"methods": {"x": {"method": "auto", "setting": "hot"}}}, "`setting` of pretrained"),
        ({"kind": "poem"}, "`kind` to be one of table, study"),
        ({"repeats": 0}, "`repeats` of at least 1"),
        ({"colour": "red"}, "unexpected keyword argument 'colour'"),
        ({"datasets": {}}, "at least one data set"),
    ],
)
def test_what_is_wrong_in_a_file_is_said(tmp_path: Path, changes: dict, message: str) -> None:
    with pytest.raises(InputError, match=message):
        plan.load(small_yaml(tmp_path, **changes))


def test_a_schedule_must_end_with_m(tmp_path: Path) -> None:
    methods = {"x": {"method": "auto", "setting": "cold-start", "schedule": [2, 3]}}
    with pytest.raises(InputError, match="to end with m = 4 but got"):
        plan.load(small_yaml(tmp_path, methods=methods)).rows()


def test_the_papers_data_must_be_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="Expected --data-root"):
        plan.load("pretrained")
    with pytest.raises(InputError, match="--data-root to be a folder"):
        plan.load("pretrained", str(tmp_path / "nowhere"))
    with pytest.raises(InputError, match="pretrained-glyphs"):
        plan.load("pretraind")
    path = tmp_path / "broken.yaml"
    path.write_text("a: [1")
    with pytest.raises(InputError, match="to be YAML but it is not"):
        plan.load(str(path))
    path.write_text("just words")
    with pytest.raises(InputError, match="to hold settings by name"):
        plan.load(str(path))


def test_similarity_is_part_of_the_key_unless_it_is_the_papers(tmp_path: Path) -> None:
    trial = plan.load(small_yaml(tmp_path)).rows()[1].trial
    assert "similarity" not in trial.settings()
    keys = {replace(trial, similarity=name).key for name in ("cosine", "centred", "whitened")}
    assert len(keys) == 3
    assert trial.key in keys


def test_seeds_of_the_file_are_the_seeds_of_its_trials(tmp_path: Path) -> None:
    path = small_yaml(tmp_path, seeds=[100, 105, 7])
    experiment = plan.load(path)
    assert experiment.repeats == 3
    rows = experiment.rows()
    assert list(dict.fromkeys(row.trial.seed for row in rows)) == [100, 105, 7]
    assert {row.trial.data["init_args"]["split_seed"] for row in rows} == {100, 105, 7}
    assert plan.load(path, repeats=2).all_seeds == (100, 105)
    with pytest.raises(InputError, match=r"`repeats` of at most 3, the number of `seeds`, .* 4"):
        plan.load(path, repeats=4)
    with pytest.raises(InputError, match="`seeds` to be different integers"):
        plan.load(small_yaml(tmp_path, seeds=[1, 1]))


def test_the_objective_is_decided_by_what_was_declared() -> None:
    experiment = plan.load("objective-glyphs")
    assert experiment.all_seeds == tuple(range(100, 120))
    pairs = [(p["better"], p["than"], p["m"]) for p in experiment.decide["comparisons"]]
    assert pairs == [
        ("whitened, K=1", other, m) for other in ("cosine, K=1", "whitened, K=3") for m in (20, 100)
    ]
    assert (experiment.decide["head"], experiment.decide["shots"]) == ("NearestCentroid", 5)
    rows = experiment.rows()
    assert len(rows) == 20 * 3 * 2 * 5
    assert [row.trial.seed for row in rows] == sorted(row.trial.seed for row in rows)


@pytest.mark.parametrize(
    ("decide", "message"),
    [
        ({"head": "NearestCentroid"}, "`decide` with comparisons, head, shots"),
        ({"head": "X", "shots": 5, "comparisons": []}, "`decide` to name a head"),
        ({"head": "NearestCentroid", "shots": 9, "comparisons": []}, "`decide` to name shots"),
        ({"head": "NearestCentroid", "shots": 5, "comparisons": []}, "at least one comparison"),
        (
            {
                "head": "NearestCentroid",
                "shots": 5,
                "comparisons": [{"better": "nobody", "than": "cosine, K=1", "m": 20}],
            },
            "two of its methods",
        ),
    ],
)
def test_comparisons_of_what_is_not_there_are_refused(decide: dict, message: str) -> None:
    with pytest.raises(InputError, match=message):
        plan.load("objective-glyphs", decide=decide)
