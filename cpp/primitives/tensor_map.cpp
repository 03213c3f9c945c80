#include "primitives/tensor_map.h"

#include "core/driver.h"

namespace sparsek {

CUtensorMap make_tensor_map(const char* name, DType dtype, const void* data,
                            std::initializer_list<MapAxis> axes) {
  static const auto encode =
      driver_function<decltype(&cuTensorMapEncodeTiled)>("cuTensorMapEncodeTiled");
  constexpr int kMaxAxes = 5;
  cuuint64_t extents[kMaxAxes], stride_bytes[kMaxAxes];
  cuuint32_t boxes[kMaxAxes], element_strides[kMaxAxes];
  int rank = 0;
  for (const MapAxis& axis : axes) {
    extents[rank] = static_cast<cuuint64_t>(axis.extent);
    boxes[rank] = static_cast<cuuint32_t>(axis.box);
    element_strides[rank] = 1;
    // A multiple of 16 bytes is asked for even where the axis has one element, whose stride callers
    // fill with anything.
    if (rank > 0) {
      stride_bytes[rank - 1] = axis.extent > 1 ? static_cast<cuuint64_t>(axis.stride) * 2 : 16;
    }
    ++rank;
  }
  const CUtensorMapSwizzle swizzle = boxes[0] == 64   ? CU_TENSOR_MAP_SWIZZLE_128B
                                     : boxes[0] == 32 ? CU_TENSOR_MAP_SWIZZLE_64B
                                                      : CU_TENSOR_MAP_SWIZZLE_32B;
  CUtensorMap map;
  driver_check(encode(&map,
                      dtype == DType::bfloat16 ? CU_TENSOR_MAP_DATA_TYPE_BFLOAT16
                                               : CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
                      static_cast<cuuint32_t>(rank), const_cast<void*>(data), extents, stride_bytes,
                      boxes, element_strides, CU_TENSOR_MAP_INTERLEAVE_NONE, swizzle,
                      CU_TENSOR_MAP_L2_PROMOTION_L2_128B,  // with 256 bytes memory gives 5 % less
                      CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE),
               name, ": cuTensorMapEncodeTiled");
  return map;
}

}  // namespace sparsek
