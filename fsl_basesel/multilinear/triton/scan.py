# mypy: ignore-errors
# ruff: noqa: RUF005  (Triton's compiler knows + of tuples, not unpacking)
"""The base axis cut into chunks: summaries side by side, a scan over chunks, replay side by side.

A chunk of elements is summarised by two small vectors:

    poly(d) = P(d of the chunk's elements are in), d <= K     p after  = poly * p before, cut at K
    own(j)  = W before the chunk if W behind it were zero     W before = own + correlate(poly, W)

`summarise_kernel` makes them, `forward_kernel` and `backward_kernel` carry p and W from chunk to
chunk, `replay_kernel` then has for every chunk the p before it and the W behind it and finds the
gradients of all chunks at once. The row is taken in a few waves of chunks: a row whose states have
died in one wave costs nothing in the next, without a host synchronisation.

Lanes of the chunk kernels are `(row * chunks + chunk) * S + sample`; the scratch between kernels is
`[states, lanes]` in that order, so it is written and read coalesced. Probabilities and gradients
are `[B, S]`, so that the samples of an element, side by side in a warp, share a sector.
"""

import triton
import triton.language as tl

from fsl_basesel.multilinear.triton.states import (
    above_floor,
    advance,
    advance_by,
    gather,
    gradient_of_tile,
    load_columns,
    load_states,
    one_at,
    retreat,
    retreat_by,
    retreat_in_place,
    scatter,
    store_states,
    total,
    zeros,
)


