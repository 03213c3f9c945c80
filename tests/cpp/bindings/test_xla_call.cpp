// What the handlers ask of XLA, and what they tell it, with a made-up XLA: no GPU is needed.
#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "check.h"
#include "xla_call.h"

namespace sparsek::python::xla {

struct Error {
  ErrorCode code;
  std::string message;
};

namespace {

char stream_object;
std::vector<char> memory(4096);
int num_errors = 0;  // not yet destroyed
bool has_stream = true;
void* freed = nullptr;
std::size_t freed_size = 0;

// 16-byte aligned, and never 256-byte aligned.
void* misaligned() {
  const auto address = reinterpret_cast<std::uintptr_t>(memory.data());
  return reinterpret_cast<void*>((address + 255) / 256 * 256 + 16);
}

Error* create(ErrorCreate* args) {
  ++num_errors;
  return new Error{args->code, args->message};
}
void get_message(ErrorGetMessage* args) {
  args->message = args->error->message.c_str();
  args->code = args->error->code;
}
void destroy(ErrorDestroy* args) {
  --num_errors;
  delete args->error;
}
Error* stream_get(StreamGet* args) {
  if (!has_stream) {
    ++num_errors;
    return new Error{ErrorCode::unimplemented, "no stream here"};
  }
  args->stream = &stream_object;
  return nullptr;
}
Error* ordinal_get(DeviceOrdinalGet* args) {
  args->device_ordinal = 3;
  return nullptr;
}
Error* allocate(DeviceMemoryAllocate* args) {
  CHECK(args->alignment <= 16, args->alignment);  // XLA refuses more
  args->data = misaligned();
  return nullptr;
}
Error* release(DeviceMemoryFree* args) {
  freed = args->data;
  freed_size = args->size;
  return nullptr;
}

Api make_api() {
  Api api{};
  api.struct_size = sizeof(Api);
  api.version.minor_version = 2;
  api.error_create = create;
  api.error_get_message = get_message;
  api.error_destroy = destroy;
  api.stream_get = stream_get;
  api.device_ordinal_get = ordinal_get;
  api.device_memory_allocate = allocate;
  api.device_memory_free = release;
  return api;
}

/// Nothing, or the message of the error.
std::string outcome(CallFrame& frame, Platform platform, void (*body)(Call&)) {
  Error* const error = run(&frame, platform, body);
  if (error == nullptr) return "";
  const std::string message = error->message;
  ErrorDestroy args{sizeof(ErrorDestroy), nullptr, error};
  destroy(&args);
  return message;
}

std::string failure(CallFrame& frame, Platform platform, void (*body)(Call&), ErrorCode expected) {
  Error* const error = run(&frame, platform, body);
  CHECK(error != nullptr);
  if (error == nullptr) return "";
  CHECK(error->code == expected, static_cast<int>(error->code));
  const std::string message = error->message;
  ErrorDestroy args{sizeof(ErrorDestroy), nullptr, error};
  destroy(&args);
  return message;
}

void test_version() {
  Api api = make_api();
  Metadata metadata{};
  MetadataExtension extension{{sizeof(MetadataExtension), kMetadataExtension, nullptr}, &metadata};
  CallFrame frame{};
  frame.extensions = &extension.base;
  const auto answer = [&](const Api* asking) {
    frame.api = asking;
    CHECK(run(&frame, Platform::cuda, [](Call&) { CHECK(false); }) == nullptr);
    CHECK_EQ(metadata.version.major_version, 0);
    return metadata.version.minor_version;
  };
  CHECK_EQ(answer(&api), 2);
  api.version.minor_version = 99;
  CHECK_EQ(answer(&api), kNewestMinorVersion);
  CHECK_EQ(answer(nullptr), kOldestMinorVersion);
}

void test_device() {
  Api api = make_api();
  CallFrame frame{};
  frame.api = &api;
  CHECK(run(&frame, Platform::cuda, [](Call& call) {
          CHECK((call.device() == Device{DeviceType::cuda, 3}));
          CHECK(call.stream() == &stream_object);
          const auto address = reinterpret_cast<std::uintptr_t>(call.allocate(1000));
          const auto begin = reinterpret_cast<std::uintptr_t>(misaligned());
          CHECK_EQ(address % 256, std::uintptr_t{0});
          CHECK(address >= begin && freed == nullptr);
        }) == nullptr);
  CHECK(freed == misaligned());
  CHECK(freed_size >= 1000 + 240, freed_size);  // what lies before the aligned address counts too
  CHECK(run(&frame, Platform::cpu, [](Call& call) {
          CHECK(call.device() == Device{} && call.stream() == nullptr);
        }) == nullptr);
}

void test_errors() {
  Api api = make_api();
  CallFrame frame{};
  frame.api = &api;
  has_stream = false;
  CHECK_EQ(failure(
               frame, Platform::cuda, [](Call&) {}, ErrorCode::internal),
           std::string("stream: no stream here"));
  has_stream = true;
  api.struct_size -= sizeof(void*);
  CHECK(failure(
            frame, Platform::cuda, [](Call&) {}, ErrorCode::unimplemented)
            .find("needs a jaxlib that tells the device of a call") != std::string::npos);
  api.struct_size += sizeof(void*);
  const struct {
    void (*body)(Call&);
    ErrorCode code;
  } cases[] = {
      {[](Call&) { throw sparsek::Error(ErrorKind::invalid_type, "bad"); },
       ErrorCode::invalid_argument},
      {[](Call&) { throw sparsek::Error(ErrorKind::unsupported, "bad"); },
       ErrorCode::unimplemented},
      {[](Call&) { throw sparsek::Error(ErrorKind::cuda, "bad"); }, ErrorCode::internal},
      {[](Call&) { throw std::runtime_error("bad"); }, ErrorCode::internal},
  };
  for (const auto& each : cases) {
    CHECK_EQ(failure(frame, Platform::cpu, each.body, each.code), std::string("bad"));
  }
  CHECK(failure(
            frame, Platform::cpu, [](Call& call) { call.next_argument("q"); },
            ErrorCode::invalid_argument)
            .find("q: expected an array") == 0);
  CHECK_EQ(num_errors, 0);
}

void test_arrays_and_attributes() {
  std::int64_t dims[] = {2, 0, 4}, halves_dims[] = {3, 2}, number = -7;
  float values[1] = {}, scale = 0.5f;
  const std::int64_t offsets[] = {0, 5, std::int64_t{1} << 33};
  Buffer array{sizeof(Buffer), nullptr, DataType::bf16, values, 3, dims};
  Buffer halves{sizeof(Buffer), nullptr, DataType::s32, const_cast<std::int64_t*>(offsets), 2,
                halves_dims};
  Buffer wrong{sizeof(Buffer), nullptr, DataType::pred, values, 1, dims};
  Buffer* buffers[] = {&array, &halves, &wrong};
  int types[] = {1, 1, 1};
  bool flag = true;
  Scalar scalars[] = {{DataType::pred, &flag}, {DataType::f32, &scale}, {DataType::s64, &number}};
  ByteSpan text{"cpuX", 3};  // not null-terminated
  ByteSpan names[] = {{"flag", 4}, {"scale", 5}, {"width", 5}, {"text", 4}};
  ByteSpan* name_pointers[] = {&names[0], &names[1], &names[2], &names[3]};
  void* attributes[] = {&scalars[0], &scalars[1], &scalars[2], &text};
  int kinds[] = {kScalarAttribute, kScalarAttribute, kScalarAttribute, kStringAttribute};

  Api api = make_api();
  CallFrame frame{};
  frame.api = &api;
  frame.arguments = {sizeof(Buffers), nullptr, 3, types, buffers};
  frame.attributes = {sizeof(Attributes), nullptr, 4, kinds, name_pointers, attributes};
  CHECK_EQ(
      outcome(frame, Platform::cpu,
              [](Call& call) {
                CHECK(call.flag("flag"));
                CHECK_EQ(call.number("scale"), 0.5f);
                CHECK_EQ(call.integer("width"), -7);
                CHECK_EQ(call.text("text"), std::string("cpu"));
                CHECK_THROWS(ErrorKind::invalid_value, "height", call.integer("height"));
                CHECK_THROWS(ErrorKind::invalid_value, "scale: got an attribute of the wrong type",
                             call.integer("scale"));
                const TensorView view = call.next_argument("q");
                CHECK(view.dtype == DType::bfloat16 && view.rank == 3 && view.num_elements() == 0);
                CHECK_EQ(view.stride[1], 4);
                std::int64_t count = 0;
                const std::int64_t* const read = call.next_indices<std::int64_t>("offsets", &count);
                CHECK_EQ(read[2], std::int64_t{1} << 33);
                CHECK_EQ(count, 3);
                CHECK_THROWS(ErrorKind::invalid_type, "indices: expected int32",
                             call.next_indices<std::int32_t>("indices"));
              }),
      std::string());
}

}  // namespace
}  // namespace sparsek::python::xla

int main() {
  using namespace sparsek::python::xla;
  test_version();
  test_device();
  test_errors();
  test_arrays_and_attributes();
  return failures() != 0;
}
