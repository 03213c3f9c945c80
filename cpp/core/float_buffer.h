#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>

namespace sparsek {

/// Uninitialised float32 scratch on a cache line boundary; grows, never shrinks.
class FloatBuffer {
 public:
  FloatBuffer() = default;
  explicit FloatBuffer(std::int64_t size) { reserve(size); }

  /// The contents are lost when it has to grow.
  float* reserve(std::int64_t size) {
    if (size > size_) {
      data_.reset();
      data_.reset(static_cast<float*>(
          ::operator new(static_cast<std::size_t>(size) * sizeof(float), kAlignment)));
      size_ = size;
    }
    return data_.get();
  }
  float* data() const { return data_.get(); }

 private:
  static constexpr std::align_val_t kAlignment{64};
  struct Free {
    void operator()(float* data) const { ::operator delete(data, kAlignment); }
  };
  std::unique_ptr<float, Free> data_;
  std::int64_t size_ = 0;
};

/// A row length, in floats, for scratch of `cols` columns: rows start on cache lines, and an odd
/// number of lines apart, so that the rows of a panel do not all compete for the same few sets of
/// the cache.
inline std::int64_t padded_row(std::int64_t cols) {
  const std::int64_t lines = (cols + 15) / 16;
  return (lines | 1) * 16;
}

}  // namespace sparsek
