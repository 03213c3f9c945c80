#pragma once

#include <cstdint>

#include "bsr_gemm/sm90/few_deal.cuh"
#include "bsr_gemm/sm90/plan.h"
#include "bsr_gemm/sm90/schedule.cuh"
#include "bsr_gemm/sm90/similar.cuh"
#include "bsr_gemm/sm90/tile_choice.h"
#include "core/device.h"
#include "core/integers.h"
#include "core/workspace.h"

namespace sparsek::bsr::sm90 {

// Where the parts of a plan lie in its memory.

struct Arrays {
  RowGroup* groups;
  std::int64_t* begins;  // see Lists
  std::uint32_t* bits;
  std::int32_t* lengths;
  std::int32_t* ranks;  // of each group by length
  std::int32_t* cols;
  std::int32_t* values;
  std::size_t bytes_of_lists;  // all of these
  SimilarArrays similar;       // null where the groups are of neighbours
  ScheduleArrays schedule;
};

// The rows are those of a left operand, and the columns of a right one.

/// A block's (rows, k).
inline BlockShape block_of(const BsrMatrixView& m, OperandSide side) {
  const BlockShape block{m.block_rows(), m.block_cols()};
  return side == OperandSide::left ? block : BlockShape{block.cols, block.rows};
}

/// Of blocks.
inline std::int64_t num_rows(const BsrMatrixView& m, OperandSide side) {
  return side == OperandSide::left ? m.num_block_rows() : m.num_block_cols();
}
inline std::int64_t num_k(const BsrMatrixView& m, OperandSide side) {
  return side == OperandSide::left ? m.num_block_cols() : m.num_block_rows();
}

/// Block rows that make a tile together.
inline int rows_in_group(const BsrMatrixView& m, OperandSide side) {
  const std::int64_t rows = block_of(m, side).rows;
  return rows >= kTileRows ? 1 : static_cast<int>(kTileRows / rows);
}

inline std::int64_t num_groups(const BsrMatrixView& m, OperandSide side) {
  return ceil_div(num_rows(m, side), rows_in_group(m, side));
}

/// The persistent CTAs that walk the tiles.
inline int num_workers(const BsrMatrixView& m) { return device_info(m.values.device).num_sms; }

inline std::int64_t bit_words(const BsrMatrixView& m, OperandSide side) {
  return ceil_div(num_k(m, side), 32);
}

inline std::int64_t num_windows(const BsrMatrixView& m, OperandSide side) {
  return ceil_div(num_rows(m, side), kWindow);
}

inline std::size_t words_of_bits(const BsrMatrixView& m, OperandSide side) {
  return static_cast<std::size_t>(num_windows(m, side) * bit_words(m, side)) * kWindow;
}

constexpr std::size_t kMostBits = std::size_t{1} << 29;  // of all rows: 64 MB

/// Where a row is a group by itself nothing is to be grouped, and where the matrix is very large
/// its neighbours are.
inline bool finds_similar(const BsrMatrixView& m, OperandSide side) {
  return rows_in_group(m, side) > 1 && words_of_bits(m, side) <= kMostBits / 32;
}

/// Takes parts of a plan's memory one behind the other.
class Memory {
 public:
  explicit Memory(void* begin) : begin_(static_cast<char*>(begin)) {}

  template <class T>
  T* take(std::size_t count) {
    T* const part = reinterpret_cast<T*>(begin_ + taken_);
    taken_ += aligned(count * sizeof(T));
    return part;
  }
  std::size_t taken() const { return taken_; }

