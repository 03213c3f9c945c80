// What callers fill in is plain data: it can be copied byte by byte, and its fields lie as they are
// declared. Results that hold text (BackendStatus, GpuInfo) and errors are not.
#include <sparsek/sparsek.h>

#include <cstring>
#include <type_traits>

#include "check.h"

namespace {

template <class T>
constexpr bool is_plain = std::is_trivially_copyable_v<T> && std::is_standard_layout_v<T>;

static_assert(is_plain<sparsek::Device>);
static_assert(is_plain<sparsek::TensorView>);
static_assert(is_plain<sparsek::BlockMaskView>);
static_assert(is_plain<sparsek::BsrMatrixView>);
static_assert(is_plain<sparsek::MatrixOperand>);
static_assert(is_plain<sparsek::AttentionArgs>);
static_assert(is_plain<sparsek::BsrGemmArgs>);
static_assert(sizeof(sparsek::DType) == 1 && sizeof(sparsek::DeviceType) == 1);
static_assert(sizeof(sparsek::OperandSide) == 1);

}  // namespace

int main() {
  sparsek::AttentionArgs args;
  args.q = sparsek::contiguous_view(&args, sparsek::DType::bfloat16, {}, {2, 3, 4, 5});
  args.window_left = 7;
  sparsek::AttentionArgs copy;
  std::memcpy(static_cast<void*>(&copy), &args, sizeof(args));
  CHECK(copy.q.stride[1] == 20 && copy.window_left == 7 && !copy.window_right);
  return failures() != 0;
}
