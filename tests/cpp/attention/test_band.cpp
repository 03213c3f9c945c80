#include "attention/band.h"
#include "check.h"

using namespace sparsek::attn;

namespace {

using Bound = std::optional<std::int64_t>;

/// The definition, pair by pair.
bool allowed(std::int64_t query, std::int64_t key, std::int64_t q_len, std::int64_t kv_len,
             bool causal, Bound left, Bound right) {
  const std::int64_t position = query + kv_len - q_len;
  if (causal && key > position) return false;
  if (left && key < position - *left) return false;
  if (right && key > position + *right) return false;
  return true;
}

void test_pairs() {
  const Bound bounds[] = {std::nullopt, 0, 1, 3, 100, std::int64_t{1} << 62};
  for (std::int64_t q_len = 1; q_len < 8; ++q_len) {
    for (std::int64_t kv_len = 0; kv_len < 8; ++kv_len) {
      for (const bool causal : {false, true}) {
        for (const Bound& left : bounds) {
          for (const Bound& right : bounds) {
            const Band band = make_band(q_len, kv_len, causal, left, right);
            bool all = true;
            for (std::int64_t query = 0; query < q_len; ++query) {
              for (std::int64_t key = 0; key < kv_len; ++key) {
                const bool expected = allowed(query, key, q_len, kv_len, causal, left, right);
                const bool got = key >= band.begin(query) && key < band.end(query);
                CHECK_EQ(got, expected, q_len, kv_len, causal, query, key);
                all = all && expected;
              }
              CHECK(band.begin(query) >= 0 && band.end(query) <= kv_len && band.end(query) >= 0);
              // The tile walk relies on both ends moving forward only.
              CHECK(band.begin(query + 1) >= band.begin(query) &&
                    band.end(query + 1) >= band.end(query));
            }
            CHECK_EQ(is_unbounded(band, q_len), all, q_len, kv_len, causal);
          }
        }
      }
    }
  }
}

}  // namespace

int main() {
  test_pairs();
  return failures() != 0;
}
