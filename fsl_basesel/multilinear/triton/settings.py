"""How a gradient is cut into launches; this depends on shapes only, not on data."""

from __future__ import annotations

from dataclasses import dataclass

from fsl_basesel.errors import InputError

# Numbers of states kernels are compiled for; another k runs on the next larger one.
STATES = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 24, 32)
BLOCK = 64  # lanes of a program: two warps of 32, one of 64
REGISTERS_FOR_REPLAY = 64  # 32-bit registers a lane spends on the states inside a tile
LANES_WANTED = 1 << 18  # chunks in flight that fill a large GPU; more chunks only add scan work
GROUP = 4  # a row has a multiple of this many chunks; the scans load as many at a time
MAX_PROGRAMS = 2048  # of the kernels with scratch of their own
SCRATCH_BYTES = 48 << 20  # bound on summaries of chunks, and on dense gradients
RING_BYTES = 32 << 20  # bound on the scratch of programs: fits the L2 of a large GPU
WAVES = (1024, 8192)  # elements after which a dead row is dropped


@dataclass(frozen=True)
class Settings:
    """Compile-time sizes and launch sizes of one call.

    Attributes:
        states: number of states the kernels are compiled for, at least k.
        tile: elements of a lane taken together.
        chunk: elements of a lane.
        waves: boundaries of the waves in chunks, first 0, last the number of chunks.
        rows: novel classes whose summaries exist at a time.
        dense_rows: novel classes whose gradients are written dense at a time.
        programs: most programs of the kernel that owns scratch per program.
    """

    states: int
    tile: int
    chunk: int
    waves: tuple[int, ...]
    rows: int
    dense_rows: int
    programs: int

    @property
    def n_chunks(self) -> int:
        """Chunks of a row."""
        return self.waves[-1]


def compiled_states(k: int) -> int:
    """The number of states that serves `k`.

    Example:
        >>> compiled_states(5), compiled_states(7)
        (5, 8)
    """
    for states in STATES:
        if k <= states:
            return states
    raise InputError(
        f"Expected `k` to be at most {STATES[-1]} for the Triton backend but got {k}; "
        'use backend="torch" or backend="cpu"'
    )


def tile_width(states: int, itemsize: int) -> int:
    """Elements a lane replays from registers: a power of two, at most 8.

    Example:
        >>> tile_width(5, itemsize=4), tile_width(32, itemsize=4), tile_width(32, itemsize=8)
        (8, 2, 1)
    """
    words = states * itemsize // 4
    return next((tile for tile in (8, 4, 2) if tile * words <= REGISTERS_FOR_REPLAY), 1)


def calculate_settings(
    n_samples: int, n_rows: int, length: int, k: int, itemsize: int = 4
) -> Settings:
    """Sizes for a gradient of `n_samples` vectors over `n_rows` rows of `length` sorted elements.

    A state has `itemsize` bytes.

    Example:
        >>> settings = calculate_settings(2, 1000, 21000, k=5)
        >>> settings.chunk, settings.waves
        (64, (0, 16, 128, 332))
    """
    states = compiled_states(min(k, length))
    tile = tile_width(states, itemsize)
    chunk = _chunk_length(n_samples * n_rows * length, tile)
    n_chunks = -(-length // (chunk * GROUP)) * GROUP
    inner = (elements // chunk for elements in WAVES)
    per_row = n_samples * n_chunks * (3 * states + 1) * itemsize
    # Probabilities, and the states before each tile.
    per_program = BLOCK * chunk * itemsize * (tile + states) // tile
    return Settings(
        states=states,
        tile=tile,
        chunk=chunk,
        waves=(0, *(boundary for boundary in inner if boundary < n_chunks), n_chunks),
        rows=_even_share(n_rows, SCRATCH_BYTES // per_row),
        dense_rows=_even_share(n_rows, SCRATCH_BYTES // (n_samples * length * itemsize)),
        programs=min(MAX_PROGRAMS, max(1, RING_BYTES // per_program)),
    )


def _even_share(n_rows: int, most: int) -> int:
    """Rows at a time, at most `most` but at least one, so that every time takes about as many."""
    return -(-n_rows // -(-n_rows // max(1, most)))


def scan_unroll(words: int) -> int:
    """Chunks the scans take at a time, by the 32-bit words of a lane's states: GROUP, or one.

    Example:
        >>> scan_unroll(5), scan_unroll(32)
        (4, 1)
    """
    return GROUP if words <= 12 else 1


def _chunk_length(elements: int, tile: int) -> int:
    """A power of two that leaves about `LANES_WANTED` chunks, within what the scratch allows."""
    longest = max(16, 8 * tile)
    chunk = 16
    while chunk < longest and elements // chunk > LANES_WANTED:
        chunk *= 2
    return chunk