@triton.jit(do_not_specialize=["n_rows", "length", "n_chunks", "first_chunk", "wave_chunks"])
def summarise_kernel(
    x_ptr,  # [B, S] probabilities
    values_ptr,  # [R, L] similarities, falling
    order_ptr,  # [R, L] their columns
    floor_ptr,  # [1]
    live_ptr,  # [R, S] int32: chunks of the row known to be live
    poly_ptr,  # [K + 1, R, chunks, S] out
    own_ptr,  # [K, R, chunks, S] out
    n_samples,
    n_rows,
    length,
    width,
    chunk,
    n_chunks,
    first_chunk,
    wave_chunks,
    K: tl.constexpr,
    TILE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """`poly` and `own` of the chunks `first_chunk .. first_chunk + wave_chunks` of live rows."""
    i_item = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    i_sample = i_item % n_samples
    i_chunk = first_chunk + (i_item // n_samples) % wave_chunks
    i_row = (i_item // n_samples) // wave_chunks
    # A row whose states died before this wave has fewer live chunks than `first_chunk`.
    b_live = tl.load(live_ptr + i_row * n_samples + i_sample, mask=i_row < n_rows, other=-1)
    m_lane = b_live >= first_chunk
    if tl.max(m_lane.to(tl.int32), axis=0) > 0:
        floor = tl.load(floor_ptr)
        x_lane_ptr = x_ptr + i_sample
        order_row_ptr = order_ptr + i_row.to(tl.int64) * width
        values_row_ptr = values_ptr + i_row.to(tl.int64) * width
        b_p = one_at(0, BLOCK, K + 1, floor.dtype)
        b_w = zeros(BLOCK, K, floor.dtype)
        # The polynomial does not care for the direction, W does: walk back.
        for r in range(chunk // TILE):
            o_i = i_chunk * chunk + (chunk - TILE - r * TILE)
            columns = load_columns(order_row_ptr, o_i, width, m_lane, BLOCK, TILE)
            b_q = load_columns(values_row_ptr, o_i, width, m_lane, BLOCK, TILE)
            b_q = above_floor(b_q, floor, o_i, length, TILE)
            b_x = gather(x_lane_ptr, columns, n_samples, o_i, length, m_lane, TILE)
            for t in tl.static_range(TILE):
                b_p = advance(b_p, b_x[TILE - 1 - t], K + 1)
                b_w = retreat(b_w, b_x[TILE - 1 - t], b_q[TILE - 1 - t], K)
        n_lanes = n_rows.to(tl.int64) * n_chunks * n_samples
        i_lane = (i_row.to(tl.int64) * n_chunks + i_chunk) * n_samples + i_sample
        store_states(poly_ptr + i_lane, n_lanes, b_p, m_lane, K + 1)
        store_states(own_ptr + i_lane, n_lanes, b_w, m_lane, K)


@triton.jit(do_not_specialize=["n_rows", "n_chunks", "first_chunk", "last_chunk"])
def forward_kernel(
    poly_ptr,  # [K + 1, R, chunks, S]
    before_ptr,  # [K, R, chunks, S] out: p before each live chunk
    state_ptr,  # [K + 1, R, S] p between waves
    live_ptr,  # [R, S] int32 out: chunks of the row known to be live
    n_samples,
    n_rows,
    n_chunks,
    first_chunk,
    last_chunk,
    eps,
    K: tl.constexpr,
    UNROLL: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Carry p over the chunks of one wave, UNROLL at a time; a lane is `row * S + sample`."""
    i_lane = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    n_lanes = n_rows.to(tl.int64) * n_samples
    o_base = (i_lane // n_samples) * n_chunks * n_samples + i_lane % n_samples
    b_live = tl.load(live_ptr + i_lane, mask=i_lane < n_lanes, other=-1)
    m_reached = b_live == first_chunk
    b_p = load_states(state_ptr + i_lane, n_lanes, m_reached, K + 1)
    # One state more than the gradient needs shows whether a row is finished: an element taken out
    # of an integral x still leaves K of the others.
    m_alive = m_reached & (total(b_p, 0, K + 1) >= eps)
    n_alive = tl.sum(m_alive.to(tl.int32), axis=0)
    i_chunk = first_chunk
    while (i_chunk < last_chunk) & (n_alive > 0):
        o_chunk = o_base + i_chunk * n_samples
        # A store before the loads needs fewer registers.
        store_states(before_ptr + o_chunk, n_lanes * n_chunks, b_p, m_alive, K)
        # All loads of the group before its chain of products, so that they wait together.
        polys = ()
        for u in tl.static_range(UNROLL):
            o_poly = o_chunk + u * n_samples
            b_poly = load_states(poly_ptr + o_poly, n_lanes * n_chunks, m_alive, K + 1)
            polys = polys + (b_poly,)
        for u in tl.static_range(UNROLL):
            if u > 0:
                o_before = o_chunk + u * n_samples
                store_states(before_ptr + o_before, n_lanes * n_chunks, b_p, m_alive, K)
            b_p = advance_by(b_p, polys[u], K + 1)
            b_live = tl.where(m_alive, i_chunk + u + 1, b_live)
            m_alive = m_alive & (total(b_p, 0, K + 1) >= eps)
        i_chunk += UNROLL
        n_alive = tl.sum(m_alive.to(tl.int32), axis=0)
    tl.store(live_ptr + i_lane, b_live, mask=m_reached)
    store_states(state_ptr + i_lane, n_lanes, b_p, m_reached, K + 1)


@triton.jit(do_not_specialize=["n_rows", "n_chunks", "start"])
def backward_kernel(
    poly_ptr,  # [K + 1, R, chunks, S]
    own_ptr,  # [K, R, chunks, S] in: own, out: W behind each live chunk
    live_ptr,  # [R, S] int32
    value_ptr,  # [R, S] out: expected top-k sum above the floor
    n_samples,
    n_rows,
    n_chunks,
    start,
    K: tl.constexpr,
    UNROLL: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Carry W back over the live chunks, UNROLL at a time; a lane is `row * S + sample`."""
    i_lane = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    n_lanes = n_rows.to(tl.int64) * n_samples
    o_base = (i_lane // n_samples) * n_chunks * n_samples + i_lane % n_samples
    b_live = tl.load(live_ptr + i_lane, mask=i_lane < n_lanes, other=0)
    b_w = zeros(BLOCK, K, value_ptr.dtype.element_ty)
    i_chunk = tl.cdiv(tl.max(b_live, axis=0), UNROLL) * UNROLL
    while i_chunk > 0:
        i_chunk -= UNROLL
        o_chunk = o_base + i_chunk * n_samples
        # Lanes that are not live load zeros, so their W stays zero.
        if UNROLL == 1:
            b_poly = load_states(poly_ptr + o_chunk, n_lanes * n_chunks, i_chunk < b_live, K)
            b_w = retreat_in_place(
                b_w, b_poly, own_ptr + o_chunk, n_lanes * n_chunks, i_chunk < b_live, K
            )
        else:
            # All loads of the group before its chain of products, so that they wait together.
            polys = ()
            owns = ()
            for u in tl.static_range(UNROLL):
                m_live = i_chunk + u < b_live
                o_poly = o_chunk + u * n_samples
                polys = polys + (load_states(poly_ptr + o_poly, n_lanes * n_chunks, m_live, K),)
                owns = owns + (load_states(own_ptr + o_poly, n_lanes * n_chunks, m_live, K),)
            for r in tl.static_range(UNROLL):
                m_live = i_chunk + (UNROLL - 1 - r) < b_live
                o_own = o_chunk + (UNROLL - 1 - r) * n_samples
                store_states(own_ptr + o_own, n_lanes * n_chunks, b_w, m_live, K)
                b_w = retreat_by(b_w, polys[UNROLL - 1 - r], owns[UNROLL - 1 - r], K)
    tl.store(value_ptr + i_lane, total(b_w, start, K), mask=i_lane < n_lanes)


@triton.jit(
    do_not_specialize=["n_rows", "length", "n_chunks", "first_row", "rows_here", "n_blocks"]
)
def replay_kernel(
    x_ptr,  # [B, S] probabilities
    values_ptr,  # [R, L] similarities, falling
    order_ptr,  # [R, L] their columns
    floor_ptr,  # [1]
    live_ptr,  # [R, S] int32: live chunks of the row
    before_ptr,  # [K, R, chunks, S] p before each live chunk
    behind_ptr,  # [K, R, chunks, S] W behind each live chunk
    grad_ptr,  # [rows_here, B, S] out, zeros where nothing is written
    x_ring_ptr,  # [programs, chunk / TILE, TILE, BLOCK] scratch
    p_ring_ptr,  # [programs, chunk / TILE, K, BLOCK] scratch
    n_samples,
    n_rows,
    length,
    width,
    chunk,
    n_chunks,
    first_row,
    rows_here,
    n_blocks,
    K: tl.constexpr,
    TILE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """Gradients of the live chunks of rows `first_row .. first_row + rows_here`.

    A program takes many blocks, so that its scratch stays cached.
    """
    i_program = tl.program_id(0)
    o_lane = tl.arange(0, BLOCK)
    floor = tl.load(floor_ptr)
    x_ring_ptr += i_program.to(tl.int64) * (BLOCK * chunk) + o_lane
    p_ring_ptr += i_program.to(tl.int64) * (BLOCK * K * (chunk // TILE)) + o_lane
    n_lanes = n_rows.to(tl.int64) * n_chunks * n_samples
    first_lane = first_row.to(tl.int64) * n_chunks * n_samples

    for i_block in range(i_program, n_blocks, tl.num_programs(0)):
        i_item = i_block * BLOCK + o_lane
        i_sample = (i_item % n_samples).to(tl.int64)
        i_chunk = (i_item // n_samples) % n_chunks
        i_here = ((i_item // n_samples) // n_chunks).to(tl.int64)
        i_row = first_row + i_here
        i_lane = first_lane + i_item
        b_live = tl.load(live_ptr + i_row * n_samples + i_sample, mask=i_here < rows_here, other=0)
        m_lane = i_chunk < b_live
        if tl.max(m_lane.to(tl.int32), axis=0) > 0:
            order_row_ptr = order_ptr + i_row * width
            values_row_ptr = values_ptr + i_row * width
            x_lane_ptr = x_ptr + i_sample
            grad_lane_ptr = grad_ptr + i_here * length * n_samples + i_sample

            b_p = load_states(before_ptr + i_lane, n_lanes, m_lane, K)
            for i_tile in range(chunk // TILE):
                store_states(p_ring_ptr + i_tile * (BLOCK * K), BLOCK, b_p, m_lane, K)
                o_i = i_chunk * chunk + i_tile * TILE
                columns = load_columns(order_row_ptr, o_i, width, m_lane, BLOCK, TILE)
                b_x = gather(x_lane_ptr, columns, n_samples, o_i, length, m_lane, TILE)
                store_states(x_ring_ptr + i_tile * (BLOCK * TILE), BLOCK, b_x, m_lane, TILE)
                for t in tl.static_range(TILE):
                    b_p = advance(b_p, b_x[t], K)
            tl.debug_barrier()  # another thread may have written what this one reads back

            b_w = load_states(behind_ptr + i_lane, n_lanes, m_lane, K)
            for r in range(chunk // TILE):
                i_tile = chunk // TILE - 1 - r
                o_i = i_chunk * chunk + i_tile * TILE
                columns = load_columns(order_row_ptr, o_i, width, m_lane, BLOCK, TILE)
                b_q = load_columns(values_row_ptr, o_i, width, m_lane, BLOCK, TILE)
                b_q = above_floor(b_q, floor, o_i, length, TILE)
                b_x = load_states(x_ring_ptr + i_tile * (BLOCK * TILE), BLOCK, m_lane, TILE)
                b_before = load_states(p_ring_ptr + i_tile * (BLOCK * K), BLOCK, m_lane, K)
                b_w, b_g = gradient_of_tile(b_before, b_w, b_x, b_q, K, TILE)
                scatter(grad_lane_ptr, columns, n_samples, b_g, o_i, length, m_lane, TILE)
            tl.debug_barrier()
