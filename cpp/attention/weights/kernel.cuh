#pragma once

#include "attention/load_rows.cuh"
#include "attention/weights/warp_rows.cuh"

namespace sparsek::attn::weights {

/// Loads Q and walks over a CTA's keys.
template <class Element, class C>
class QTile {
 public:
  __device__ __forceinline__ QTile(const Params& params, const Work& work, Storage<C>& storage)
      : p_(params), work_(work), storage_(storage) {
    const auto at = [&](int pass, int row) { return work_.q_begin + pass + row; };
    load_rows<C, C::kTileQ>(p_.q, rows_of(p_.q, work_.batch, work_.head), storage_.q, work_.q_end,
                            at, [&](int row) { return at(0, row); });
  }

  /// on_seen(KeyTile) for tiles of which some query may see some key, on_unseen(key) for others.
  template <class OnSeen, class OnUnseen>
  __device__ __forceinline__ void walk(std::int32_t begin, std::int32_t end, const OnSeen& on_seen,
                                       const OnUnseen& on_unseen) {
    VisibleBlocks<C> visible(p_, work_, storage_.blocks);
    int stage = 0;
    Seen seen = Seen::none, next_seen = Seen::none;
    const auto find = [&](std::int32_t key, int stage, Seen* seen) {
      for (; key < end; key += C::kTileKv) {
        *seen = visible.ask(key, storage_.entries[stage]);
        if (*seen != Seen::none) break;
        on_unseen(key);
      }
      return key;
    };
    std::int32_t key = find(begin, stage, &seen);
    if (key < end) load_k(key, stage);
    while (key < end) {
      wait_all_copies();
      __syncthreads();  // the tile is there, and everybody is done with the one before
      const std::int32_t next = find(key + C::kTileKv, stage ^ 1, &next_seen);
      if (next < end) load_k(next, stage ^ 1);
      on_seen(KeyTile{storage_.k[stage], key, seen, storage_.entries[stage]});
      stage ^= 1;
      key = next;
      seen = next_seen;
    }
    wait_all_copies();  // of Q, where nothing was seen: a CTA must not end before they have landed
    __syncthreads();    // another walk may follow
  }

 private:
  __device__ __forceinline__ void load_k(std::int32_t key, int stage) {
    const auto at = [&](int pass, int row) { return key + pass + row; };
    load_rows<C, C::kTileKv>(p_.k, rows_of(p_.k, work_.batch, work_.head / p_.group),
                             storage_.k[stage], static_cast<std::uint32_t>(p_.band.kv_len), at,
                             [&](int row) { return at(0, row); });
  }

  const Params& p_;
  const Work& work_;
  Storage<C>& storage_;
};

/// Zeros for all queries and a tile of keys.
template <class Element, class C>
__device__ __forceinline__ void write_zeros(const Params& p, const Work& work, std::int32_t key) {
  const bool vectors = writes_vectors(p, key);
  const int column = key + static_cast<int>(threadIdx.x) % 8 * 8;
  const int count = min(8, p.weights.value_dim - column);
  for (int query = work.q_begin + static_cast<int>(threadIdx.x) / 8; query < work.q_end;
       query += C::kThreads / 8) {
    Element* const to = row_of<Element>(p.weights, work.batch, work.head, query) + column;
    if (vectors) {
      ptx::store_if(count > 0, to, {0, 0, 0, 0});
    } else {
      for (int i = 0; i < count; ++i) to[i] = Element(0);
    }
  }
}

/// A CTA for each q tile and part of the keys: weights by the rows' lse, zeros where nothing is
/// seen, and what the weights add up to.
template <class Element, class C>
__global__ void __launch_bounds__(C::kThreads, C::kCtasPerSm)
    weights_kernel(const __grid_constant__ Params p) {
#ifdef __CUDA_ARCH__  // or the host's pass instantiates all of it for nothing
  extern __shared__ unsigned char memory[];
  auto& storage = *reinterpret_cast<Storage<C>*>(memory);
  const Work work = work_of<C>(p, blockIdx.x, p.num_parts);
  if (work.q_begin >= work.q_end) return;
  QTile<Element, C> tile(p, work, storage);
  WarpRows<Element, C> rows(p, work, storage.q);
  rows.begin_by_lse();
  const std::int32_t begin = work.part * p.keys_in_part;
  tile.walk(
      begin, min(begin + p.keys_in_part, p.weights.value_dim),
      [&](const KeyTile& keys) { rows.write(keys); },
      [&](std::int32_t key) { write_zeros<Element, C>(p, work, key); });
  rows.store_sums();
#endif
}

/// Whether the weights of some query of the tile do not add up to 1.
template <class C>
__device__ __forceinline__ bool is_off(const Params& p, const Work& work) {
  bool off = false;
  for (int tile_row = threadIdx.x; tile_row < work.q_end - work.q_begin; tile_row += C::kThreads) {
    float sum = 0;
    for (int part = 0; part < p.num_parts; ++part) {
      sum += p.sums[part * p.num_rows + work.row(p, tile_row)];
    }
    const float lse = *row_of<float>(p.lse, work.batch, work.head, work.q_begin + tile_row);
    off |= lse != -INFINITY && !(fabsf(sum - 1) <= kSumTolerance);
  }
  return __syncthreads_or(off);
}

/// Scores of thousands and more: an lse in float32 is off by what decides a weight there, and so is
/// the fused kernel's score, whose products are added in another order. Such a q tile's maxima and
/// sums are found once more, by the scores that make the weights.
template <class Element, class C>
__global__ void __launch_bounds__(C::kThreads, 2)
    make_anew_kernel(const __grid_constant__ Params p) {
#ifdef __CUDA_ARCH__
  extern __shared__ unsigned char memory[];
  auto& storage = *reinterpret_cast<Storage<C>*>(memory);
  const Work work = work_of<C>(p, blockIdx.x, 1);
  if (work.q_begin >= work.q_end || !is_off<C>(p, work)) return;
  QTile<Element, C> tile(p, work, storage);
  WarpRows<Element, C> rows(p, work, storage.q);
  rows.begin_anew();
  const auto nothing = [](std::int32_t) {};  // zeros are there
  tile.walk(0, p.weights.value_dim, [&](const KeyTile& keys) { rows.add_up(keys); }, nothing);
  rows.finish_sums();
  tile.walk(0, p.weights.value_dim, [&](const KeyTile& keys) { rows.write(keys); }, nothing);
#endif
}

}  // namespace sparsek::attn::weights
