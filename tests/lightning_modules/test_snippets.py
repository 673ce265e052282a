"""The snippets of README and docs that resume a run: run as written, killed, and run again."""

from __future__ import annotations

import os
import re
import signal
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.lightning_modules.runs import KillAt, finished, in_process

ROOT = Path(__file__).parents[2]
PAGES = ("README.md", "docs/lightning.md")
SMALL = {"candidates": 102, "novel": 4, "per_class": 6, "preview": 3, "size": 8}
SMALL |= {"shots": 5, "queries": 1}


def snippets(page: str) -> list[str]:
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(encoding="utf-8"), re.S)
    return [block for block in blocks if 'ckpt_path="last"' in block and "Trainer" in block]


def run_snippet(code: str, folder: Path, kill: tuple[Any, ...] | None) -> None:
    """Run the code as it stands, on fewer and smaller images than it asks for."""
    import pytorch_lightning as pl

    import fsl_basesel.data

    warnings.simplefilter("ignore")
    torch.set_num_threads(1)
    os.chdir(folder)
    glyphs, trainer = fsl_basesel.data.glyphs, pl.Trainer

    def small_glyphs(**options: Any) -> Any:
        return glyphs(**(options | SMALL))

    def killed_trainer(callbacks: Any, **options: Any) -> pl.Trainer:
        extra = [] if kill is None else [KillAt(*kill)]
        return trainer(callbacks=[*callbacks, *extra], enable_progress_bar=False, **options)

    fsl_basesel.data.glyphs = small_glyphs  # type: ignore[assignment]
    pl.Trainer = killed_trainer  # type: ignore[assignment, misc]
    names: dict[str, Any] = {}
    exec(compile(code, "snippet", "exec"), names)
    torch.save(names["trainer"].lightning_module.state_dict(), "weights.pt")


def test_there_are_snippets() -> None:
    assert all(snippets(page) for page in PAGES)


@pytest.mark.parametrize("page", PAGES)
def test_a_snippet_that_was_killed_goes_on_when_it_is_run_again(page: str, tmp_path: Path) -> None:
    (code,) = snippets(page)
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    for folder, kills in ((whole, [None]), (killed, [("backward", 7, 1), ("backward", 16, 0)])):
        folder.mkdir()
        for kill in [*kills, None] if kills[0] else kills:
            code_of_exit = finished(in_process(run_snippet, code, folder, kill))
            assert code_of_exit == (0 if kill is None else -signal.SIGKILL)
    expected = torch.load(whole / "weights.pt", weights_only=True)
    found = torch.load(killed / "weights.pt", weights_only=True)
    assert expected.keys() == found.keys()
    for name, tensor in expected.items():
        assert torch.equal(found[name], tensor), name
    # It did go on, and not from the start: the last time it had only stage 5 to choose.
    versions = sorted((killed / "lightning_logs").glob("version_*"))
    assert len(versions) == 3
    chosen = [path.name for path in versions[-1].glob("selection-stage-*.json")]
    assert chosen == ["selection-stage-5.json"]
