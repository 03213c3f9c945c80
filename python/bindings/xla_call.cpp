#include "xla_call.h"

#include <algorithm>
#include <cstring>
#include <limits>

namespace sparsek::python::xla {
namespace {

[[noreturn]] void fail(const std::string& message) {
  throw sparsek::Error(ErrorKind::invalid_value, message);
}

std::string message_of(const Api& api, Error* error) {
  ErrorGetMessage get{sizeof(ErrorGetMessage), nullptr, error, nullptr, ErrorCode::internal};
  api.error_get_message(&get);
  std::string message = get.message != nullptr ? get.message : "";
  ErrorDestroy destroy{sizeof(ErrorDestroy), nullptr, error};
  api.error_destroy(&destroy);
  return message;
}

Error* make_error(const Api& api, ErrorCode code, const char* message) {
  ErrorCreate create{sizeof(ErrorCreate), nullptr, message, code};
  return api.error_create(&create);
}

ErrorCode code_of(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::invalid_value:
    case ErrorKind::invalid_type: return ErrorCode::invalid_argument;
    case ErrorKind::unsupported: return ErrorCode::unimplemented;
    case ErrorKind::cuda: return ErrorCode::internal;
  }
  return ErrorCode::internal;
}

DType dtype_of(const char* name, DataType dtype) {
  switch (dtype) {
    case DataType::f16: return DType::float16;
    case DataType::bf16: return DType::bfloat16;
    case DataType::f32: return DType::float32;
    default:
      throw sparsek::Error(ErrorKind::invalid_type,
                           std::string(name) +
                               ": expected dtype float16, bfloat16 or float32, got XLA's type " +
                               std::to_string(static_cast<int>(dtype)));
  }
}

}  // namespace

Call::Call(const CallFrame& frame, Platform platform) : frame_(frame) {
  if (platform == Platform::cpu) return;
  const Api& api = *frame.api;
  if (api.struct_size < offsetof(Api, device_ordinal_get) + sizeof(api.device_ordinal_get)) {
    throw sparsek::Error(ErrorKind::unsupported,
                         "sparsek.jax on a GPU needs a jaxlib that tells the device of a call, "
                         "got one with version 0." +
                             std::to_string(api.version.minor_version) + " of XLA's FFI");
  }
  StreamGet stream{sizeof(StreamGet), nullptr, frame.context, nullptr};
  require_ok(api.stream_get(&stream), "stream");
  stream_ = stream.stream;
  DeviceOrdinalGet ordinal{sizeof(DeviceOrdinalGet), nullptr, frame.context, 0};
  require_ok(api.device_ordinal_get(&ordinal), "device");
  device_ = {DeviceType::cuda, ordinal.device_ordinal};
}

Call::~Call() {
  // XLA's allocator hands memory out again in the order of the stream.
  for (const auto& [data, size] : allocated_) {
    DeviceMemoryFree release{sizeof(DeviceMemoryFree), nullptr, frame_.context, size, data};
    Error* error = frame_.api->device_memory_free(&release);
    if (error != nullptr) message_of(*frame_.api, error);  // destroys it
  }
}

void Call::require_ok(Error* error, const char* what) const {
  if (error == nullptr) return;
  throw sparsek::Error(ErrorKind::cuda, std::string(what) + ": " + message_of(*frame_.api, error));
}

const Buffer& Call::next(const Buffers& buffers, const char* name) {
  std::int64_t& index = &buffers == &frame_.arguments ? num_arguments_ : num_results_;
  if (index >= buffers.size) fail(std::string(name) + ": expected an array, got none");
  return *buffers.buffers[index++];
}

TensorView Call::view(const char* name, const Buffer& buffer) const {
  if (buffer.rank < 1 || buffer.rank > TensorView::kMaxRank) {
    fail(std::string(name) + ": expected 1 to " + std::to_string(TensorView::kMaxRank) +
         " axes, got " + std::to_string(buffer.rank));
  }
  TensorView view;
  view.data = buffer.data;
  view.dtype = dtype_of(name, buffer.dtype);
  view.device = device_;
  view.rank = static_cast<int>(buffer.rank);
  std::int64_t stride = 1;
  for (int axis = view.rank - 1; axis >= 0; --axis) {
    view.shape[axis] = buffer.dims[axis];
    view.stride[axis] = stride;
    stride *= std::max<std::int64_t>(buffer.dims[axis], 1);
  }
  return view;
}

TensorView Call::next_result(const char* name) { return view(name, next(frame_.results, name)); }

