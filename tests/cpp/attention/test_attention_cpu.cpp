// The CPU backend against the formula in float64, pair by pair.
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <vector>

#include "attention/band.h"
#include "attention/random_mask.h"
#include "check.h"
#include "sparsek/attention.h"
#include "sparsek/threads.h"

using namespace sparsek;

namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

struct Case {
  DType dtype = DType::float32;
  std::int64_t batch = 1, q_len = 1, kv_len = 1, q_heads = 1, kv_heads = 1, head_dim = 16,
               value_dim = 16;
  bool causal = false;
  std::optional<std::int64_t> left, right;
  bool bhsd = false;  // heads before the sequence, and rows further apart than need be
  bool masked = false;
  MaskCase mask{};
};

/// A (B, S, H, D) tensor that owns its memory.
struct Tensor {
  Array memory;
  TensorView view;
  std::vector<float> values;  // in memory order

  static TensorView layout(DType dtype, bool bhsd, std::int64_t b, std::int64_t s, std::int64_t h,
                           std::int64_t d) {
    TensorView view;
    view.dtype = dtype;
    view.rank = 4;
    view.shape = {b, s, h, d};
    const std::int64_t row = bhsd ? d + 3 : d;
    view.stride = bhsd ? decltype(view.stride){h * s * row, row, s * row, 1}
                       : decltype(view.stride){s * h * row, h * row, row, 1};
    return view;
  }
  std::int64_t size() const { return view.shape[0] * view.stride[0]; }
  std::int64_t place(std::int64_t b, std::int64_t s, std::int64_t h, std::int64_t d) const {
    return b * view.stride[0] + s * view.stride[1] + h * view.stride[2] + d * view.stride[3];
  }
  double at(std::int64_t b, std::int64_t s, std::int64_t h, std::int64_t d) const {
    return values[static_cast<std::size_t>(place(b, s, h, d))];
  }
  void set(const std::vector<float>& floats) {
    memory = Array(view.dtype, floats);
    view.data = memory.data();
    values = memory.floats();
  }
};

Tensor random_tensor(const TensorView& layout) {
  Tensor tensor;
  tensor.view = layout;
  tensor.set(random_floats(tensor.size()));
  return tensor;
}

Tensor poisoned_tensor(const TensorView& layout) {
  Tensor tensor;
  tensor.view = layout;
  tensor.set(std::vector<float>(static_cast<std::size_t>(tensor.size()), kPoison));
  return tensor;
}

struct Inputs {
  Tensor q, k, v;
  OwnedMask mask;
  AttentionArgs args;
};

std::unique_ptr<Inputs> make_inputs(const Case& c) {
  auto inputs = std::make_unique<Inputs>();
  inputs->q =
      random_tensor(Tensor::layout(c.dtype, c.bhsd, c.batch, c.q_len, c.q_heads, c.head_dim));
  inputs->k =
      random_tensor(Tensor::layout(c.dtype, c.bhsd, c.batch, c.kv_len, c.kv_heads, c.head_dim));
  inputs->v =
      random_tensor(Tensor::layout(c.dtype, c.bhsd, c.batch, c.kv_len, c.kv_heads, c.value_dim));
  if (c.masked) {
    MaskCase mask = c.mask;
    mask.q_len = c.q_len;
    mask.kv_len = c.kv_len;
    make_random_mask(mask, &inputs->mask);
    inputs->args.mask = &inputs->mask.view;
  }
  AttentionArgs& args = inputs->args;
  args.q = inputs->q.view;
  args.k = inputs->k.view;
  args.v = inputs->v.view;
  args.causal = c.causal;
  args.window_left = c.left;
  args.window_right = c.right;
  args.backend = "cpu";
  return inputs;
}

struct Outputs {
  Tensor out, weights;  // weights as (B, Sq, Hq, Sk)
  std::vector<float> lse;
};

/// Every output starts as NaN, with room around it.
Outputs run(const Case& c, AttentionArgs args) {
  Outputs outputs;
  outputs.out =
      poisoned_tensor(Tensor::layout(c.dtype, c.bhsd, c.batch, c.q_len, c.q_heads, c.value_dim));
  outputs.weights =
      poisoned_tensor(Tensor::layout(c.dtype, true, c.batch, c.q_len, c.q_heads, c.kv_len));
  outputs.lse.assign(static_cast<std::size_t>(c.batch * c.q_heads * c.q_len * 2), kPoison);
  args.out = outputs.out.view;
  args.weights = outputs.weights.view;
  std::swap(args.weights.shape[1], args.weights.shape[2]);
  std::swap(args.weights.stride[1], args.weights.stride[2]);
  args.lse = contiguous_view(outputs.lse.data(), DType::float32, {}, {c.batch, c.q_heads, c.q_len});
  for (int axis = 0; axis < 3; ++axis) args.lse.stride[axis] *= 2;  // strided
  attention(args);
  outputs.out.values = outputs.out.memory.floats();
  outputs.weights.values = outputs.weights.memory.floats();
  return outputs;
}

