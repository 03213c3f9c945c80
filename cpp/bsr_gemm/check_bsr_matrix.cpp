#include <vector>

#include "core/message.h"
#include "sparsek/bsr_matrix.h"

namespace sparsek {

void check_bsr_matrix(const BsrMatrixView& matrix) {
  require_value(matrix.values.device.type == DeviceType::cpu,
                "matrix: expected arrays in host memory, got them on ",
                to_string(matrix.values.device));
  const std::int64_t rows = matrix.num_block_rows(), cols = matrix.num_block_cols();
  require_value(matrix.row_offsets[0] == 0, "row_offsets[0]: expected 0, got ",
                matrix.row_offsets[0]);
  require_value(matrix.row_offsets[rows] == matrix.nnz(), "row_offsets[", rows, "]: expected nnz ",
                matrix.nnz(), ", got ", matrix.row_offsets[rows]);
  std::vector<std::int64_t> seen_in(static_cast<std::size_t>(cols),
                                    -1);  // the last row that names a column
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::int64_t begin = matrix.row_offsets[row], end = matrix.row_offsets[row + 1];
    require_value(begin <= end && end <= matrix.nnz(), "row_offsets[", row + 1, "]: expected ",
                  begin, " to ", matrix.nnz(), ", got ", end);
    for (std::int64_t entry = begin; entry < end; ++entry) {
      const std::int32_t col = matrix.col_indices[entry];
      require_value(col >= 0 && col < cols, "col_indices[", entry, "]: expected 0 to ", cols - 1,
                    ", got ", col);
      require_value(seen_in[col] != row, "col_indices[", entry, "]: column ", col,
                    " is listed twice in block row ", row);
      seen_in[col] = row;
      if (matrix.value_indices != nullptr) {
        const std::int32_t value = matrix.value_indices[entry];
        require_value(value >= 0 && value < matrix.nnz(), "value_indices[", entry,
                      "]: expected 0 to ", matrix.nnz() - 1, ", got ", value);
      }
    }
  }
}

}  // namespace sparsek