template <class Index>
const Index* Call::next_indices(const char* name, std::int64_t* count) {
  const Buffer& buffer = next(frame_.arguments, name);
  std::int64_t size = 1;
  for (std::int64_t axis = 0; axis < buffer.rank; ++axis) size *= buffer.dims[axis];
  const bool narrow = buffer.dtype == DataType::s32 || buffer.dtype == DataType::u32;
  // JAX has no 64-bit integers unless asked for: they come as (..., 2) 32-bit halves.
  const bool halves =
      sizeof(Index) == 8 && narrow && buffer.rank > 0 && buffer.dims[buffer.rank - 1] == 2;
  const bool right = sizeof(Index) == 4 ? narrow : halves || buffer.dtype == DataType::s64;
  if (!right) {
    throw sparsek::Error(ErrorKind::invalid_type,
                         std::string(name) + ": expected int" + std::to_string(8 * sizeof(Index)) +
                             ", got XLA's type " + std::to_string(static_cast<int>(buffer.dtype)));
  }
  if (count != nullptr) *count = halves ? size / 2 : size;
  return static_cast<const Index*>(buffer.data);
}

template const std::int32_t* Call::next_indices(const char*, std::int64_t*);
template const std::uint32_t* Call::next_indices(const char*, std::int64_t*);
template const std::int64_t* Call::next_indices(const char*, std::int64_t*);

const void* Call::attribute(const char* name, int type) const {
  const Attributes& attributes = frame_.attributes;
  for (std::int64_t index = 0; index < attributes.size; ++index) {
    const ByteSpan& found = *attributes.names[index];
    if (found.size != std::strlen(name) || std::memcmp(found.data, name, found.size) != 0) continue;
    if (attributes.types[index] == type) return attributes.values[index];
    break;
  }
  fail(std::string(name) + ": expected an attribute of XLA's type " + std::to_string(type) +
       ", got none");
}

const void* Call::scalar(const char* name, DataType dtype) const {
  const auto& found = *static_cast<const Scalar*>(attribute(name, kScalarAttribute));
  if (found.dtype != dtype) fail(std::string(name) + ": got an attribute of the wrong type");
  return found.value;
}

bool Call::flag(const char* name) const {
  return *static_cast<const bool*>(scalar(name, DataType::pred));
}

std::int64_t Call::integer(const char* name) const {
  std::int64_t value = 0;
  std::memcpy(&value, scalar(name, DataType::s64), sizeof(value));
  return value;
}

float Call::number(const char* name) const {
  float value = 0;
  std::memcpy(&value, scalar(name, DataType::f32), sizeof(value));
  return value;
}

std::string Call::text(const char* name) const {
  const auto& found = *static_cast<const ByteSpan*>(attribute(name, kStringAttribute));
  return {found.data, found.size};
}

void* Call::allocate(std::size_t bytes) {
  // XLA refuses to promise more than 16 bytes; sparsek asks for 256.
  constexpr std::size_t kPromised = 16, kAlignment = 256;
  bytes += kAlignment - kPromised;
  DeviceMemoryAllocate request{
      sizeof(DeviceMemoryAllocate), nullptr, frame_.context, bytes, kPromised, nullptr};
  require_ok(frame_.api->device_memory_allocate(&request), "workspace");
  allocated_.emplace_back(request.data, bytes);
  const auto address = reinterpret_cast<std::uintptr_t>(request.data);
  return reinterpret_cast<void*>((address + kAlignment - 1) / kAlignment * kAlignment);
}

Error* run(CallFrame* frame, Platform platform, void (*body)(Call&)) {
  const Extension* extension = frame->extensions;
  if (extension != nullptr && extension->type == kMetadataExtension) {
    Metadata& metadata = *reinterpret_cast<const MetadataExtension*>(extension)->metadata;
    metadata.version.major_version = kMajorVersion;
    // jaxlib 0.8 asks without its own version.
    metadata.version.minor_version =
        frame->api == nullptr ? kOldestMinorVersion
                              : std::min(kNewestMinorVersion, frame->api->version.minor_version);
    metadata.traits = 0;
    return nullptr;
  }
  // No exception may pass XLA's C interface.
  try {
    Call call(*frame, platform);
    body(call);
    return nullptr;
  } catch (const sparsek::Error& error) {
    return make_error(*frame->api, code_of(error.kind()), error.what());
  } catch (const std::exception& error) {
    return make_error(*frame->api, ErrorCode::internal, error.what());
  }
}

}  // namespace sparsek::python::xla
