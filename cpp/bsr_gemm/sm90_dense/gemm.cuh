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

#include "bsr_gemm/sm90_dense/kernels.h"
#include "primitives/cutlass_gemm.cuh"

namespace sparsek::bsr::sm90_dense {

using cute::_1;
using cute::_2;
using cute::Int;

// (row, k or column, batch); b is seen as its transpose (column, k).
using RowMajor = cute::Stride<std::int64_t, _1, std::int64_t>;
using ColMajor = cute::Stride<_1, std::int64_t, std::int64_t>;

/// Persistent: two warp groups share a tile of 128x256, and two CTAs the columns' operand.
struct LargeConfig {
  using Tile = cute::Shape<Int<128>, Int<256>, Int<64>>;
  using Cluster = cute::Shape<_2, _1, _1>;
  using Schedule = cutlass::gemm::KernelTmaWarpSpecializedCooperative;
  using EpilogueSchedule = cutlass::epilogue::TmaWarpSpecializedCooperative;
};

struct SmallConfig {
  using Tile = cute::Shape<Int<64>, Int<128>, Int<64>>;
  using Cluster = cute::Shape<_1, _1, _1>;
  using Schedule = cutlass::gemm::KernelTmaWarpSpecialized;
  using EpilogueSchedule = cutlass::epilogue::TmaWarpSpecialized;
};

template <class Element, class StrideA, class StrideB, class Config>
struct DenseGemm {
  static constexpr int kAlignment = 8;  // elements in 16 bytes, what TMA asks of every row
  using TileShape = typename Config::Tile;

  using Epilogue = typename cutlass::epilogue::collective::CollectiveBuilder<
      cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, TileShape, typename Config::Cluster,
      cutlass::epilogue::collective::EpilogueTileAuto, float, float, Element, RowMajor, kAlignment,
      Element, RowMajor, kAlignment, typename Config::EpilogueSchedule>::CollectiveOp;

  using Mainloop = typename cutlass::gemm::collective::CollectiveBuilder<
      cutlass::arch::Sm90, cutlass::arch::OpClassTensorOp, Element, StrideA, kAlignment, Element,
      StrideB, kAlignment, float, TileShape, typename Config::Cluster,
      cutlass::gemm::collective::StageCountAutoCarveout<static_cast<int>(
          sizeof(typename Epilogue::SharedStorage))>,
      typename Config::Schedule>::CollectiveOp;

  using Kernel =
      cutlass::gemm::kernel::GemmUniversal<cute::Shape<int, int, int, int>, Mainloop, Epilogue>;
};

template <class Stride>
Stride stride_of(std::int64_t stride) {
  if constexpr (std::is_same_v<Stride, RowMajor>) {
    return {stride, {}, 0};
  } else {
    return {{}, stride, 0};
  }
}

template <class Element, class StrideA, class StrideB, class Config>
void run_config(const Gemm& g, cudaStream_t stream) {
  using Kernel = typename DenseGemm<Element, StrideA, StrideB, Config>::Kernel;
  typename Kernel::Arguments args{
      cutlass::gemm::GemmUniversalMode::kGemm,
      {g.m, g.n, g.k, 1},
      {static_cast<const Element*>(g.a.data), stride_of<StrideA>(g.a.stride),
       static_cast<const Element*>(g.b.data), stride_of<StrideB>(g.b.stride)},
      {{g.alpha, g.beta},
       static_cast<const Element*>(g.c.data),
       stride_of<RowMajor>(g.c.stride),
       static_cast<Element*>(g.out.data),
       stride_of<RowMajor>(g.out.stride)}};
  args.hw_info.sm_count = g.num_sms;
  if constexpr (std::is_same_v<Config, LargeConfig>) args.scheduler.max_swizzle_size = 4;
  launch_gemm<Kernel>("bsr_gemm: sm90_dense", Kernel::to_underlying_arguments(args, nullptr),
                      stream);
}

template <class Element, class StrideA, class StrideB>
void run_tile(const Gemm& g, cudaStream_t stream) {
  return g.tile == Tile::large ? run_config<Element, StrideA, StrideB, LargeConfig>(g, stream)
                               : run_config<Element, StrideA, StrideB, SmallConfig>(g, stream);
}

template <class Element>
void run_gemm(const Gemm& g, cudaStream_t stream) {
  if (g.a.contiguous_axis == 1) {
    return g.b.contiguous_axis == 0 ? run_tile<Element, RowMajor, RowMajor>(g, stream)
                                    : run_tile<Element, RowMajor, ColMajor>(g, stream);
  }
  return g.b.contiguous_axis == 0 ? run_tile<Element, ColMajor, RowMajor>(g, stream)
                                  : run_tile<Element, ColMajor, ColMajor>(g, stream);
}

}  // namespace sparsek::bsr::sm90_dense
