#pragma once

#include <algorithm>

#include "bsr_gemm/sm90/kernel.cuh"
#include "bsr_gemm/sm90/launch.h"
#include "bsr_gemm/sm90/pair_kernel.cuh"
#include "bsr_gemm/sm90/tile_choice.h"
#include "core/cuda_check.h"
#include "primitives/launch.cuh"

namespace sparsek::bsr::sm90 {

/// Of a launch whose CTAs share tiles among so many.
template <class C>
constexpr int smem_bytes_of_parts(int parts) {
  if constexpr (C::kParts) return smem_bytes<C>() + Parts<C>::bytes_received(parts);
  return smem_bytes<C>();
}

template <class C>
void launch_config(const Params& params, int num_sms, cudaStream_t stream) {
  cuda_check(cudaFuncSetAttribute(product_kernel<C>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  smem_bytes_of_parts<C>(C::kMostParts)),
             "bsr_gemm: sm90");
  if constexpr (C::kOneTile) {  // else the L1 cache may take what the second CTA needs
    cuda_check(
        cudaFuncSetAttribute(product_kernel<C>, cudaFuncAttributePreferredSharedMemoryCarveout,
                             cudaSharedmemCarveoutMaxShared),
        "bsr_gemm: sm90");
  }
  // A schedule names all workers, even where they have fewer tiles.
  const int scheduled = params.lists.schedule.workers;
  const int workers = scheduled > 0 ? scheduled : std::min(num_sms, params.dealt_tiles);
  const unsigned split = 1u << params.log2_split;
  launch_kernel("bsr_gemm: sm90", product_kernel<C>,
                C::kOneTile ? params.num_tiles * split : workers, C::kThreads,
                smem_bytes_of_parts<C>(split), stream, {C::kEarlyStart, split}, params);
}

template <class Element, Major kSparse, Major kDense, int kInner, bool kLongRows>
void launch_tile(const KernelKey& key, const Params& params, int num_sms, cudaStream_t stream) {
  if constexpr (kLongRows) {
    launch_config<Config<Element, kSparse, kDense, kInner, 256, kStages256, Kind::long_rows>>(
        params, num_sms, stream);
  } else if (key.tile_cols == 128) {
    launch_config<Config<Element, kSparse, kDense, kInner, 128, kStages128>>(params, num_sms,
                                                                             stream);
  } else if (key.tile_cols == 64 && key.stages == kStages64) {
    launch_config<Config<Element, kSparse, kDense, kInner, 64, kStages64>>(params, num_sms, stream);
  } else if (key.tile_cols == 64) {
    launch_config<Config<Element, kSparse, kDense, kInner, 64, kStages64OfTwo>>(params, num_sms,
                                                                                stream);
  } else {
    launch_config<Config<Element, kSparse, kDense, kInner, 256, kStages256>>(params, num_sms,
                                                                             stream);
  }
}

template <class Element, int kInner, bool kLongRows>
void launch_majors(const KernelKey& key, const Params& params, int num_sms, cudaStream_t stream) {
  constexpr Major k = Major::k, free = Major::free;
  const bool dense_k = key.dense == Major::k;
  const auto launch = key.sparse == Major::k
                          ? (dense_k ? launch_tile<Element, k, k, kInner, kLongRows>
                                     : launch_tile<Element, k, free, kInner, kLongRows>)
                          : (dense_k ? launch_tile<Element, free, k, kInner, kLongRows>
                                     : launch_tile<Element, free, free, kInner, kLongRows>);
  launch(key, params, num_sms, stream);
}

template <int kInner, bool kLongRows>
void launch_inner(const KernelKey& key, const Params& params, int num_sms, cudaStream_t stream) {
  const auto launch = key.dtype == DType::float16
                          ? launch_majors<cutlass::half_t, kInner, kLongRows>
                          : launch_majors<cutlass::bfloat16_t, kInner, kLongRows>;
  launch(key, params, num_sms, stream);
}

template <class C>
void launch_many_pairs(const Params& params, int ctas, cudaStream_t stream) {
  cuda_check(cudaFuncSetAttribute(pair_kernel<C>, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                  smem_bytes<C>()),
             "bsr_gemm: sm90");
  cuda_check(cudaFuncSetAttribute(pair_kernel<C>, cudaFuncAttributePreferredSharedMemoryCarveout,
                                  cudaSharedmemCarveoutMaxShared),
             "bsr_gemm: sm90");
  launch_kernel("bsr_gemm: sm90", pair_kernel<C>, ctas, C::kThreads, smem_bytes<C>(), stream,
                {params.next_tile != nullptr}, params);
}

template <class Element, Major kRows, Major kCols>
void launch_pairs_majors(const KernelKey& key, const Params& params, cudaStream_t stream) {
  if (key.ctas > 0) {
    return launch_many_pairs<Config<Element, kRows, kCols, 64, 128, 3, Kind::both_sparse>>(
        params, key.ctas, stream);
  }
  const auto launch =
      key.inner == 64 ? launch_config<Config<Element, kRows, kCols, 64, 128, 3, Kind::both_sparse>>
      : key.inner == 32
          ? launch_config<Config<Element, kRows, kCols, 32, 128, 3, Kind::both_sparse>>
          : launch_config<Config<Element, kRows, kCols, 16, 128, 3, Kind::both_sparse>>;
  launch(params, 0, stream);
}

/// A row operand that is contiguous along its rows comes with a column operand that is contiguous
/// along its columns: the other way round, the product's transpose is computed.
template <class Element>
void launch_pairs_element(const KernelKey& key, const Params& params, cudaStream_t stream) {
  if (key.dense == Major::k) {
    launch_pairs_majors<Element, Major::k, Major::k>(key, params, stream);
  } else if (key.sparse == Major::k) {
    launch_pairs_majors<Element, Major::k, Major::free>(key, params, stream);
  } else {
    launch_pairs_majors<Element, Major::free, Major::free>(key, params, stream);
  }
}

}  // namespace sparsek::bsr::sm90
