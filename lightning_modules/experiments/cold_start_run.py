"""One cold start with everything a report shows: selections, class means, pictures, accuracies."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from lightning_modules import ColdStartSelection, NovelEvaluation
from lightning_modules.experiments.building import data_module
from lightning_modules.experiments.first_model import selection_support
from lightning_modules.experiments.plan import Trial
from lightning_modules.experiments.training import train


def cold_start_run(
    trial: Trial, schedule: Sequence[int], k: int, folder: Path, draws: int = 5
) -> tuple[ColdStartSelection, NovelEvaluation]:
    """Train in stages on the data of a trial; the files of the run go to `folder`.

    Args:
        trial: its data, model and training are used.
        schedule: base classes in each stage.
        k: K of the selections.
        folder: made where it is not there.
        draws: support and test sets to evaluate every stage on.

    Returns:
        The callbacks, which know what was chosen and measured.
    """
    folder.mkdir(parents=True, exist_ok=True)
    data = data_module(trial.data, trial.seed, trial.training, "candidates")
    assert data.novel is not None
    data.novel = selection_support(data.novel, max(trial.shots))
    epochs = trial.training["epochs"]
    selection = ColdStartSelection(
        schedule, epochs, k=k, seed=trial.seed, dirpath=folder, verbose=False
    )
    evaluation = NovelEvaluation(
        shots=trial.shots[0], episodes=draws, dirpath=folder, verbose=False
    )
    callbacks = [evaluation, selection]
    train(data, trial.model, trial.training, trial.seed, None, callbacks)
    return selection, evaluation
