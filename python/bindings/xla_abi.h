#pragma once

// What XLA's foreign function interface passes to a handler: the C structures of jaxlib's
// xla/ffi/api/c_api.h, declared here so that building sparsek needs no jaxlib. Fields and functions
// that are not used here are opaque. tests/python/test_jax_abi.py holds them against that header.

#include <cstddef>
#include <cstdint>

namespace sparsek::python::xla {

// The declarations hold for these versions; a handler names the newest that XLA knows too.
constexpr int kMajorVersion = 0;
constexpr int kOldestMinorVersion = 1;
constexpr int kNewestMinorVersion = 5;

constexpr int kMetadataExtension = 1;
constexpr int kScalarAttribute = 3;
constexpr int kStringAttribute = 4;

enum class DataType : int { s32 = 4, s64 = 5, u32 = 8, f16 = 10, f32 = 11, bf16 = 16, pred = 1 };

enum class ErrorCode : int { invalid_argument = 3, unimplemented = 12, internal = 13 };

struct Error;
struct Context;
struct Api;

struct Extension {
  std::size_t struct_size;
  int type;
  Extension* next;
};

struct Version {
  std::size_t struct_size;
  Extension* extensions;
  int major_version;
  int minor_version;
};

struct Metadata {
  std::size_t struct_size;
  Version version;
  std::uint32_t traits;
};

struct MetadataExtension {
  Extension base;
  Metadata* metadata;
};

struct Buffer {
  std::size_t struct_size;
  Extension* extensions;
  DataType dtype;
  void* data;
  std::int64_t rank;
  std::int64_t* dims;
};

struct Buffers {
  std::size_t struct_size;
  Extension* extensions;
  std::int64_t size;
  int* types;
  Buffer** buffers;
};

struct ByteSpan {
  const char* data;
  std::size_t size;
};

struct Scalar {
  DataType dtype;
  void* value;
};

struct Attributes {
  std::size_t struct_size;
  Extension* extensions;
  std::int64_t size;
  int* types;
  ByteSpan** names;
  void** values;
};

struct CallFrame {
  std::size_t struct_size;
  Extension* extensions;
  const Api* api;
  Context* context;
  int stage;
  Buffers arguments;
  Buffers results;
  Attributes attributes;
};

struct ErrorCreate {
  std::size_t struct_size;
  Extension* extensions;
  const char* message;
  ErrorCode code;
};

// What is passed to XLA is as long as its newest version: XLA writes as much as it knows.
struct ErrorGetMessage {
  std::size_t struct_size;
  Extension* extensions;
  Error* error;
  const char* message;
  ErrorCode code;  // written since 0.5
};

struct ErrorDestroy {
  std::size_t struct_size;
  Extension* extensions;
  Error* error;
};

struct StreamGet {
  std::size_t struct_size;
  Extension* extensions;
  Context* context;
  void* stream;
};

struct DeviceMemoryAllocate {
  std::size_t struct_size;
  Extension* extensions;
  Context* context;
  std::size_t size;
  std::size_t alignment;
  void* data;
};

struct DeviceMemoryFree {
  std::size_t struct_size;
  Extension* extensions;
  Context* context;
  std::size_t size;
  void* data;
};

struct DeviceOrdinalGet {
  std::size_t struct_size;
  Extension* extensions;
  Context* context;
  std::int32_t device_ordinal;
};

struct Api {
  using Unused = void (*)();

  std::size_t struct_size;
  Extension* extensions;
  Version version;
  const void* internal_api;
  Error* (*error_create)(ErrorCreate*);
  void (*error_get_message)(ErrorGetMessage*);
  void (*error_destroy)(ErrorDestroy*);
  Unused handler_register;
  Error* (*stream_get)(StreamGet*);
  Unused type_register, execution_context_get, state_set, state_get;
  Error* (*device_memory_allocate)(DeviceMemoryAllocate*);
  Error* (*device_memory_free)(DeviceMemoryFree*);
  Unused thread_pool_schedule, thread_pool_num_threads;
  Unused future_create, future_set_available, future_set_error, run_id_get;
  Error* (*device_ordinal_get)(DeviceOrdinalGet*);
};

using Handler = Error*(CallFrame*);

}  // namespace sparsek::python::xla
