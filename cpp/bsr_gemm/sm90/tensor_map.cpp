#include "bsr_gemm/sm90/tensor_map.h"

#include "core/cuda_check.h"

namespace sparsek::bsr::sm90 {
namespace {

/// Asked of the runtime, so that the library loads on machines without a driver.
decltype(&cuTensorMapEncodeTiled) encode_function() {
  static void* const function = [] {
    void* found = nullptr;
    cudaDriverEntryPointQueryResult result{};
    cuda_check(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000,
                                                cudaEnableDefault, &result),
               "cuTensorMapEncodeTiled");
    require(result == cudaDriverEntryPointSuccess, ErrorKind::cuda,
            "cuTensorMapEncodeTiled: not in this driver");
    return found;
  }();
  return reinterpret_cast<decltype(&cuTensorMapEncodeTiled)>(function);
}

}  // namespace

CUtensorMap make_tensor_map(DType dtype, const void* data, std::initializer_list<MapAxis> axes) {
  constexpr int kMaxAxes = 3;
  cuuint64_t extents[kMaxAxes], strides[kMaxAxes];
  cuuint32_t boxes[kMaxAxes], steps[kMaxAxes];
  int rank = 0;
  for (const MapAxis& axis : axes) {
    extents[rank] = static_cast<cuuint64_t>(axis.extent);
    boxes[rank] = static_cast<cuuint32_t>(axis.box);
    steps[rank] = 1;
    // TMA wants a multiple of 16 bytes even for the stride of an axis with one element, which
    // callers fill with anything.
    if (rank > 0) strides[rank - 1] = axis.extent > 1 ? 2 * axis.stride : 16;
    ++rank;
  }
  const CUtensorMapSwizzle swizzle = boxes[0] == 64   ? CU_TENSOR_MAP_SWIZZLE_128B
                                     : boxes[0] == 32 ? CU_TENSOR_MAP_SWIZZLE_64B
                                                      : CU_TENSOR_MAP_SWIZZLE_32B;
  CUtensorMap map;
  const CUresult status = encode_function()(
      &map,
      dtype == DType::float16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
      static_cast<cuuint32_t>(rank), const_cast<void*>(data), extents, strides, boxes, steps,
      CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle, CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
      CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  require(status == CUDA_SUCCESS, ErrorKind::cuda, "cuTensorMapEncodeTiled: error ",
          static_cast<int>(status));
  return map;
}

}  // namespace sparsek::bsr::sm90
