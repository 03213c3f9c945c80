#pragma once

#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "core/cpu_math.h"

/// One stream of numbers for the whole test: each case has fresh inputs, each run the same.
inline std::mt19937& generator() {
  static std::mt19937 engine(20240607);
  return engine;
}

inline std::int64_t random_int(std::int64_t first, std::int64_t last) {
  return std::uniform_int_distribution<std::int64_t>(first, last)(generator());
}

inline bool random_bool(double probability) {
  return std::bernoulli_distribution(probability)(generator());
}

inline std::vector<float> random_floats(std::int64_t count) {
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<std::size_t>(count));
  for (float& value : values) value = normal(generator());
  return values;
}

constexpr float kPoison = std::numeric_limits<float>::quiet_NaN();

/// Memory of any of the three dtypes, read and written as float32.
class Array {
 public:
  Array() = default;
  Array(sparsek::DType dtype, std::int64_t count, float value)
      : Array(dtype, filled(count, value)) {}
  Array(sparsek::DType dtype, const std::vector<float>& values)
      : dtype_(dtype),
        count_(static_cast<std::int64_t>(values.size())),
        bytes_(values.size() * sparsek::size_of(dtype)) {
    sparsek::from_float32(values.data(), bytes_.data(), dtype_, count_);
  }

  void* data() { return bytes_.data(); }
  std::vector<float> floats() const {
    std::vector<float> values(static_cast<std::size_t>(count_));
    sparsek::to_float32(bytes_.data(), dtype_, values.data(), count_);
    return values;
  }

 private:
  static std::vector<float> filled(std::int64_t count, float value) {
    return std::vector<float>(static_cast<std::size_t>(count), value);
  }

  sparsek::DType dtype_ = sparsek::DType::float32;
  std::int64_t count_ = 0;
  std::vector<unsigned char> bytes_;
};

/// Half the distance between neighbouring numbers near 1.
inline double rounding_error(sparsek::DType dtype) {
  return dtype == sparsek::DType::float16    ? 4.9e-4
         : dtype == sparsek::DType::bfloat16 ? 3.9e-3
                                             : 6e-8;
}
