// What the wmma backend decides before a kernel runs, on devices that are not here.

#include <string>

#include "attention/backends.h"
#include "attention/wmma/choice.h"
#include "check.h"

using namespace sparsek;
using namespace sparsek::attn;

namespace {

DeviceInfo device(const char* name, int compute_capability, int num_sms, int smem_kilobytes) {
  DeviceInfo info;
  info.device = {DeviceType::cuda, 0};
  info.name = name;
  info.compute_capability = compute_capability;
  info.num_sms = num_sms;
  info.max_smem_per_block_bytes = smem_kilobytes * 1024;
  return info;
}
const DeviceInfo kDevices[] = {
    device("A100", 80, 108, 163), device("A10", 86, 72, 99),     device("L4", 89, 58, 99),
    device("H200", 90, 132, 227), device("B200", 100, 148, 227), device("RTX 5090", 120, 170, 99),
};

Problem problem(const DeviceInfo& device, std::int64_t head_dim, std::int64_t q_len) {
  Problem p;
  p.batch = 1;
  p.q_len = p.kv_len = q_len;
  p.num_q_heads = p.num_kv_heads = 16;
  p.head_dim = p.value_dim = head_dim;
  p.device = device;
  p.scale = 0.125f;
  p.band = make_band(q_len, q_len, false, std::nullopt, std::nullopt);
  return p;
}

const AttentionBackend& row(const std::string& name) {
  for (const AttentionBackend& backend : backends()) {
    if (backend.name == name) return backend;
  }
  throw Error(ErrorKind::invalid_value, "no such backend");
}

/// Every chip has a kernel for every head_dim, in the shared memory that it has.
void test_every_device_has_a_kernel() {
  for (const DeviceInfo& info : kDevices) {
    for (const int head_dim : {1, 8, 33, 64, 65, 96, 128, 130, 192, 256}) {
      const wmma::Choice choice = wmma::choose(problem(info, head_dim, 4096));
      CHECK(choice.kernel != nullptr, info.name, head_dim);
      if (choice.kernel == nullptr) continue;
      CHECK(choice.kernel->smem_bytes <= info.max_smem_per_block_bytes, info.name, head_dim);
      const int padded = head_dim <= 64 ? 64 : head_dim <= 128 ? 128 : 256;
      CHECK_EQ(choice.kernel->head_dim, padded, info.name, head_dim);
      CHECK_EQ(choice.num_tiles, 16 * ((4096 + choice.kernel->tile_q - 1) / choice.kernel->tile_q));
    }
  }
}

/// Of the backends for GPUs, which one a device gets.
void test_which_backend_serves_a_device() {
  for (const DeviceInfo& info : kDevices) {
    const Problem p = problem(info, 64, 1000);
    CHECK(!row("wmma").supports(p).has_value(), info.name);
    CHECK_EQ(row("sm90").supports(p).has_value(), info.compute_capability != 90, info.name);
  }
  std::string order;
  for (const AttentionBackend& backend : backends()) order += std::string(backend.name) + " ";
  CHECK_EQ(order, std::string("sm90 wmma cpu "));
}

/// Blocks of any length, and the weights, on every device.
void test_any_block_and_weights() {
  for (const DeviceInfo& info : kDevices) {
    for (const int block : {1, 24, 16, 1000}) {
      Problem p = problem(info, 64, 1000);
      p.has_mask = p.wants_weights = true;
      p.q_block = p.kv_block = block;
      CHECK(!row("wmma").supports(p).has_value(), info.name, block);
    }
  }
}

/// A q tile follows one list: it ends where its q block ends.
void test_tiles_stay_in_their_q_block() {
  for (const int q_block : {1, 16, 48, 64, 100, 128, 192, 256, 1000}) {
    Problem p = problem(kDevices[2], 64, 1000);
    p.has_mask = true;
    p.q_block = q_block;
    p.kv_block = 16;
    const wmma::Choice choice = wmma::choose(p);
    const int tile_q = choice.kernel->tile_q;
    CHECK_EQ(choice.tiles_in_block, (q_block + tile_q - 1) / tile_q, q_block);
    CHECK_EQ(choice.num_q_tiles, (1000 + q_block - 1) / q_block * choice.tiles_in_block, q_block);
  }
  Problem p = problem(kDevices[3], 64, 16384);
  p.has_mask = true;
  p.kv_block = 64;
  p.q_block = 128;
  CHECK_EQ(wmma::choose(p).kernel->tile_q, 128);
  p.q_block = 64;
  CHECK_EQ(wmma::choose(p).kernel->tile_q, 64);
}

/// Under a causal mask the longest tiles go first.
void test_order() {
  Problem p = problem(kDevices[2], 128, 4096);
  CHECK_EQ(wmma::choose(p).section, 0);
  p.band = make_band(4096, 4096, true, std::nullopt, std::nullopt);
  CHECK(wmma::choose(p).section > 0);
}

void test_reasons() {
  const auto expect = [&](const Problem& p, const std::string& text) {
    const std::string got = row("wmma").supports(p).value_or("");
    CHECK(got.find(text) != std::string::npos, text, got);
  };
  const DeviceInfo& l4 = kDevices[2];
  Problem p = problem(l4, 320, 100);
  expect(p, "head_dim is 320, expected at most 256");
  p = problem(l4, 64, 100);
  p.value_dim = 320;
  expect(p, "value_dim is 320, expected at most 256");
  p = problem(l4, 64, 100);
  p.has_mask = true;
  p.q_block = 64;
  p.kv_block = std::int64_t{1} << 30;
  expect(p, "mask blocks are 64 x 1073741824, expected at most 536870912 each way");
  p = problem(l4, 64, 100);
  p.dtype = DType::float32;
  expect(p, "dtype is float32, expected float16 or bfloat16");
  p = problem(device("T4", 75, 40, 64), 64, 100);
  expect(p, "T4 (sm_75), expected sm_80 or later");
  p = problem(device("small", 99, 40, 48), 256, 100);
  expect(p, "bytes of shared memory for a block, which no kernel for head_dim 256");
  p = problem(l4, 64, std::int64_t{1} << 30);
  expect(p, "lengths are 1073741824");
  p = problem(l4, 64, 100);
  p.device.device = {};
  expect(p, "arrays are on cpu, expected a CUDA device");
}

}  // namespace

int main() {
  test_every_device_has_a_kernel();
  test_which_backend_serves_a_device();
  test_any_block_and_weights();
  test_tiles_stay_in_their_q_block();
  test_order();
  test_reasons();
  return failures() != 0;
}
