#pragma once

#include <cuda_runtime_api.h>

#include "bsr_gemm/sm90/config.h"
#include "bsr_gemm/sm90/few_params.h"
#include "bsr_gemm/sm90/params.h"
#include "sparsek/types.h"

namespace sparsek::bsr::sm90 {

/// What chooses a kernel.
struct KernelKey {
  DType dtype = DType::float16;
  Major sparse = Major::k;
  Major dense = Major::k;
  int inner = 64;
  int tile_cols = 256;
  int stages = 4;
  int ctas = 0;  // that take many tiles of two sparse operands each; 0: one for each tile
};

/// One function for each `inner`, each in a file of its own.
void launch_16(const KernelKey& key, const Params& params, int num_sms, cudaStream_t stream);
void launch_32(const KernelKey& key, const Params& params, int num_sms, cudaStream_t stream);
void launch_64(const KernelKey& key, const Params& params, int num_sms, cudaStream_t stream);

/// The same where CTAs may share the tiles of a long row.
void launch_long_16(const KernelKey& key, const Params& params, int num_sms, cudaStream_t stream);
void launch_long_32(const KernelKey& key, const Params& params, int num_sms, cudaStream_t stream);
void launch_long_64(const KernelKey& key, const Params& params, int num_sms, cudaStream_t stream);

/// Few columns, all of which are a tile.
void launch_few_16(const KernelKey& key, const FewParams& params, int num_sms, cudaStream_t stream);
void launch_few_32(const KernelKey& key, const FewParams& params, int num_sms, cudaStream_t stream);
void launch_few_64(const KernelKey& key, const FewParams& params, int num_sms, cudaStream_t stream);
/// Squares of 64, 128 columns for a warp group.
void launch_few_128_cols(const KernelKey& key, const FewParams& params, int num_sms,
                         cudaStream_t stream);

/// Two sparse operands, `key.dense` being the major of the second.
void launch_pairs_float16(const KernelKey& key, const Params& params, cudaStream_t stream);
void launch_pairs_bfloat16(const KernelKey& key, const Params& params, cudaStream_t stream);

/// Sets Params::next_tile to the first tile that no CTA begins with.
void start_tiles(std::int32_t* next_tile, int ctas, cudaStream_t stream);

/// Sampled: `key.sparse` is the major of the operand along the pattern's rows.
void launch_sampled_float16(const KernelKey& key, const SampledParams& params, int ctas,
                            cudaStream_t stream);
void launch_sampled_bfloat16(const KernelKey& key, const SampledParams& params, int ctas,
                             cudaStream_t stream);

}  // namespace sparsek::bsr::sm90
