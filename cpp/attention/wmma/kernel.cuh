#pragma once

#include "attention/wmma/loader.cuh"
#include "attention/wmma/warp_tile.cuh"

namespace sparsek::attn::wmma {

/// Which q tile a CTA computes.
template <class C>
__device__ __forceinline__ Work work_of(const Params& p, std::int32_t place) {
  std::int32_t q_tile;
  std::int32_t head;  // of all batches
  if (p.section == 0) {
    q_tile = place % p.num_q_tiles;
    head = place / p.num_q_tiles;
  } else {
    const std::int32_t first = place / (p.section * p.num_q_tiles) * p.section;
    const std::int32_t heads = min(p.section, p.all_heads - first);
    const std::int32_t within = place - first * p.num_q_tiles;
    q_tile = p.num_q_tiles - 1 - within / heads;
    head = first + within % heads;
  }
  const std::int32_t block = q_tile / p.tiles_in_block;
  Work work;
  work.q_begin = block * p.q_block + q_tile % p.tiles_in_block * C::kTileQ;
  work.q_end = min(p.q_len, min(block * p.q_block + p.q_block, work.q_begin + C::kTileQ));
  work.head = head % p.num_heads;
  work.batch = head / p.num_heads;
  return work;
}

/// The keys of a q tile without a list.
template <class Element, class C>
__device__ __forceinline__ void visit_range(const Params& params, const Work& work,
                                            Storage<C>& storage, const RowLoader<C>& k,
                                            const RowLoader<C>& v, WarpTile<Element, C>& rows) {
  const KeyRange visible = visible_keys(params.band, work.q_begin, work.q_end);
  const auto load = [&](std::int32_t key, int stage) {
    const auto place_of = [&](int row) { return key + row; };
    k.template load<C::kTileKv>(storage.k[stage], visible.end, place_of);
    v.template load<C::kTileKv>(storage.v[stage], visible.end, place_of);
  };
  load(visible.begin, 0);
  int stage = 0;
  for (std::int32_t key = visible.begin; key < visible.end; key += C::kTileKv) {
    wait_all_copies();
    __syncthreads();  // the tile is there, and everybody is done with the one before
    if (key == visible.begin) rows.begin();
    if (key + C::kTileKv < visible.end) load(key + C::kTileKv, stage ^ 1);
    rows.range_tile(storage.k[stage], storage.v[stage], key);
    stage ^= 1;
  }
}

/// The keys of a q tile's list. The first warp reads it, some tiles ahead.
template <class Element, class C>
__device__ __forceinline__ void visit_list(const Params& params, const Work& work,
                                           Storage<C>& storage, const RowLoader<C>& k,
                                           const RowLoader<C>& v, WarpTile<Element, C>& rows) {
  NoteWriter<C> writer(params, storage.notes);
  const auto write = [&](int first) {
    writer.write(first, visible_keys(params.band, work.q_begin, work.q_end));
  };
  const auto load = [&](int tile, int stage) {
    // All are read before the first copy, behind which the compiler would not look ahead.
    std::int32_t keys[C::kGranules];
#pragma unroll
    for (int g = 0; g < C::kGranules; ++g) keys[g] = storage.notes.granules_of(tile)[g].key;
    const auto place_of = [&](int row) { return keys[row / kGranule] + row % kGranule; };
    const auto end = static_cast<std::uint32_t>(params.band.kv_len);
    k.template load<C::kTileKv>(storage.k[stage], end, place_of);
    v.template load<C::kTileKv>(storage.v[stage], end, place_of);
  };
  if (threadIdx.x < 32) {
    writer.begin(list_range(params.mask, list_number(params.mask, work.batch, work.head,
                                                     work.q_begin / params.q_block)));
    write(0);
  }
  __syncthreads();
  if (!storage.notes[0].exists) return;
  load(0, 0);
  for (int tile = 0, stage = 0;; ++tile, stage ^= 1) {
    wait_all_copies();
    // Before the loads of the tile after the next one.
    if (threadIdx.x < 32 && tile % Notes<C>::kBatch == Notes<C>::kBatch - 1) write(tile + 1);
    __syncthreads();  // the tile is there, and everybody is done with the one before
    if (tile == 0) rows.begin();
    const bool more = storage.notes[tile + 1].exists;
    if (more) load(tile + 1, stage ^ 1);
    rows.list_tile(storage.k[stage], storage.v[stage], storage.notes[tile],
                   storage.notes.granules_of(tile));
    if (!more) break;
  }
}

/// For a negative scale.
template <class C>
__device__ __forceinline__ void negate(Storage<C>& storage) {
  wait_all_copies();
  __syncthreads();
  auto* words = reinterpret_cast<std::uint32_t*>(storage.q);
#pragma unroll 1
  for (int i = threadIdx.x; i < C::kQBytes / 4; i += C::kThreads) words[i] ^= 0x80008000u;
}

/// Fused attention: a CTA for each q tile. Every warp has its own queries; K and V come in tiles
/// through two stages of shared memory. docs/wmma.md has the pipeline.
template <class Element, class C>
__global__ void __launch_bounds__(C::kThreads, C::kCtasPerSm)
    attention_kernel(const __grid_constant__ Params params) {
  extern __shared__ unsigned char memory[];
  auto& storage = *reinterpret_cast<Storage<C>*>(memory);
  const Work work = work_of<C>(params, static_cast<std::int32_t>(blockIdx.x));
  if (work.q_begin >= work.q_end) return;

  const RowLoader<C> q(params.q, work.batch, work.head);
  q.template load<C::kTileQ>(storage.q, work.q_end, [&](int row) { return work.q_begin + row; });
  if (params.negate_q) negate(storage);
  const std::int32_t kv_head = work.head / params.group;
  const RowLoader<C> k(params.k, work.batch, kv_head);
  const RowLoader<C> v(params.v, work.batch, kv_head);
  WarpTile<Element, C> rows(params, work, storage.q);
  if (params.lists) {
    visit_list(params, work, storage, k, v, rows);
  } else {
    visit_range(params, work, storage, k, v, rows);
  }
  wait_all_copies();  // also where no key was seen: a CTA must not end with copies on their way
  // Found once more, which costs less than registers that hold it through the loop.
  rows.store(work_of<C>(params, static_cast<std::int32_t>(blockIdx.x)));
}

}  // namespace sparsek::attn::wmma
