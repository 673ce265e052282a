"""Images read one by one: from a picture file or object to a tensor; errors name the damage."""

from __future__ import annotations

import abc
import copy
import functools
import hashlib
import os
import re
import stat
import warnings
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from types import CodeType
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageOps

from fsl_basesel.checks import one_of
from fsl_basesel.data import cache, counter
from fsl_basesel.data.source import Dropped, ImageSource
from fsl_basesel.errors import InputError

ON_CORRUPT = ("raise", "skip")
EXTENSIONS = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm")
# Pictures that only some installations can read, and what to install for them.
PLUGINS = {".heic": "pillow-heif", ".heif": "pillow-heif", ".avif": "pillow>=11.3"}
_CHUNK = 64
_LOOKED_AT = 64  # images of a class whose size and time are part of the fingerprint
_HASHED = 2  # of them, whose content is
_HASHED_BYTES = 1 << 16


@functools.cache
def extensions() -> tuple[str, ...]:
    """Endings of the files that can be read here as pictures, in lower case."""
    with suppress(ImportError):
        import pillow_heif

        pillow_heif.register_heif_opener()
    Image.init()
    return EXTENSIONS + tuple(end for end in PLUGINS if end in Image.registered_extensions())


def open_picture(path: str, channels: int) -> Image.Image:
    """Read and decode a whole picture file, as grey (1 channel) or colour (3).

    An animation gives its first frame. See `upright` for the rest.
    """
    if not stat.S_ISREG(os.stat(path).st_mode):  # reading from a pipe would hang
        raise OSError("it is not a regular file")
    with Image.open(path) as picture:
        return upright(picture, "L" if channels == 1 else "RGB")


def upright(picture: Image.Image, mode: str) -> Image.Image:
    """A picture as people see it, in mode "L" or "RGB": turned, on white, in the range of a byte.

    The orientation of its EXIF data is applied. What is transparent becomes white. Numbers of 16
    bits are divided by 257. Integers of 32 bits and floating point numbers are taken to go up to
    the smallest of 1 (floating point only), 255 and 65535 that is not exceeded; where one is
    larger, or negative, the range of the picture is stretched to that of a byte.
    """
    plain = type(picture) is Image.Image and picture.mode == mode and not picture.info
    if plain and not picture.getexif():
        return picture
    picture.load()  # damage shows here
    with suppress(Exception):  # damaged EXIF data; the picture itself may be good
        picture = ImageOps.exif_transpose(picture)
    if picture.mode.startswith("I") or picture.mode == "F":
        picture = _in_bytes(picture)
    elif picture.has_transparency_data:
        colours = picture.convert("LA").convert("RGBA") if picture.mode == "La" else picture
        picture = Image.new("RGBA", picture.size, "white")
        picture.alpha_composite(colours.convert("RGBA"))
    picture = picture.convert(mode)
    picture.info.clear()  # or it would not be plain when it comes again
    return picture


def own_mode(picture: Image.Image) -> str:
    """The mode to read a picture in: "L" for a grey one, "RGB" for any other."""
    grey = picture.mode in ("1", "L", "F") or picture.mode.startswith("I")
    return "L" if grey else "RGB"


def _in_bytes(picture: Image.Image) -> Image.Image:
    values = np.asarray(picture).astype(np.float64)
    values = np.nan_to_num(values, nan=0.0, posinf=0.0, neginf=0.0)
    low, high = float(values.min()), float(values.max())
    limits = {"F": (1, 255, 65535), "I": (255, 65535)}.get(picture.mode, (65535,))
    limit: float = next((limit for limit in limits if high <= limit), 0)
    if low < 0 or not limit:
        values, limit = values - low, (high - low) or 1
    return Image.fromarray(np.rint(values * (255 / limit)).astype(np.uint8))


def fit(picture: Image.Image, size: int) -> Image.Image:
    """Bring the shorter side to `size` and cut the middle square."""
    width, height = picture.size
    scale = size / min(width, height)
    width, height = max(size, round(width * scale)), max(size, round(height * scale))
    picture = picture.resize((width, height), Image.Resampling.BILINEAR)
    left, top = (width - size) // 2, (height - size) // 2
    return picture.crop((left, top, left + size, top + size))


def as_tensor(picture: Any) -> torch.Tensor:
    """`[C, H, W]` float32 of a PIL picture, an array or a tensor; bytes are brought to [0, 1]."""
    if isinstance(picture, Image.Image):
        picture = np.array(upright(picture, own_mode(picture)))
    if isinstance(picture, np.ndarray):
        picture = torch.from_numpy(np.ascontiguousarray(picture))
        if picture.dim() == 3:  # arrays, unlike tensors, have the channels last
            picture = picture.permute(2, 0, 1)
    tensor = torch.as_tensor(picture)
    if tensor.dim() == 2:
        tensor = tensor[None]
    return tensor.float() / 255 if tensor.dtype == torch.uint8 else tensor.float()


