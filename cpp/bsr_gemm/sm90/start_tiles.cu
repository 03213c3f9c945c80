#include "bsr_gemm/sm90/launch.h"
#include "primitives/launch.cuh"
#include "primitives/ptx.cuh"

namespace sparsek::bsr::sm90 {
namespace {

__global__ void start_kernel(std::int32_t* next_tile, std::int32_t first) {
  ptx::griddepcontrol_launch_dependents();
  *next_tile = first;
}

}  // namespace

void start_tiles(std::int32_t* next_tile, int ctas, cudaStream_t stream) {
  // Not before the kernel ahead has ended: the product does not wait for that by itself.
  launch_kernel("bsr_gemm: sm90", start_kernel, 1, 1, 0, stream, {}, next_tile, ctas);
}

}  // namespace sparsek::bsr::sm90