/// Whether query and key meet: the definition, not the library's Band.
bool in_band(const Case& c, std::int64_t query, std::int64_t key) {
  const std::int64_t position = query + c.kv_len - c.q_len;
  return !(c.causal && key > position) && !(c.left && key < position - *c.left) &&
         !(c.right && key > position + *c.right);
}

void compare(const Case& c, const Inputs& inputs, const Outputs& got) {
  const double scale = 1.0 / std::sqrt(static_cast<double>(c.head_dim));
  // Scores of |q| |k| scale size are rounded in float32; then the output once, in its dtype.
  const double tolerance = 4e-6 + 1.01 * rounding_error(c.dtype);
  for (std::int64_t b = 0; b < c.batch; ++b) {
    for (std::int64_t h = 0; h < c.q_heads; ++h) {
      const std::int64_t kv_head = h / (c.q_heads / c.kv_heads);
      const std::vector<bool> dense =
          c.masked ? mask_to_dense(inputs.mask, b, h) : std::vector<bool>{};
      for (std::int64_t i = 0; i < c.q_len; ++i) {
        std::vector<double> p(static_cast<std::size_t>(c.kv_len), -kInf);
        double max = -kInf, sum = 0;
        for (std::int64_t j = 0; j < c.kv_len; ++j) {
          if (!in_band(c, i, j) || (c.masked && !dense[i * c.kv_len + j])) continue;
          double dot = 0;
          for (std::int64_t d = 0; d < c.head_dim; ++d)
            dot += inputs.q.at(b, i, h, d) * inputs.k.at(b, j, kv_head, d);
          p[j] = dot * scale;
          max = std::max(max, p[j]);
        }
        for (double& score : p) sum += score = score == -kInf ? 0.0 : std::exp(score - max);
        const bool empty = max == -kInf;
        const float lse =
            got.lse[static_cast<std::size_t>(2 * ((b * c.q_heads + h) * c.q_len + i))];
        CHECK(empty ? lse == -kInf : std::abs(lse - (max + std::log(sum))) < 4e-6, b, h, i, lse,
              max + std::log(sum));
        for (double& probability : p) probability = empty ? 0.0 : probability / sum;
        for (std::int64_t j = 0; j < c.kv_len; ++j) {
          const double weight = got.weights.at(b, i, h, j);
          CHECK(p[j] == 0 ? weight == 0 : std::abs(weight - p[j]) <= tolerance * p[j] + 1e-6, b, h,
                i, j, weight, p[j]);
        }
        for (std::int64_t d = 0; d < c.value_dim; ++d) {
          double expected = 0, magnitude = 0;
          for (std::int64_t j = 0; j < c.kv_len; ++j) {
            expected += p[j] * inputs.v.at(b, j, kv_head, d);
            magnitude += p[j] * std::abs(inputs.v.at(b, j, kv_head, d));
          }
          const double out = got.out.at(b, i, h, d);
          CHECK(empty ? out == 0
                      : std::abs(out - expected) <=
                            4e-6 * magnitude + 1.01 * rounding_error(c.dtype) * std::abs(expected) +
                                1e-7,
                b, h, i, d, out, expected);
        }
      }
    }
  }
}

void test_case(const Case& c) {
  const auto inputs = make_inputs(c);
  const int before = failures();
  compare(c, *inputs, run(c, inputs->args));
  if (failures() != before) {
    std::fprintf(
        stderr, "  in the case %s B%ld Sq%ld Sk%ld Hq%ld Hkv%ld D%ld Dv%ld causal%d mask %ldx%ld\n",
        to_string(c.dtype).c_str(), long(c.batch), long(c.q_len), long(c.kv_len), long(c.q_heads),
        long(c.kv_heads), long(c.head_dim), long(c.value_dim), c.causal,
        c.masked ? long(c.mask.q_block) : 0l, c.masked ? long(c.mask.kv_block) : 0l);
  }
}

void test_shapes() {
  for (const DType dtype : {DType::float32, DType::float16, DType::bfloat16}) {
    for (const bool bhsd : {false, true}) {
      test_case({dtype, 2, 70, 200, 4, 2, 64, 48, false, {}, {}, bhsd});
      test_case({dtype, 1, 150, 150, 2, 1, 33, 1, true, {}, {}, bhsd});
      test_case({dtype, 2, 1, 300, 6, 2, 128, 128, true, {}, {}, bhsd});
      test_case({dtype, 1, 90, 40, 2, 2, 1, 7, true, {}, {}, bhsd});    // queries that see no key
      test_case({dtype, 1, 40, 0, 2, 2, 16, 16, false, {}, {}, bhsd});  // no keys at all
      test_case({dtype, 1, 9, 130, 1, 1, 256, 256, false, {}, {}, bhsd});
      test_case({dtype, 1, 200, 220, 1, 1, 16, 16, false, 30, 10, bhsd});
      test_case({dtype, 1, 100, 50, 1, 1, 16, 16, true, 0, {}, bhsd});
    }
  }
}