class CorruptImageError(InputError):
    """An image that cannot be read; the message names it, its class and the reason."""

    def __init__(self, message: str, image: Dropped | None = None) -> None:
        super().__init__(message)
        self.image = image


class ReadSource(ImageSource):
    """A source that reads each image from somewhere.

    `members` has for each class what `read` needs to find its images, in random order. `on_corrupt`
    is "raise" to stop at an unreadable image; "skip" tries the images of a class when they are
    first needed, leaves out those that cannot be read, and reports them.
    """

    def __init__(
        self,
        names: Sequence[str],
        members: Sequence[np.ndarray],
        on_corrupt: str,
        identity: Iterable[str | bytes],
    ) -> None:
        self._on_corrupt = one_of(on_corrupt, ON_CORRUPT, "on_corrupt")
        self._members = list(members)
        self._tried = np.zeros(len(names), np.int64)  # number of first images known to be good
        self._first = [np.array(piece[:_LOOKED_AT]) for piece in members]  # before any is dropped
        super().__init__(names, [len(piece) for piece in members], identity)

    @abc.abstractmethod
    def read(self, class_number: int, member: int) -> torch.Tensor:
        """Read one image; any exception means that it cannot be read."""

    @abc.abstractmethod
    def describe(self, class_number: int, member: int) -> str:
        """Where an image is, for messages."""

    def look(self) -> Iterable[str | bytes]:
        """Sizes, times and hashes of some image files of every class."""
        for c, members in enumerate(self._first):
            yield from look_at_files([self.describe(c, int(member)) for member in members])

    def files(self, classes: np.ndarray, items: np.ndarray) -> list[str]:
        """Where each image is, as messages say it."""
        return [self.describe(c, member) for c, member in self._where(classes, items)]

    def _where(self, classes: np.ndarray, items: np.ndarray) -> list[tuple[int, int]]:
        pairs = zip(classes.tolist(), items.tolist(), strict=True)
        return [(c, int(self._members[c][i])) for c, i in pairs]

    def changed(self, **attributes: Any) -> ReadSource:
        """A copy with other attributes, which may drop images of its own."""
        other = copy.copy(self)
        other._members, other._tried = list(self._members), self._tried.copy()
        other.sizes, other.dropped = self.sizes.copy(), list(self.dropped)
        vars(other).update(attributes)
        return other

    def images(self, classes: np.ndarray, items: np.ndarray) -> torch.Tensor:
        """Image `items[b]` of class `classes[b]` for every b."""
        where = self._where(classes, items)
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
            where, why = self.describe(c, member), f"{type(error).__name__}: {error}"
            raise CorruptImageError(
                f"Expected a readable image but {where} of class {self.names[c]!r} is not: {why}; "
                'replace or remove it, or pass on_corrupt="skip" (--skip-damaged) to leave such '
                "images out.",
                Dropped(self.names[c], where, why),
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
        while len(chunk := self._members[c][self._tried[c] : count][:_CHUNK]):
            faults = list(threads.map(lambda member: self._fault(c, int(member)), chunk))
            self.dropped += [fault for fault in faults if fault is not None]
            bad = np.flatnonzero([fault is not None for fault in faults])
            self._members[c] = np.delete(self._members[c], self._tried[c] + bad)
            self._tried[c] += len(chunk) - len(bad)
            self.sizes[c] = len(self._members[c])

    def _fault(self, c: int, member: int) -> Dropped | None:
        try:
            self._read_or_raise(c, member)
        except CorruptImageError as error:
            return error.image
        return None


def in_random_order(name: str, members: np.ndarray, seed: int) -> np.ndarray:
    """The images of a class in a random order that depends on its name and the seed."""
    return members[counter.shuffled(counter.key(seed, "order", name), np.arange(len(members)))]


def look_at_files(paths: Sequence[str]) -> Iterable[str | bytes]:
    """Size and modification time of every file, and a hash of the beginning of the first ones."""
    for number, path in enumerate(paths):
        try:
            found = os.stat(path)
            yield f"{found.st_size} {found.st_mtime_ns}"
            if number < _HASHED and stat.S_ISREG(found.st_mode):
                with open(path, "rb") as file:
                    yield hashlib.sha256(file.read(_HASHED_BYTES)).digest()
        except OSError as error:
            yield f"unreadable: {error.errno}"


def text_of(transform: Any) -> str:
    """A text that identifies a transform and is the same in every process.

    It is the transform's `repr` without addresses; of a plain function, what it is compiled to.
    """
    code = getattr(transform, "__code__", None)
    if code is None:
        return re.sub(r" at 0x[0-9a-fA-F]+", "", repr(transform))
    return f"{transform.__module__}.{transform.__qualname__} {_code_text(code)}"


def _code_text(code: CodeType) -> str:
    inner = [
        _code_text(value) if isinstance(value, CodeType) else repr(value)
        for value in code.co_consts
    ]
    return cache.fingerprint([code.co_code, *code.co_names, *inner])
