// Documents of different lengths, packed one after another: each token attends to the earlier ones
// of its own document only. Every document is also computed alone, and the results are compared.
//
//   packed_documents [LENGTH...]      lengths in tokens; 700 1800 300 1296 by default
#include <sparsek/sparsek.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

namespace {

constexpr std::int64_t kNumHeads = 8, kNumKvHeads = 2, kHeadDim = 64, kBlock = 64;

/// A mask that owns its arrays.
struct DocumentMask {
  std::vector<std::int64_t> offsets{0};
  std::vector<std::int32_t> indices, bitmap_indices;
  std::vector<std::uint32_t> bitmaps;
  sparsek::BlockMaskView view;
};

std::vector<std::int64_t> documents_of_tokens(const std::vector<std::int64_t>& lengths) {
  std::vector<std::int64_t> documents;
  for (std::size_t document = 0; document < lengths.size(); ++document) {
    documents.insert(documents.end(), static_cast<std::size_t>(lengths[document]),
                     static_cast<std::int64_t>(document));
  }
  return documents;
}

/// Lists the blocks that hold a pair of one document. Those that hold other pairs too get a bitmap;
/// that no token sees a later one is left to `causal`, which applies on top.
DocumentMask make_mask(const std::vector<std::int64_t>& lengths) {
  const std::vector<std::int64_t> documents = documents_of_tokens(lengths);
  const auto num_tokens = static_cast<std::int64_t>(documents.size());
  const std::int64_t num_blocks = (num_tokens + kBlock - 1) / kBlock;
  constexpr std::int64_t kWords = (kBlock + 31) / 32;
  const auto last_of = [&](std::int64_t block) {
    return std::min((block + 1) * kBlock, num_tokens) - 1;
  };
  DocumentMask mask;
  for (std::int64_t q_block = 0; q_block < num_blocks; ++q_block) {
    for (std::int64_t kv_block = 0; kv_block <= q_block; ++kv_block) {
      const std::int64_t q_first = documents[q_block * kBlock],
                         q_last = documents[last_of(q_block)];
      const std::int64_t kv_first = documents[kv_block * kBlock],
                         kv_last = documents[last_of(kv_block)];
      if (kv_last < q_first) continue;  // of earlier documents only
      mask.indices.push_back(static_cast<std::int32_t>(kv_block));
      if (q_first == q_last && kv_first == kv_last) {
        mask.bitmap_indices.push_back(-1);  // a full block
        continue;
      }
      const std::size_t base = mask.bitmaps.size();
      mask.bitmap_indices.push_back(static_cast<std::int32_t>(base / (kBlock * kWords)));
      mask.bitmaps.resize(base + kBlock * kWords);
      for (std::int64_t row = 0; q_block * kBlock + row <= last_of(q_block); ++row) {
        for (std::int64_t col = 0; kv_block * kBlock + col <= last_of(kv_block); ++col) {
          if (documents[q_block * kBlock + row] != documents[kv_block * kBlock + col]) continue;
          mask.bitmaps[base + row * kWords + col / 32] |= 1u << (col % 32);
        }
      }
    }
    mask.offsets.push_back(static_cast<std::int64_t>(mask.indices.size()));
  }
  mask.view.q_len = mask.view.kv_len = num_tokens;
  mask.view.q_block = mask.view.kv_block = kBlock;
  mask.view.indices = mask.indices.data();
  mask.view.num_indices = static_cast<std::int64_t>(mask.indices.size());
  mask.view.offsets = mask.offsets.data();
  mask.view.bitmap_indices = mask.bitmap_indices.data();
  mask.view.bitmaps = mask.bitmaps.data();
  mask.view.num_bitmaps = static_cast<std::int64_t>(mask.bitmaps.size()) / (kBlock * kWords);
  return mask;
}

std::vector<float> random_array(std::int64_t size, unsigned seed) {
  std::mt19937 engine(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(static_cast<std::size_t>(size));
  for (float& value : values) value = normal(engine);
  return values;
}

/// (1, count, heads, D): `count` tokens from `first` on. Nothing is copied.
sparsek::TensorView tokens(std::vector<float>& array, std::int64_t heads, std::int64_t first,
                           std::int64_t count) {
  return sparsek::contiguous_view(array.data() + first * heads * kHeadDim, sparsek::DType::float32,
                                  {}, {1, count, heads, kHeadDim});
}

int run(const std::vector<std::int64_t>& lengths) {
  const DocumentMask mask = make_mask(lengths);
  const std::int64_t num_tokens = mask.view.q_len;
  std::vector<float> q = random_array(num_tokens * kNumHeads * kHeadDim, 1);
  std::vector<float> k = random_array(num_tokens * kNumKvHeads * kHeadDim, 2);
  std::vector<float> v = random_array(num_tokens * kNumKvHeads * kHeadDim, 3);
  std::vector<float> packed(q.size(), NAN), alone(q.size(), NAN);

  const auto arguments = [&](std::vector<float>& out, std::int64_t first, std::int64_t count) {
    sparsek::AttentionArgs args;
    args.q = tokens(q, kNumHeads, first, count);
    args.k = tokens(k, kNumKvHeads, first, count);
    args.v = tokens(v, kNumKvHeads, first, count);
    args.out = tokens(out, kNumHeads, first, count);
    args.causal = true;
    return args;
  };
  sparsek::AttentionArgs args = arguments(packed, 0, num_tokens);
  args.mask = &mask.view;
  sparsek::check_block_mask(mask.view);
  const auto start = std::chrono::steady_clock::now();
  sparsek::attention(args);
  const std::chrono::duration<double, std::milli> elapsed =
      std::chrono::steady_clock::now() - start;

  std::int64_t first = 0;
  for (const std::int64_t length : lengths) {
    sparsek::attention(arguments(alone, first, length));
    first += length;
  }
  float largest = 0;
  bool right = true;
  for (std::size_t i = 0; i < packed.size(); ++i) {
    const float difference = std::fabs(packed[i] - alone[i]);
    largest = std::max(largest, difference);
    right = right && difference <= 1e-5f;  // false for NaN
  }
  const std::int64_t num_blocks = mask.view.num_q_blocks();
  std::printf("%lld tokens of %zu documents: %lld of %lld blocks computed in %.1f ms (%s)\n",
              static_cast<long long>(num_tokens), lengths.size(),
              static_cast<long long>(mask.view.num_indices),
              static_cast<long long>(num_blocks * num_blocks), elapsed.count(),
              sparsek::attention_backend(args).c_str());
  std::printf("largest difference from the documents computed alone: %.1e%s\n", largest,
              right ? "" : ", WRONG");
  // Not !(>): NaN must fail too.
  return right ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  std::vector<std::int64_t> lengths;
  for (int index = 1; index < argc; ++index) {
    char* end = nullptr;
    const long long length = std::strtoll(argv[index], &end, 10);
    if (*end != '\0' || length < 1 || length > 1'000'000) {
      std::fprintf(stderr, "packed_documents: expected lengths from 1 to 1000000, got \"%s\"\n",
                   argv[index]);
      return 2;
    }
    lengths.push_back(length);
  }
  if (lengths.empty()) lengths = {700, 1800, 300, 1296};
  try {
    return run(lengths);
  } catch (const sparsek::Error& error) {
    std::fprintf(stderr, "packed_documents: %s\n", error.what());
    return 1;
  }
}