 private:
  char* begin_;
  std::size_t taken_ = 0;
};

/// Lists of groups of `size` rows, with bits where there are `words` of them.
inline Arrays take_lists(const BsrMatrixView& m, OperandSide side, int size, std::int64_t words,
                         Memory* memory) {
  const auto groups = static_cast<std::size_t>(ceil_div(num_rows(m, side), size));
  const auto entries = static_cast<std::size_t>(m.nnz());
  const std::size_t before = memory->taken();
  Arrays arrays{};
  arrays.groups = memory->take<RowGroup>(groups);
  arrays.begins = memory->take<std::int64_t>(groups + 1);
  arrays.bits = memory->take<std::uint32_t>(groups * static_cast<std::size_t>(words));
  arrays.lengths = memory->take<std::int32_t>(groups);
  arrays.ranks = memory->take<std::int32_t>(groups);
  arrays.cols = memory->take<std::int32_t>(entries);
  arrays.values = memory->take<std::int32_t>(entries * static_cast<std::size_t>(size));
  arrays.bytes_of_lists = memory->taken() - before;
  return arrays;
}

/// Lists of neighbours have a schedule only where there are no others.
inline Arrays take_arrays(const BsrMatrixView& m, OperandSide side, Grouping grouping,
                          Memory* memory) {
  Arrays arrays = take_lists(m, side, rows_in_group(m, side), bit_words(m, side), memory);
  const std::int64_t count = num_groups(m, side);
  const int workers = num_workers(m);
  const std::int64_t scheduled = count * scheduled_panels(count, workers);
  if (scheduled > 0 && (grouping == Grouping::similar || !finds_similar(m, side))) {
    arrays.schedule.begins = memory->take<std::int32_t>(static_cast<std::size_t>(workers) + 1);
    arrays.schedule.tiles = memory->take<std::int32_t>(static_cast<std::size_t>(scheduled));
  }
  if (grouping == Grouping::similar) {
    const auto windows = static_cast<std::size_t>(num_windows(m, side));
    arrays.similar.bits = memory->take<std::uint32_t>(words_of_bits(m, side));
    arrays.similar.seen =
        memory->take<std::uint32_t>(windows * static_cast<std::size_t>(bit_words(m, side)) * 2);
    arrays.similar.order = memory->take<std::int32_t>(windows * kWindow);
    arrays.similar.place_of = memory->take<std::int32_t>(windows * kWindow);
  }
  return arrays;
}

/// For products with few columns.
struct FewShape {
  BlockShape block;
  int side;  // of its squares
  std::int64_t rows;

  std::int64_t tiles() const { return rows / side; }
};

inline FewShape few_shape(const BsrMatrixView& m, OperandSide side) {
  const BlockShape block = block_of(m, side);
  return {block, inner_of(block), num_rows(m, side) * block.rows};
}

inline bool deals_few(const BsrMatrixView& m, OperandSide side) {
  const FewShape few = few_shape(m, side);
  return few_takes_rows(few.rows, few.side, num_workers(m));
}

inline int num_few_ctas(const BsrMatrixView& m) { return 2 * few_clusters(num_workers(m)); }

inline FewDealArrays take_deal(const BsrMatrixView& m, OperandSide side, Memory* memory) {
  const FewShape few = few_shape(m, side);
  const auto ctas = static_cast<std::size_t>(num_few_ctas(m));
  FewDealArrays deal{};
  // Each part of a tile is rounded up to whole stages.
  deal.num_squares = m.nnz() * (few.block.rows / few.side) * (few.block.cols / few.side) +
                     2 * few.tiles() * (kTileK / few.side);
  deal.shares = memory->take<FewShare>(ctas);
  deal.parts = memory->take<FewPart>(ctas * kFewMostParts);
  deal.squares = memory->take<FewSquare>(static_cast<std::size_t>(deal.num_squares));
  return deal;
}

/// All arrays of a plan: those of neighbours, those of similar rows where these are found, and
/// those of rows by themselves and of their deal where few columns take these.
struct PlanArrays {
  Arrays neighbours, similar, alone;
  FewDealArrays deal;  // null: none
  std::size_t bytes;
};

inline PlanArrays arrays_of(const BsrMatrixView& m, OperandSide side, void* begin) {
  Memory memory(begin);
  PlanArrays arrays{};
  arrays.neighbours = take_arrays(m, side, Grouping::neighbours, &memory);
  arrays.similar =
      finds_similar(m, side) ? take_arrays(m, side, Grouping::similar, &memory) : arrays.neighbours;
  if (deals_few(m, side)) {
    arrays.alone =
        rows_in_group(m, side) == 1 ? arrays.neighbours : take_lists(m, side, 1, 0, &memory);
    arrays.deal = take_deal(m, side, &memory);
  }
  arrays.bytes = memory.taken();
  return arrays;
}

}  // namespace sparsek::bsr::sm90
