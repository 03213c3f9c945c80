#pragma once

// clang-format off
#include "primitives/driver_version.h"
// clang-format on

#include <cutlass/cutlass.h>

#include <cute/tensor.hpp>
#include <cutlass/epilogue/collective/collective_builder.hpp>
#include <cutlass/epilogue/dispatch_policy.hpp>
#include <cutlass/gemm/collective/collective_builder.hpp>
#include <cutlass/gemm/dispatch_policy.hpp>
#include <cutlass/gemm/kernel/gemm_universal.hpp>

#include "attention/sm90_unfused/config.h"
#include "attention/sm90_unfused/kernels.h"
#include "primitives/cutlass_gemm.cuh"

namespace sparsek::attn::sm90_unfused {

using cute::_0;
using cute::_1;

// The batch mode of both GEMMs: (query heads of a kv head, kv heads, batches). The zero stride lets
// the query heads of one kv head read the same k and v.
using Batches = cute::Shape<int, int, int>;
using BatchStride = cute::Stride<std::int64_t, std::int64_t, std::int64_t>;
using SharedBatchStride = cute::Stride<_0, std::int64_t, std::int64_t>;
using ProblemShape = cute::Shape<int, int, int, Batches>;

using RowMajor = cute::Stride<std::int64_t, _1, BatchStride>;              // (row, column, batch)
using SharedRowMajor = cute::Stride<std::int64_t, _1, SharedBatchStride>;  // k as (key, head_dim)
using SharedColMajor = cute::Stride<_1, std::int64_t, SharedBatchStride>;  // v as (value dim, key)

/// Q K^T: one k tile or a few, and a large output. Ping-pong, persistent: one warp group stores its
/// tile while the other multiplies. docs/sm90_unfused.md has the schedules that were measured.
struct ScoresConfig {
  using Tile = cute::Shape<cute::Int<kTileQ>, cute::Int<kTileScoresN>, cute::Int<kTileK>>;
  using EpilogueTile = cute::Shape<cute::Int<kTileQ>, cute::Int<kTileScoresN / 2>>;
  using Schedule = cutlass::gemm::KernelTmaWarpSpecializedPingpong;
  static constexpr int kStages = kScoresStages;
};

/// P V: a long k, and few tiles: as many CTAs on an SM as fit.
template <int kTileN>
struct ValuesConfig {
  using Tile = cute::Shape<cute::Int<kTileQ>, cute::Int<kTileN>, cute::Int<kTileK>>;
  using EpilogueTile = cutlass::epilogue::collective::EpilogueTileAuto;
  using Schedule = cutlass::gemm::KernelTmaWarpSpecialized;
  static constexpr int kStages = kValuesStages;
};

/// D = alpha * A B^T over the batch mode, fp32 accumulate.
template <class Element, class StrideB, class ElementD, class Config>
struct Gemm {
  static constexpr int kAlignment = 8;  // elements in 16 bytes, what TMA asks of every row
  using TileShape = typename Config::Tile;
  using ClusterShape = cute::Shape<_1, _1, _1>;

  using Epilogue = typename cutlass::epilogue::collective::CollectiveBuilder<
      cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, TileShape, ClusterShape,
      typename Config::EpilogueTile, float, float, void, RowMajor, kAlignment, ElementD, RowMajor,
      kAlignment, cutlass::epilogue::TmaWarpSpecialized>::CollectiveOp;

  using Mainloop = typename cutlass::gemm::collective::CollectiveBuilder<
      cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, Element, RowMajor, kAlignment, Element,
      StrideB, kAlignment, float, TileShape, ClusterShape,
      cutlass::gemm::collective::StageCount<Config::kStages>,
      typename Config::Schedule>::CollectiveOp;

  using Kernel = cutlass::gemm::kernel::GemmUniversal<ProblemShape, Mainloop, Epilogue>;
};

/// TMA wants a multiple of 16 bytes even for the stride of an axis with one element, which callers
/// fill with anything.
inline std::int64_t tma_stride(std::int64_t extent, std::int64_t stride) {
  return extent > 1 ? stride : 8;
}

inline RowMajor row_major(const Matrices& a, const Chunk& chunk, std::int64_t rows) {
  const int group = chunk.num_heads / chunk.num_kv_heads;
  return {tma_stride(rows, a.row_stride),
          {},
          {tma_stride(group, a.head_stride), tma_stride(chunk.num_kv_heads, group * a.head_stride),
           tma_stride(chunk.num_batches, a.batch_stride)}};
}

inline SharedBatchStride shared_batches(const Matrices& b, const Chunk& chunk) {
  return {{},
          tma_stride(chunk.num_kv_heads, b.head_stride),
          tma_stride(chunk.num_batches, b.batch_stride)};
}

template <class GemmType, class Element, class ElementD, class StrideB>
void run_gemm(const char* name, const Chunk& chunk, int n, int k, float alpha, const Matrices& a,
              const Matrices& b, const StrideB& stride_b, const Matrices& d, cudaStream_t stream) {
  using Kernel = typename GemmType::Kernel;
  const int rows = static_cast<int>(chunk.num_rows);
  const Batches batches{chunk.num_heads / chunk.num_kv_heads, chunk.num_kv_heads,
                        static_cast<int>(chunk.num_batches)};
  typename Kernel::Arguments args{
      cutlass::gemm::GemmUniversalMode::kBatched,
      {rows, n, k, batches},
      {static_cast<const Element*>(a.data), row_major(a, chunk, rows),
       static_cast<const Element*>(b.data), stride_b},
      {{alpha, 0.0f}, nullptr, {}, static_cast<ElementD*>(d.data), row_major(d, chunk, rows)}};
  args.hw_info.sm_count = chunk.num_sms;
  launch_gemm<Kernel>(name, Kernel::to_underlying_arguments(args, nullptr), stream);
}

}  // namespace sparsek::attn::sm90_unfused
