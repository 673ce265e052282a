# mypy: ignore-errors
# ruff: noqa: RUF005  (Triton's compiler knows + of tuples, not unpacking)
"""Device functions shared by the kernels: the DP states of a block of lanes, kept in registers.

A lane is one walk (a row, or a chunk of a row), one thread. Its states are a tuple of `[BLOCK]`
tensors, one per state, so that every loop over states unrolls and nothing is indexed dynamically. A
tile is `TILE` consecutive elements of every lane, loaded as one `[BLOCK, TILE]` block and then
taken apart into columns of shape `[BLOCK]`.

With q the similarity above the floor and x the probability of an element:

    forward    p(j) += x (p(j-1) - p(j))        p(j) = P(j of the elements before are in)
    backward   W(j) += x (W(j+1) - W(j))        W(K) := q
    gradient   sum over j < K of p(j) (q - W(j))

A kernel compiled for K states serves every k <= K: it starts at state K - k instead of 0, and the
states below are never reached.
"""

import triton
import triton.language as tl


@triton.jit
def split_columns(b_tile, BLOCK: tl.constexpr, TILE: tl.constexpr):
    """Take a `[BLOCK, TILE]` tile apart into TILE tensors of shape `[BLOCK]`, in order."""
    parts = (b_tile,)
    for level in tl.static_range(TILE.bit_length() - 1):
        halves = ()
        for i in tl.static_range(2**level):
            b_pair = tl.reshape(parts[i], (BLOCK, 2, TILE // 2 // 2**level))
            b_first, b_second = tl.split(tl.permute(b_pair, (0, 2, 1)))
            halves = halves + (b_first, b_second)
        parts = halves
    columns = ()
    for t in tl.static_range(TILE):
        columns = columns + (tl.reshape(parts[t], (BLOCK,)),)
    return columns


@triton.jit
def load_columns(ptr, o_i, width, m_lane, BLOCK: tl.constexpr, TILE: tl.constexpr):
    """Elements `o_i .. o_i + TILE` of every lane as TILE columns.

    `ptr` points to the lanes' rows. Their `width` is a multiple of 16 (and so of TILE), so that the
    compiler reads a lane's tile in 16-byte pieces.
    """
    o_tile = o_i[:, None] + tl.arange(0, TILE)[None, :]
    m_tile = m_lane[:, None] & (o_tile < width)
    b_tile = tl.load(ptr[:, None] + o_tile, mask=m_tile, other=0)
    return split_columns(b_tile, BLOCK, TILE)


@triton.jit
def gather(x_ptr, columns, n_samples, o_i, length, m_lane, TILE: tl.constexpr):
    """Probabilities of the columns of a tile; zero beyond the end, where they change nothing."""
    b_x = ()
    for t in tl.static_range(TILE):
        mask = m_lane & (o_i + t < length)
        o_x = columns[t].to(tl.int64) * n_samples
        b_x = b_x + (tl.load(x_ptr + o_x, mask=mask, other=0.0),)
    return b_x


@triton.jit
def above_floor(columns, floor, o_i, length, TILE: tl.constexpr):
    """Similarities above the floor; zero beyond the end, where a padded row may hold anything."""
    b_q = ()
    for t in tl.static_range(TILE):
        b_q = b_q + (tl.where(o_i + t < length, columns[t].to(floor.dtype) - floor, 0.0),)
    return b_q


@triton.jit
def scatter(grad_ptr, columns, n_samples, b_g, o_i, length, m_lane, TILE: tl.constexpr):
    """Store the gradients of a tile; each place is written once."""
    for t in tl.static_range(TILE):
        mask = m_lane & (o_i + t < length)
        tl.store(grad_ptr + columns[t].to(tl.int64) * n_samples, b_g[t], mask=mask)


@triton.jit
def one_at(start, BLOCK: tl.constexpr, STATES: tl.constexpr, DTYPE: tl.constexpr):
    """States 0 .. STATES - 1 with probability one at `start`."""
    b_p = ()
    for j in tl.static_range(STATES):
        b_p = b_p + (tl.zeros((BLOCK,), DTYPE) + tl.where(start == j, 1.0, 0.0).to(DTYPE),)
    return b_p


@triton.jit
def zeros(BLOCK: tl.constexpr, STATES: tl.constexpr, DTYPE: tl.constexpr):
    """States 0 .. STATES - 1, all zero."""
    b_p = ()
    for _ in tl.static_range(STATES):
        b_p = b_p + (tl.zeros((BLOCK,), DTYPE),)
    return b_p


@triton.jit
def total(b_p, start, STATES: tl.constexpr):
    """Sum over the states from `start` on."""
    b_sum = tl.where(start == 0, b_p[0], 0.0)
    for j in tl.static_range(1, STATES):
        b_sum += tl.where(start <= j, b_p[j], 0.0)
    return b_sum


@triton.jit
def load_states(ptr, stride, mask, STATES: tl.constexpr):
    """Load states 0 .. STATES - 1, `stride` apart; zero where masked."""
    b_p = ()
    for j in tl.static_range(STATES):
        b_p = b_p + (tl.load(ptr + j * stride, mask=mask, other=0.0),)
    return b_p


@triton.jit
def store_states(ptr, stride, b_p, mask, STATES: tl.constexpr):
    """Store states 0 .. STATES - 1, `stride` apart."""
    for j in tl.static_range(STATES):
        tl.store(ptr + j * stride, b_p[j], mask=mask)


@triton.jit
def advance(b_p, b_x, STATES: tl.constexpr):
    """One element forward: p(j) += x (p(j-1) - p(j)) for j < STATES."""
    b_new = (b_p[0] - b_x * b_p[0],)
    for j in tl.static_range(1, STATES):
        b_new = b_new + (b_p[j] + b_x * (b_p[j - 1] - b_p[j]),)
    return b_new


@triton.jit
def retreat(b_w, b_x, b_q, K: tl.constexpr):
    """One element backward: W(j) += x (W(j+1) - W(j)) for j < K, with W(K) = q."""
    b_new = ()
    for j in tl.static_range(K - 1):
        b_new = b_new + (b_w[j] + b_x * (b_w[j + 1] - b_w[j]),)
    return b_new + (b_w[K - 1] + b_x * (b_q - b_w[K - 1]),)


@triton.jit
def advance_by(b_p, b_poly, STATES: tl.constexpr):
    """A whole chunk forward: the product of `p` and the chunk's polynomial, cut at STATES."""
    b_new = ()
    for r in tl.static_range(STATES):  # from the last state down, so that p(j) dies with new(j)
        b_sum = b_poly[0] * b_p[STATES - 1 - r]
        for d in tl.static_range(1, STATES - r):
            b_sum += b_poly[d] * b_p[STATES - 1 - r - d]
        b_new = (b_sum,) + b_new
    return b_new


@triton.jit
def retreat_by(b_w, b_poly, b_own, K: tl.constexpr):
    """A whole chunk backward: W(j) = own(j) + sum over d of poly(d) W(j + d), j + d < K."""
    b_new = ()
    for j in tl.static_range(K):  # from the first state up, so that W(j) dies with new(j)
        b_sum = b_own[j]
        for d in tl.static_range(K - j):
            b_sum += b_poly[d] * b_w[j + d]
        b_new = b_new + (b_sum,)
    return b_new


@triton.jit
def retreat_in_place(b_w, b_poly, own_ptr, stride, mask, K: tl.constexpr):
    """`retreat_by` state by state from memory, W taking the place of `own`: fewer registers."""
    b_new = ()
    for j in tl.static_range(K):
        b_sum = tl.load(own_ptr + j * stride, mask=mask, other=0.0)
        tl.store(own_ptr + j * stride, b_w[j], mask=mask)
        for d in tl.static_range(K - j):
            b_sum += b_poly[d] * b_w[j + d]
        b_new = b_new + (b_sum,)
    return b_new


@triton.jit
def gradient_of_tile(b_p, b_w, b_x, b_q, K: tl.constexpr, TILE: tl.constexpr):
    """W before a tile and the tile's gradients, from p before it and W behind it.

    The states before each element stay in registers (`K * TILE` of them): that bounds TILE.
    """
    before = b_p
    for t in tl.static_range(TILE - 1):
        b_p = advance(b_p, b_x[t], K)
        before = before + b_p
    gradients = ()
    for r in tl.static_range(TILE):
        b_g = before[(TILE - 1 - r) * K] * (b_q[TILE - 1 - r] - b_w[0])
        for j in tl.static_range(1, K):
            b_g += before[(TILE - 1 - r) * K + j] * (b_q[TILE - 1 - r] - b_w[j])
        gradients = (b_g,) + gradients
        b_w = retreat(b_w, b_x[TILE - 1 - r], b_q[TILE - 1 - r], K)
    return b_w, gradients
