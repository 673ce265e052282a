"""Where results are kept: one file per trial, whole or not there; locks die with their process."""

from __future__ import annotations

import json
import warnings
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from filelock import FileLock, Timeout

from fsl_basesel.errors import InputError
from fsl_basesel.files.writing import write_text
from lightning_modules.experiments.plan import Trial


class ResultStore:
    """Results of trials in a folder that several processes may work on."""

    def __init__(self, folder: str | Path) -> None:
        self.folder = Path(folder)
        try:
            for part in ("trials", "shared", "first-models", "locks"):
                (self.folder / part).mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InputError(
                f"Expected to write results to {str(folder)!r} but could not ({error}); name "
                "another folder with --out-dir."
            ) from error

    def shared(self, name: str, compute: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """What several trials share, computed by whoever comes first; others wait for it."""
        path = self.folder / "shared" / f"{name}.json"
        with self.claim(name, wait=True):
            found = _object_in(path)
            if found is None:
                found = compute()
                write_text(path, json.dumps(found) + "\n")
        return found

    def load(self, trial: Trial) -> dict[str, Any] | None:
        """The result of a trial; None if there is none yet, or it cannot be read."""
        found = _object_in(self._file(trial), "result")
        return None if found is None else found["result"]

    def save(self, trial: Trial, result: dict[str, Any]) -> None:
        """Keep a result, with the settings it belongs to for people who look into the file."""
        text = json.dumps({"trial": trial.settings(), "result": result}, ensure_ascii=False)
        write_text(self._file(trial), text + "\n")

    def take_up(self, path: str | Path, trials: Mapping[str, Trial]) -> int:
        """Take over results from a file that `keep` wrote; how many were new.

        `trials` are by their keys in the file.
        """
        rows = _rows_in(path)
        new = [key for key, trial in trials.items() if key in rows and self.load(trial) is None]
        for key in new:
            self.save(trials[key], rows[key])
        return len(new)

    def keep(self, path: str | Path, trials: Mapping[str, Trial]) -> None:
        """Add the results there are to a file, a line each; rows that it has stay as they are."""
        rows = _rows_in(path)
        for key, trial in trials.items():
            result = self.load(trial)
            if result is not None:
                rows.setdefault(key, result)
        lines = [json.dumps({"key": key, "result": result}) for key, result in rows.items()]
        write_text(path, "".join(f"{line}\n" for line in lines))

    def _file(self, trial: Trial) -> Path:
        return self.folder / "trials" / f"{trial.key}.json"

    @contextmanager
    def claim(self, key: str, wait: bool = False) -> Iterator[bool]:
        """Work on `key` alone, freed at any death; False if another does and we do not `wait`."""
        lock = FileLock(self.folder / "locks" / f"{key}.lock", timeout=-1 if wait else 0)
        try:
            held = lock.acquire()
        except Timeout:
            yield False
            return
        with held:
            yield True


def _rows_in(path: str | Path) -> dict[str, dict[str, Any]]:
    """Results by key in a file that `ResultStore.keep` wrote; none if there is no file."""
    try:
        lines = Path(path).read_text(encoding="utf-8").splitlines()
        rows = [json.loads(line) for line in lines]
        return {row["key"]: row["result"] for row in rows}
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(
            f"Expected {str(path)!r} to have a row of results in every line but it could not "
            f"be read ({type(error).__name__}: {error})."
        ) from error


def _object_in(path: Path, *keys: str) -> dict[str, Any] | None:
    """The JSON object in a file, with these keys; None, with a warning, if it holds no such one."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        if isinstance(found, dict) and all(isinstance(found.get(key), dict) for key in keys):
            return found
        reason = "it holds no result"
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:
        reason = f"{type(error).__name__}: {error}"
    warnings.warn(f"{path} could not be used ({reason}) and is computed again.", stacklevel=3)
    return None