void test_masks() {
  const std::int64_t blocks[][2] = {{64, 64}, {128, 128}, {16, 16}, {7, 33},
                                    {1, 200}, {300, 1},   {1, 1}};
  for (const auto& block : blocks) {
    for (const bool padded : {false, true}) {
      for (const bool bitmaps : {false, true}) {
        Case c;
        c.dtype = padded ? DType::float16 : DType::float32;
        c.batch = 2;
        c.q_len = 150;
        c.kv_len = 270;
        c.q_heads = 4;
        c.kv_heads = 2;
        c.causal = bitmaps;
        c.masked = true;
        c.mask = {0, 0, block[0], block[1], padded ? 2 : 1, bitmaps ? 4 : 1, 0.3, padded, bitmaps};
        test_case(c);
        c.causal = !c.causal;
        c.left = 100;
        test_case(c);
      }
    }
  }
}

/// Bit for bit, however many threads there are.
void test_deterministic() {
  Case c;
  c.q_len = c.kv_len = 500;
  c.q_heads = c.kv_heads = 3;
  c.causal = true;
  const auto inputs = make_inputs(c);
  set_num_threads(1);
  const Outputs one = run(c, inputs->args);
  for (const int threads : {2, 3, 8}) {
    set_num_threads(threads);
    const Outputs many = run(c, inputs->args);
    CHECK(one.out.values == many.out.values, threads);
    CHECK(std::memcmp(one.lse.data(), many.lse.data(), one.lse.size() * sizeof(float)) == 0,
          threads);
  }
  set_num_threads(0);
}

/// A NaN or infinity reaches the queries that may see it, and no other.
void test_nonfinite() {
  Case c;
  c.q_len = c.kv_len = 200;
  c.causal = true;
  const auto inputs = make_inputs(c);
  const std::int64_t key = 100;
  for (Tensor* tensor : {&inputs->k, &inputs->v}) {
    for (const float bad : {kPoison, static_cast<float>(kInf)}) {
      const std::vector<float> good = tensor->values;
      std::vector<float> spoilt = good;
      spoilt[tensor->place(0, key, 0, 3)] = bad;
      tensor->set(spoilt);
      inputs->args.k = inputs->k.view;
      inputs->args.v = inputs->v.view;
      const Outputs got = run(c, inputs->args);
      for (std::int64_t i = 0; i < c.q_len; ++i) {
        bool finite = true;
        for (std::int64_t d = 0; d < c.value_dim; ++d)
          finite = finite && std::isfinite(got.out.at(0, i, 0, d));
        if (i < key) CHECK(finite, i, bad);
        // An infinite key makes a score of +inf (NaN in the end) or of -inf (no weight at all).
        if (i >= key && (std::isnan(bad) || tensor == &inputs->v)) CHECK(!finite, i, bad);
      }
      tensor->set(good);
    }
  }
}

/// Large scores neither overflow nor lose the sum to one.
void test_large_scores() {
  Case c;
  c.q_len = 40;
  c.kv_len = 300;
  const auto inputs = make_inputs(c);
  inputs->args.scale = 1e4f;
  const Outputs got = run(c, inputs->args);
  for (std::int64_t i = 0; i < c.q_len; ++i) {
    double sum = 0;
    for (std::int64_t j = 0; j < c.kv_len; ++j) sum += got.weights.at(0, i, 0, j);
    CHECK(std::abs(sum - 1) < 1e-5, i, sum);
  }
}

/// The CPU needs no workspace: neither form of the call asks for one, and both do the same.
void test_allocator() {
  Case c;
  c.q_len = c.kv_len = 50;
  const auto inputs = make_inputs(c);
  const Outputs want = run(c, inputs->args);
  Tensor out =
      poisoned_tensor(Tensor::layout(c.dtype, c.bhsd, c.batch, c.q_len, c.q_heads, c.value_dim));
  AttentionArgs args = inputs->args;
  args.out = out.view;
  attention(args, [](std::size_t bytes) -> void* {
    CHECK(false, "asked for a workspace of", bytes);
    return nullptr;
  });
  CHECK(out.memory.floats() == want.out.values);
}

void test_declines() {
  Case c;
  c.head_dim = 300;
  const auto inputs = make_inputs(c);
  CHECK_THROWS(ErrorKind::unsupported, "cpu: expected a head_dim of at most 256, got 300",
               run(c, inputs->args));
}

/// Outputs that lie where inputs are read.
void test_outputs_apart() {
  Case c;
  c.q_len = c.kv_len = 4;
  const auto inputs = make_inputs(c);
  const Tensor out = poisoned_tensor(Tensor::layout(c.dtype, false, 1, 4, 1, 16));
  AttentionArgs args = inputs->args;
  args.out = out.view;
  args.lse = contiguous_view(static_cast<float*>(args.v.data) + 60, DType::float32, {}, {1, 1, 4});
  CHECK_THROWS(ErrorKind::invalid_value, "lse: expected memory that is not v's", attention(args));
  args.lse = {};
  args.out = args.q;
  CHECK_THROWS(ErrorKind::invalid_value, "out: expected memory that is not q's", attention(args));
  args.out = out.view;
  attention(args);
}

}  // namespace

int main() {
  test_shapes();
  test_masks();
  test_deterministic();
  test_nonfinite();
  test_large_scores();
  test_allocator();
  test_declines();
  test_outputs_apart();
  return failures() != 0;
}
