#pragma once

#include <cstdint>

/// One source for every vector width. A kernel is a struct with
///
///   template <int kWidth> SPARSEK_INLINE static void run(...)
///
/// written with Simd<kWidth>; `simd_dispatch<Kernel>(...)` runs the copy compiled for the widest
/// vectors of this CPU, so a portable binary uses AVX-512 where there is some. Everything that
/// `run` calls must be SPARSEK_INLINE: a function of its own would be compiled for the baseline.

#define SPARSEK_INLINE inline __attribute__((always_inline))

#if defined(__x86_64__)
// Features, not "arch=": GCC refuses to inline across architectures that differ, as under
// -march=native.
#define SPARSEK_TARGET_AVX2 __attribute__((target("avx2,fma,bmi,bmi2")))
#define SPARSEK_TARGET_AVX512 \
  __attribute__((target("avx2,fma,bmi,bmi2,avx512f,avx512bw,avx512dq,avx512vl")))
#endif

#if defined(__GNUC__) && !defined(__clang__)
// Vectors wider than the baseline's are passed between inlined functions only, where no ABI is at
// stake.
#pragma GCC diagnostic ignored "-Wpsabi"
#endif

namespace sparsek {

/// How wide: 4 floats (any CPU), 8 (AVX2 and FMA), 16 (AVX-512).
enum class SimdLevel { baseline, avx2, avx512 };

/// The CPU's, or a lower one named in the environment variable SPARSEK_SIMD ("baseline", "avx2").
SimdLevel simd_level();

/// Vectors of kWidth elements.
template <int kWidth>
struct Simd {
  typedef float Float __attribute__((vector_size(kWidth * 4)));
  typedef std::int32_t Int __attribute__((vector_size(kWidth * 4)));
  typedef std::uint32_t Uint __attribute__((vector_size(kWidth * 4)));
  typedef std::uint16_t Half __attribute__((vector_size(kWidth * 2)));
};

template <class Vector>
SPARSEK_INLINE Vector load(const void* from) {
  Vector vector;
  __builtin_memcpy(&vector, from, sizeof vector);
  return vector;
}

template <class Vector>
SPARSEK_INLINE void store(void* to, const Vector& vector) {
  __builtin_memcpy(to, &vector, sizeof vector);
}

/// The same bits as another type.
template <class To, class From>
SPARSEK_INLINE To bits_as(const From& from) {
  static_assert(sizeof(To) == sizeof(From), "");
  To to;
  __builtin_memcpy(&to, &from, sizeof to);
  return to;
}

#if defined(__x86_64__)
template <class Kernel, class... Args>
SPARSEK_TARGET_AVX512 void run_avx512(Args... args) {
  Kernel::template run<16>(args...);
}
template <class Kernel, class... Args>
SPARSEK_TARGET_AVX2 void run_avx2(Args... args) {
  Kernel::template run<8>(args...);
}
#endif

template <class Kernel, class... Args>
void simd_dispatch(Args... args) {
#if defined(__x86_64__)
  const SimdLevel level = simd_level();
  if (level == SimdLevel::avx512) return run_avx512<Kernel>(args...);
  if (level == SimdLevel::avx2) return run_avx2<Kernel>(args...);
#endif
  Kernel::template run<4>(args...);
}

}  // namespace sparsek
