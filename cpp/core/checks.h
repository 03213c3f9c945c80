#pragma once

#include "sparsek/tensor.h"

namespace sparsek {

/// Rank, known floating dtype, non-negative shape, data where there are elements.
void check_tensor(const char* name, const TensorView& tensor, int rank);

/// Last axis contiguous (or at most one element long).
void check_contiguous_last_axis(const char* name, const TensorView& tensor);

/// An output: each element has memory of its own (no axis of stride 0).
void check_own_elements(const char* name, const TensorView& tensor);

/// An output, where it is written: not in the memory of an input, as far as first and last elements
/// show. (Arguments that are only asked about may have made-up addresses.)
void check_apart(const char* name, const TensorView& output, const char* input_name,
                 const TensorView& input);

void check_same_dtype(const char* name, const TensorView& tensor, const char* expected_name,
                      DType expected);
void check_same_device(const char* name, Device device, const char* expected_name, Device expected);

/// One axis has as many elements as that of another argument: "k: expected batch 2 (that of q), got
/// 3".
void check_extent(const char* name, const TensorView& tensor, int axis, const char* axis_name,
                  std::int64_t expected, const char* expected_name);

/// The largest power of two, at most 16, that divides the address and every stride (but the last
/// axis') in bytes; 0 when a stride is negative.
int row_alignment(const TensorView& tensor);

}  // namespace sparsek
