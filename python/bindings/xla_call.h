#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "sparsek/sparsek.h"
#include "xla_abi.h"

namespace sparsek::python::xla {

/// Where the handler runs: XLA registers one for each platform.
enum class Platform { cpu, cuda };

/// One call of a handler: its arrays and attributes as the C++ library reads them. Throws
/// sparsek::Error.
class Call {
 public:
  Call(const CallFrame& frame, Platform platform);
  ~Call();
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  Device device() const { return device_; }
  void* stream() const { return stream_; }  // cudaStream_t; null on the CPU

  /// The next argument or result in order, C-contiguous.
  TensorView next_argument(const char* name) { return view(name, next(frame_.arguments, name)); }
  TensorView next_result(const char* name);
  /// The next argument, an array of indices; 64-bit ones may come as pairs of 32-bit halves.
  template <class Index>
  const Index* next_indices(const char* name, std::int64_t* count = nullptr);

  bool flag(const char* name) const;
  std::int64_t integer(const char* name) const;
  float number(const char* name) const;
  std::string text(const char* name) const;

  /// 256-byte aligned device memory until the call returns; later work on the stream may have it.
  void* allocate(std::size_t bytes);

 private:
  const Buffer& next(const Buffers& buffers, const char* name);
  TensorView view(const char* name, const Buffer& buffer) const;
  const void* attribute(const char* name, int type) const;
  const void* scalar(const char* name, DataType dtype) const;
  void require_ok(Error* error, const char* what) const;

  const CallFrame& frame_;
  Device device_;
  void* stream_ = nullptr;
  std::int64_t num_arguments_ = 0, num_results_ = 0;
  std::vector<std::pair<void*, std::size_t>> allocated_;
};

/// Runs a handler's body: answers XLA's question about versions, and makes an error of an
/// exception.
Error* run(CallFrame* frame, Platform platform, void (*body)(Call&));

/// The handlers of jax_attention.cpp and jax_bsr_gemm.cpp.
Error* attention_cpu(CallFrame* frame);
Error* attention_cuda(CallFrame* frame);
Error* bsr_gemm_cpu(CallFrame* frame);
Error* bsr_gemm_cuda(CallFrame* frame);

}  // namespace sparsek::python::xla
