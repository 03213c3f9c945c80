#pragma once

#include <cute/tensor.hpp>
#include <type_traits>

#include "attention/block_lists.h"
#include "attention/kv_visits.h"
#include "attention/sm90/params.h"
#include "attention/sm90/storage.cuh"

namespace sparsek::attn::sm90 {

/// What a thread's two rows of a q tile see of a tile of keys: rows `row` and `row` + 8, and of
/// each 8 columns two (mainloop.cuh).
template <class C>
class RowMask {
 public:
  __device__ __forceinline__ RowMask(const Params& params, const Work& work, int row)
      : params_(params), q_begin_(work.q_begin), row_(row) {}

  /// -inf where the query may not see the key.
  template <class Note, class Scores>
  __device__ __forceinline__ void erase(const Note& note, Scores& scores) const {
    const int pair = static_cast<int>(threadIdx.x) % 4 * 2;
    if constexpr (C::kLists) {
      CUTE_UNROLL
      for (int g = 0; g < C::kGranules; ++g) {
        const Granule granule = read(note.granules[g]);
        const int key = granule.key + pair;
        CUTE_UNROLL
        for (int r = 0; r < 2; ++r) {
          const int query = query_of_row(r);
          const KeyRange seen = visible_keys(params_.band, query, query + 1);
          // Bits, since registers spill where both bounds are tested for each score.
          const std::uint32_t bits =
              lowest_bits(seen.end - key) & ~lowest_bits(seen.begin - key) &
              visible_bits(granule, C::kPacks ? query : row_ + 8 * r) >> pair;
          erase_unless<kGranule>(scores, 8 * g + 2 * r,
                                 [&](int column) { return bits >> column & 1; });
          // Nor would both rows' queries, where these are computed.
          if constexpr (C::kPacks) asm volatile("" ::: "memory");
        }
        asm volatile("" ::: "memory");  // all notes in registers at once would not fit
      }
    } else {
      const int key = key_of(note.granules[0]) + pair;
      CUTE_UNROLL
      for (int r = 0; r < 2; ++r) {
        const int query = query_of_row(r);
        const KeyRange seen = visible_keys(params_.band, query, query + 1);
        // For ptxas, which makes predicates of the bits of a word, those of the columns 8 * j + c
        // in [begin, end): two thirds of the instructions that it takes to compare each.
        const int begin = seen.begin - key, end = seen.end - key;
        CUTE_UNROLL
        for (int c = 0; c < 2; ++c) {
          const std::uint32_t bits =
              lowest_bits((end - c + 7) >> 3) & ~lowest_bits((begin - c + 7) >> 3);
          CUTE_UNROLL
          for (int j = 0; j < C::kTileKv / 8; ++j) {
            if (!(bits >> j & 1)) scores(4 * j + 2 * r + c) = -INFINITY;
          }
        }
      }
    }
  }

 private:
  /// Of a row of kColumns scores, from element `first` of the fragment on, makes those -inf whose
  /// column is not kept.
  template <int kColumns, class Scores, class Keeps>
  __device__ __forceinline__ static void erase_unless(Scores& scores, int first,
                                                      const Keeps& keeps) {
    CUTE_UNROLL
    for (int column = 0; column < kColumns; column += 8) {
      CUTE_UNROLL
      for (int c = 0; c < 2; ++c) {
        if (!keeps(column + c)) scores(first + column / 2 + c) = -INFINITY;
      }
    }
  }

  // Lane 0 reads a note (storage.cuh).
  __device__ __forceinline__ static bool reads() { return threadIdx.x % 32 == 0; }
  __device__ __forceinline__ static Granule read(const Granule& from) {
    Granule granule{};
    if (reads()) granule = from;
    return {__shfl_sync(~0u, granule.key, 0), __shfl_sync(~0u, granule.shift, 0),
            __shfl_sync(~0u, granule.word, 0)};
  }
  __device__ __forceinline__ static std::int32_t key_of(const Granule& granule) {
    return __shfl_sync(~0u, reads() ? granule.key : 0, 0);
  }

  __device__ __forceinline__ int query_of_row(int r) const {
    return query_of<C>(params_, q_begin_ + row_ + 8 * r);
  }

  __device__ __forceinline__ std::uint32_t visible_bits(const Granule& granule,
                                                        int tile_row) const {
    if (granule.word < 0) return ~0u;
    const std::uint32_t* word =
        params_.mask.bitmaps + granule.word + tile_row * bitmap_words(params_.mask);
    std::uint32_t bits;
    asm volatile("ld.global.nc.u32 %0, [%1];" : "=r"(bits) : "l"(word));
    return bits >> granule.shift;
  }

  const Params& params_;
  // Read anew from shared memory for each granule: a register for it costs lists 1 %. Two teams'
  // kernel, though, has none for the address.
  std::conditional_t<C::kTeams == 2, std::int32_t, const std::int32_t&> q_begin_;
  int row_;
};

}  // namespace sparsek::attn::sm90
