#include <vector>

#include "attention/backends.h"
#include "attention/problem.h"
#include "check.h"
#include "sparsek/attention.h"

using namespace sparsek;
using attn::Problem;

namespace {

/// Arguments that are right; nothing is ever read through them.
struct Sound {
  std::vector<float> memory = std::vector<float>(64);
  AttentionArgs args;

  Sound() {
    args.q = view({2, 8, 4, 16});
    args.k = view({2, 12, 2, 16});
    args.v = view({2, 12, 2, 32});
    args.out = view({2, 8, 4, 32});
  }
  TensorView view(std::initializer_list<std::int64_t> shape) {
    return contiguous_view(memory.data(), DType::float32, {}, shape);
  }
};

template <class Change>
std::string error_of(ErrorKind kind, Change change) {
  Sound sound;
  change(sound);
  try {
    attn::make_problem(sound.args);
  } catch (const Error& error) {
    CHECK(error.kind() == kind, error.what());
    return error.what();
  }
  return "no error";
}

template <class Change>
void check_error(int line, ErrorKind kind, const std::string& expected, Change change) {
  const std::string got = error_of(kind, change);
  check(got.find(expected) != std::string::npos, __FILE__, line, "the message", got, "expected",
        expected);
}

void test_problem() {
  Sound sound;
  sound.args.causal = true;
  sound.args.window_left = 5;
  const Problem problem = attn::make_problem(sound.args);
  CHECK_EQ(problem.batch, 2);
  CHECK_EQ(problem.q_len, 8);
  CHECK_EQ(problem.kv_len, 12);
  CHECK_EQ(problem.num_q_heads, 4);
  CHECK_EQ(problem.num_kv_heads, 2);
  CHECK_EQ(problem.head_dim, 16);
  CHECK_EQ(problem.value_dim, 32);
  CHECK_EQ(problem.scale, 0.25f);
  CHECK_EQ(problem.band.begin(7), 6);
  CHECK_EQ(problem.band.end(0), 5);
  CHECK_EQ(to_string(problem),
           "batch=2 q_len=8 kv_len=12 num_q_heads=4 num_kv_heads=2 head_dim=16 value_dim=32 "
           "dtype=float32 "
           "device=cpu causal window=(5, none)");
}

void test_errors() {
  const ErrorKind value = ErrorKind::invalid_value, type = ErrorKind::invalid_type;
  check_error(__LINE__, value, "q: expected 4 axes", [](Sound& s) { s.args.q.rank = 3; });
  check_error(__LINE__, type, "q: expected dtype float16, bfloat16 or float32, got int32",
              [](Sound& s) { s.args.q.dtype = DType::int32; });
  check_error(__LINE__, type, "k: expected the dtype of q (float32), got float16",
              [](Sound& s) { s.args.k.dtype = DType::float16; });
  check_error(__LINE__, value, "v: expected the device of q (cpu), got cuda:1",
              [](Sound& s) { s.args.v.device = {DeviceType::cuda, 1}; });
  check_error(__LINE__, value, "k: expected a contiguous last axis (stride 1), got stride 2",
              [](Sound& s) { s.args.k.stride[3] = 2; });
  check_error(__LINE__, value, "k: expected batch 2 (that of q), got 3",
              [](Sound& s) { s.args.k = s.view({3, 12, 2, 16}); });
  check_error(__LINE__, value, "v: expected length 12 (that of k), got 11",
              [](Sound& s) { s.args.v = s.view({2, 11, 2, 32}); });
  check_error(__LINE__, value, "q: expected a number of heads that is a multiple of k's 3, got 4",
              [](Sound& s) {
                s.args.k = s.view({2, 12, 3, 16});
                s.args.v = s.view({2, 12, 3, 32});
              });
  check_error(__LINE__, value, "out: expected value dim 32 (that of v), got 16",
              [](Sound& s) { s.args.out = s.view({2, 8, 4, 16}); });
  check_error(__LINE__, value, "out: expected memory for each element, got stride 0 on axis 1",
              [](Sound& s) { s.args.out.stride[1] = 0; });
  check_error(__LINE__, value, "window: expected left >= 0 or unbounded, got left -3",
              [](Sound& s) { s.args.window_left = -3; });
  check_error(__LINE__, value, "q: expected an address, got null",
              [](Sound& s) { s.args.q.data = nullptr; });
  check_error(__LINE__, value, "lse: expected 3 axes",
              [](Sound& s) { s.args.lse = s.view({2, 8, 4, 1}); });
  check_error(__LINE__, value, "lse: expected number of heads 4 (that of q), got 8",
              [](Sound& s) { s.args.lse = s.view({2, 8, 4}); });
  check_error(__LINE__, value, "weights: expected kv_len 12 (that of k), got 8",
              [](Sound& s) { s.args.weights = s.view({2, 4, 8, 8}); });
}

void test_mask_errors() {
  const auto with_mask = [](auto change) {
    return [change](Sound& s) {
      static BlockMaskView mask;
      static const std::int64_t offsets[4] = {};
      mask = {};
      mask.q_len = 8;
      mask.kv_len = 12;
      mask.q_block = mask.kv_block = 4;
      mask.offsets = offsets;
      change(mask);
      s.args.mask = &mask;
    };
  };
  const ErrorKind value = ErrorKind::invalid_value;
  CHECK_EQ(error_of(value, with_mask([](BlockMaskView&) {})), "no error");
  check_error(__LINE__, value,
              "mask: expected positive block lengths, got q_block 0 and kv_block 4",
              with_mask([](BlockMaskView& m) { m.q_block = 0; }));
  check_error(__LINE__, value,
              "mask: expected one made for q_len 8 and kv_len 12, got q_len 8 and kv_len 16",
              with_mask([](BlockMaskView& m) { m.kv_len = 16; }));
  check_error(__LINE__, value, "mask: expected 1 head, the 2 of k or the 4 of q, got 3",
              with_mask([](BlockMaskView& m) { m.num_heads = 3; }));
  check_error(__LINE__, value, "(padded lists), got neither",
              with_mask([](BlockMaskView& m) { m.offsets = nullptr; }));
  check_error(__LINE__, value, "mask: expected the device of q (cpu), got cuda:0",
              with_mask([](BlockMaskView& m) { m.device = {DeviceType::cuda, 0}; }));
}

/// A problem on a device that this machine need not have.
Problem on_device(int compute_capability) {
  Problem problem = attn::make_problem(Sound().args);
  problem.dtype = DType::float16;
  problem.device.device = {DeviceType::cuda, 0};
  problem.device.name = "made up";
  problem.device.compute_capability = compute_capability;
  problem.device.num_sms = 100;
  return problem;
}

void test_selection() {
  Sound sound;
  CHECK_EQ(attention_backend(sound.args), "cpu");
  CHECK_EQ(attention_workspace_bytes(sound.args), 0u);
  sound.args.backend = "cpu";
  CHECK_EQ(attention_backend(sound.args), "cpu");
  sound.args.backend = "gpu";
  CHECK_THROWS(ErrorKind::invalid_value, "cpu, got \"gpu\"", attention_backend(sound.args));
  sound.args.backend = "wmma";
  CHECK_THROWS(ErrorKind::unsupported, "\n  wmma: ", attention_backend(sound.args));

  // Every backend that declines says why.
  const auto select_on = [](int compute_capability) {
    return select_backend("attention", attn::backends(), on_device(compute_capability), "").name;
  };
  CHECK_THROWS(ErrorKind::unsupported, "attention: no backend takes batch=2", select_on(75));
  CHECK_THROWS(ErrorKind::unsupported, "\n  wmma: ", select_on(75));
  CHECK_THROWS(ErrorKind::unsupported, "\n  cpu: arrays are on cuda:0", select_on(75));
  for (const auto& backend : attn::backends()) {
    const Reason reason = backend.supports(on_device(75));
    CHECK(reason.has_value() && !reason->empty(), backend.name);
  }
}

void test_statuses() {
  bool has_cpu = false;
  for (const BackendStatus& status : attention_backends()) {
    CHECK(status.available == status.reason.empty(), status.name, status.reason);
    has_cpu = has_cpu || (status.name == "cpu" && status.available);
  }
  CHECK(has_cpu);
}

}  // namespace

int main() {
  test_problem();
  test_errors();
  test_mask_errors();
  test_selection();
  test_statuses();
  return failures() != 0;
}
