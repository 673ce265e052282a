"""A pool whose chosen classes are labelled by people between the stages of a run."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from fsl_basesel import checks
from fsl_basesel.data.folder import FolderSource, is_picture
from fsl_basesel.data.pool import ClassPool
from fsl_basesel.errors import InputError
from fsl_basesel.files.writing import whole_file


class LabelsPending(RuntimeError):  # noqa: N818  (not a fault: the run waits for people)
    """Chosen classes still wait for their images; the message says which and where to put them."""

    def __init__(self, classes: list[str], queue: Path, folder: Path, needed: int) -> None:
        self.classes, self.queue = classes, queue
        shown = ", ".join(classes[:5]) + (", ..." if len(classes) > 5 else "")
        super().__init__(
            f"{len(classes)} chosen class(es) wait for their images: {shown}. Put at least "
            f"{needed} image(s) of each into a folder of its name in {folder} and run the same "
            f"command again; {queue} lists them all."
        )


class LabellingQueue(ClassPool):
    """A pool that requests the images of the classes to expand, and waits for them.

    `previews` has a folder for each candidate class with the few images known of it. `expand`
    writes the classes to label to the JSON file `queue` and raises `LabelsPending`, which ends the
    run with a message. People put the images into `labelled`, a folder for each class; when the
    run is started again, `expand` finds them and returns. The files that each class had then are
    recorded in `queue`: later additions do not change a run that has used it.

    With several processes call `expand` in one of them first; the others read what it recorded.

    Args:
        previews: folder with one folder for each candidate class.
        labelled: folder in which the images of chosen classes arrive.
        queue: JSON file with the classes that wait and those that have arrived.
        needed: images a class must have in `labelled` to count as labelled.
        preview: see `ClassPool`.
        options: `size`, `channels`, `transform`, `on_corrupt`, `seed` of `image_folder`.
    """

    def __init__(
        self,
        previews: str | os.PathLike[str],
        labelled: str | os.PathLike[str],
        queue: str | os.PathLike[str] = "classes-to-label.json",
        *,
        needed: int = 1,
        preview: int | None = None,
        **options: Any,
    ) -> None:
        self.needed = checks.integer(needed, "needed", 1)
        self._folder = FolderSource(previews, **options)
        super().__init__(self._folder, preview)
        self._filled: set[int] = set()
        self.labelled, self.queue = Path(labelled), Path(queue)

    def expand(self, classes: Iterable[Any]) -> list[int]:
        """Expand these classes if their images have arrived.

        Raises:
            LabelsPending: if some have not; then none is expanded, and `queue` lists them.
        """
        asked = self.source.positions(classes)
        new = [c for c in asked if c not in self._expanded]
        arrived = self._read_queue()
        waiting = []
        for name in (self.names[c] for c in new if self.names[c] not in arrived):
            files = self._files_of(name)
            if len(files) >= self.needed:
                arrived[name] = files
                continue
            entry = {"class": name, "folder": str(self.labelled / name), "images": len(files)}
            waiting.append(entry | {"needed": self.needed})
        if new:
            content = {"waiting": waiting, "arrived": arrived}
            text = json.dumps(content, indent=2, ensure_ascii=False)
            with whole_file(self.queue) as file:
                file.write(text.encode("utf-8", "surrogateescape"))  # file names may be any bytes
        if waiting:
            names = [str(entry["class"]) for entry in waiting]
            raise LabelsPending(names, self.queue, self.labelled, self.needed)
        for c in (c for c in new if c not in self._filled):
            self._folder.prepare([c])  # its previews stay the ones it was chosen by
            self._shown[c] = min(self._shown[c], self._folder.sizes[c])
            folder = (self.labelled / self.names[c]).resolve()
            self._folder.add_files(c, [str(folder / file) for file in arrived[self.names[c]]])
            self._filled.add(c)
        return super().expand(asked)

    def _files_of(self, name: str) -> list[str]:
        try:
            with os.scandir(self.labelled / name) as entries:
                return sorted(entry.name for entry in entries if is_picture(entry))
        except FileNotFoundError:
            return []

    def _read_queue(self) -> dict[str, list[str]]:
        try:
            content = json.loads(self.queue.read_text("utf-8", "surrogateescape"))
            arrived = {str(name): list(files) for name, files in content["arrived"].items()}
        except FileNotFoundError:
            return {}
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise InputError(
                f"Expected {self.queue} to be a labelling queue but it is not ({error}); repair or "
                "remove it."
            ) from error
        for name, files in arrived.items():
            for file in files:
                inside = isinstance(file, str) and os.path.basename(file) == file
                if not inside or file in ("", ".."):
                    raise InputError(
                        f"Expected {self.queue} to name files in {self.labelled / name} but it "
                        f"names {file!r}; remove that entry."
                    )
        return arrived
