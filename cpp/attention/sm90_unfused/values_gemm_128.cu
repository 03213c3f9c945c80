#include "attention/sm90_unfused/values_gemm.cuh"

namespace sparsek::attn::sm90_unfused {

void values_gemm_128(DType dtype, const Chunk& chunk, std::int64_t value_dim,
                     const Matrices& weights, const Matrices& v, const Matrices& out,
                     cudaStream_t stream) {
  values_gemm<128>(dtype, chunk, value_dim, weights, v, out, stream);
}

}  // namespace sparsek::attn::sm90_unfused
