#include "primitives/tensor_map.h"

#include <cuda_runtime_api.h>

#include "core/cuda_check.h"

namespace sparsek {
namespace {

using Encode = decltype(&cuTensorMapEncodeTiled);

/// Asked of the runtime, so that the library loads where there is no driver.
Encode find_encode() {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
  cuda_check(cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function, 12000,
                                              cudaEnableDefault, &found),
             "cudaGetDriverEntryPointByVersion");
  require(found == cudaDriverEntryPointSuccess && function != nullptr, ErrorKind::cuda,
          "cuTensorMapEncodeTiled is not in this driver, expected one for CUDA 12.0 or later");
  return reinterpret_cast<Encode>(function);
}

}  // namespace

CUtensorMap make_tensor_map(const char* name, const TensorMapSpec& spec) {
  static const Encode encode = find_encode();
  constexpr int kRank = 4;
  cuuint64_t shape[kRank];
  cuuint64_t stride_bytes[kRank - 1];
  for (int axis = 0; axis < kRank; ++axis) {
    shape[axis] = static_cast<cuuint64_t>(spec.shape[axis]);
    // A multiple of 16 is asked for even where the axis has one element and any stride will do.
    if (axis > 0) {
      stride_bytes[axis - 1] =
          spec.shape[axis] > 1 ? static_cast<cuuint64_t>(spec.stride[axis]) * 2 : 16;
    }
  }
  const cuuint32_t box[kRank] = {static_cast<cuuint32_t>(spec.box_columns),
                                 static_cast<cuuint32_t>(spec.box_rows), 1, 1};
  const cuuint32_t element_strides[kRank] = {1, 1, 1, 1};
  CUtensorMap map;
  const CUresult result = encode(
      &map, spec.bfloat16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16 : CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
      kRank, const_cast<void*>(spec.data), shape, stride_bytes, box, element_strides,
      CU_TENSOR_MAP_INTERLEAVE_NONE,
      spec.box_columns == 64 ? CU_TENSOR_MAP_SWIZZLE_128B : CU_TENSOR_MAP_SWIZZLE_64B,
      CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  require(result == CUDA_SUCCESS, ErrorKind::cuda, name, ": cuTensorMapEncodeTiled returned ",
          static_cast<int>(result));
  return map;
}

}  // namespace sparsek
