"""Sources that read their images one by one, any of which may turn out to be damaged."""

from __future__ import annotations

import abc
import warnings
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import torch

from fsl_basesel.data import counter
from fsl_basesel.data.source import Dropped, ImageSource
from fsl_basesel.errors import InputError

ON_CORRUPT = ("raise", "skip")
_CHUNK = 64


class CorruptImageError(InputError):
    """An image that cannot be read; the message names it and its class."""


class ReadSource(ImageSource):
    """A source that reads each image from somewhere.

    Args:
        names: class names.
        members: for each class what `read` needs to find its images, in random order.
        on_corrupt: "raise" stops at an unreadable image; "skip" tries the images of a class when
            they are first needed, leaves out those that cannot be read, and reports them.
        identity: what tells this source from others.
    """

    threads = 1  # that may read at once

    def __init__(
        self,
        names: Sequence[str],
        members: Sequence[np.ndarray],
        on_corrupt: str,
        identity: Iterable[str | bytes],
    ) -> None:
        if on_corrupt not in ON_CORRUPT:
            raise InputError(
                f"Expected `on_corrupt` to be one of {', '.join(ON_CORRUPT)} but got "
                f"{on_corrupt!r}."
            )
        self._on_corrupt = on_corrupt
        self._members = list(members)
        self._tried = np.zeros(len(names), np.int64)  # so many first images are known to be good
        super().__init__(names, [len(piece) for piece in members], identity)

    @abc.abstractmethod
    def read(self, class_number: int, member: int) -> torch.Tensor:
        """Read one image; any exception means that it cannot be read."""

    @abc.abstractmethod
    def describe(self, class_number: int, member: int) -> str:
        """Where an image is, for messages."""

    def images(self, classes: np.ndarray, items: np.ndarray) -> torch.Tensor:
        """Image `items[b]` of class `classes[b]` for every b."""
        where = [
            (c, int(self._members[c][i])) for c, i in zip(classes.tolist(), items, strict=True)
        ]
        pictures = [self._read_or_raise(c, member) for c, member in where]
        for (c, member), picture in zip(where, pictures, strict=True):
            if picture.shape != pictures[0].shape:
                raise InputError(
                    "Expected images of one shape in a batch but "
                    f"{self.describe(c, member)} of class {self.names[c]!r} has "
                    f"{tuple(picture.shape)} and {self.describe(*where[0])} has "
                    f"{tuple(pictures[0].shape)}; pass `size`, or a `transform` that resizes."
                )
        return torch.stack(pictures)

    def _read_or_raise(self, c: int, member: int) -> torch.Tensor:
        try:
            return self.read(c, member)
        except InputError:  # a wrong setting, not a damaged image
            raise
        except Exception as error:  # decoders raise whatever they like on damaged files
            raise CorruptImageError(
                f"Expected a readable image but {self.describe(c, member)} of class "
                f"{self.names[c]!r} is not: {_reason(error)}; replace or remove it, or pass "
                'on_corrupt="skip" to leave such images out.'
            ) from error

    def prepare(self, classes: Sequence[int], count: int | None = None) -> None:
        """With `on_corrupt="skip"`, try images until `count` of each class (None: all) are good."""
        if self._on_corrupt == "raise":
            return
        before = len(self.dropped)
        with ThreadPoolExecutor(self.threads) as threads:
            for c in classes:
                self._try_class(c, count, threads)
        new = self.dropped[before:]
        if new:
            listed = "; ".join(f"{d.image} of class {d.class_name!r} ({d.reason})" for d in new[:5])
            more = f"; and {len(new) - 5} more, see `dropped`" if len(new) > 5 else ""
            warnings.warn(f"Left out {len(new)} unreadable image(s): {listed}{more}", stacklevel=3)

    def _try_class(self, c: int, count: int | None, threads: ThreadPoolExecutor) -> None:
        while self._tried[c] < min(len(self._members[c]), count or len(self._members[c])):
            done = int(self._tried[c])
            end = done + _CHUNK if count is None else min(done + _CHUNK, count)
            chunk = self._members[c][done:end]
            reasons = list(threads.map(lambda member: self._fault(c, int(member)), chunk))
            good = np.array([reason is None for reason in reasons])
            self.dropped += [
                Dropped(self.names[c], self.describe(c, int(member)), reason)
                for member, reason in zip(chunk, reasons, strict=True)
                if reason is not None
            ]
            rest = self._members[c][done + len(chunk) :]
            self._members[c] = np.concatenate([self._members[c][:done], chunk[good], rest])
            self._tried[c] += int(good.sum())
            self.sizes[c] = len(self._members[c])

    def _fault(self, c: int, member: int) -> str | None:
        try:
            self.read(c, member)
        except InputError:
            raise
        except Exception as error:
            return _reason(error)
        return None


def _reason(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def in_random_order(name: str, members: np.ndarray, seed: int) -> np.ndarray:
    """The images of a class in a random order that depends on its name and the seed."""
    return members[counter.shuffled(counter.key(seed, "order", name), np.arange(len(members)))]
