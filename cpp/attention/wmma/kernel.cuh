#pragma once

#include "attention/load_rows.cuh"
#include "attention/wmma/storage.cuh"
#include "attention/wmma/warp_tile.cuh"

namespace sparsek::attn::wmma {

/// The keys of a q tile without a list.
template <class Element, class C>
__device__ __forceinline__ void visit_range(const Params& params, Storage<C>& storage,
                                            WarpTile<Element, C>& rows) {
  const KeyRange visible = visible_keys(params.band, storage.work.q_begin, storage.work.q_end);
  const auto load = [&](std::int32_t key, int stage) {
    const auto place_of = [&](int pass, int row) { return key + pass + row; };
    const auto place_of_any = [&](int row) { return key + row; };
    load_rows<C, C::kTileKv>(params.k, storage.k_rows, storage.k[stage], visible.end, place_of,
                             place_of_any);
    load_rows<C, C::kTileKv>(params.v, storage.v_rows, storage.v[stage], visible.end, place_of,
                             place_of_any);
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
__device__ __forceinline__ void visit_list(const Params& params, Storage<C>& storage,
                                           WarpTile<Element, C>& rows) {
  NoteWriter<C> writer(params, storage.notes);
  const auto write = [&](int first) {
    writer.write(first, visible_keys(params.band, storage.work.q_begin, storage.work.q_end));
  };
  // The keys of all granules are read before the first copy, behind which the compiler would not
  // look ahead.
  struct Keys {
    std::int32_t at[C::kGranules];
  };
  const auto keys_of = [&](int tile) {
    Keys keys;
#pragma unroll
    for (int g = 0; g < C::kGranules; ++g) keys.at[g] = storage.notes.granules_of(tile)[g].key;
    return keys;
  };
  const auto load = [&](int tile, const Keys& keys, int stage) {
    const auto place_of = [&](int pass, int row) {
      return keys.at[pass / kGranule] + (pass % kGranule + row);
    };
    const auto place_of_any = [&](int row) {
      return storage.notes.granules_of(tile)[row / kGranule].key + row % kGranule;
    };
    const auto end = static_cast<std::uint32_t>(params.band.kv_len);
    load_rows<C, C::kTileKv>(params.k, storage.k_rows, storage.k[stage], end, place_of,
                             place_of_any);
    load_rows<C, C::kTileKv>(params.v, storage.v_rows, storage.v[stage], end, place_of,
                             place_of_any);
  };
  constexpr int kBatch = Notes<C>::kBatch;
  static_assert(kBatch >= 2);
  if (threadIdx.x < 32) {
    const Work& work = storage.work;
    writer.begin(
        list_range(params.mask, list_number(params.mask, work.batch, work.head, params.num_heads,
                                            work.q_begin / params.q_block)));
    write(0);
  }
  __syncthreads();
  if (!storage.notes[0].exists) return;
  load(0, keys_of(0), 0);
  for (int tile = 0, stage = 0;; ++tile, stage ^= 1) {
    const TileNote note = storage.notes[tile];
    const bool more = storage.notes[tile + 1].exists;
    const Keys next_keys = keys_of(tile + 1);
    // A barrier before the first of the batch is looked at.
    if (threadIdx.x < 32 && tile % kBatch == kBatch - 2) write(tile + 2);
    wait_all_copies();
    __syncthreads();  // the tile is there, and everybody is done with the one before
    if (tile == 0) rows.begin();
    if (more) load(tile + 1, next_keys, stage ^ 1);
    rows.list_tile(storage.k[stage], storage.v[stage], note,
                   [&](int g) { return storage.notes.granules_of(tile)[g]; });
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
#ifdef __CUDA_ARCH__  // or the host's pass instantiates all of it for nothing
  extern __shared__ unsigned char memory[];
  auto& storage = *reinterpret_cast<Storage<C>*>(memory);
  const Work work = work_of<C>(params, static_cast<std::int32_t>(blockIdx.x));
  if (work.q_begin >= work.q_end) return;

  if (threadIdx.x == 0) {
    storage.k_rows = rows_of(params.k, work.batch, work.head / params.group);
    storage.v_rows = rows_of(params.v, work.batch, work.head / params.group);
    storage.work = work;
  }
  const auto query_of = [&](int pass, int row) { return work.q_begin + pass + row; };
  const auto query_of_any = [&](int row) { return work.q_begin + row; };
  load_rows<C, C::kTileQ>(params.q, rows_of(params.q, work.batch, work.head), storage.q, work.q_end,
                          query_of, query_of_any);
  if (params.negate_q) negate(storage);
  __syncthreads();
  WarpTile<Element, C> rows(params, storage.work, storage.q);
  if (params.lists) {
    visit_list(params, storage, rows);
  } else {
    visit_range(params, storage, rows);
  }
  wait_all_copies();  // also where no key was seen: a CTA must not end with copies on their way
  rows.store();
#endif
}

}  // namespace sparsek::attn::wmma
