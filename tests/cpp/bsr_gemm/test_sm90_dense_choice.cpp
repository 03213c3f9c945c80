// What the sm90_dense backend decides before a kernel runs: which problems it takes, where a dense
// copy is made, how large that is, and the tile.

#include <string>
#include <utility>

#include "bsr_gemm/backends.h"
#include "bsr_gemm/sm90_dense/choice.h"
#include "check.h"

using namespace sparsek;
using namespace sparsek::bsr;

namespace {

Problem problem_of(Product product, std::int64_t block, double density) {
  Problem p;
  p.product = product;
  p.m = p.n = p.k = 8192;
  p.device = {{DeviceType::cuda, 0}, "a Hopper GPU", 90, 132, 232448};
  p.a_access = p.b_access = p.out_access = {1, 16};
  p.workspace_offered = true;
  if (product == Product::sparse_dense || product == Product::sparse_sparse) {
    p.a_block = {block, block};
    p.a_access = {2, 16};
    p.a_planned = true;
    p.a_density = density;
  }
  if (product == Product::dense_sparse || product == Product::sparse_sparse) {
    p.b_block = {block, block};
    p.b_access = {2, 16};
    p.b_planned = true;
    p.b_density = density;
  }
  if (product == Product::sampled) p.out_block = {block, block};
  return p;
}

std::string reason(const Problem& p) {
  return sm90_dense::backend().supports(p).value_or("takes it");
}

/// The first of the table that takes it, as if this machine had the hardware.
std::string chosen(const Problem& p) {
  for (const BsrGemmBackend& backend : backends()) {
    if (!backend.supports(p)) return backend.name;
  }
  return "none";
}

void test_a_dense_copy_where_it_is_asked_for() {
  for (const Product product :
       {Product::sparse_dense, Product::dense_sparse, Product::sparse_sparse}) {
    for (const std::int64_t block : {16, 128}) {
      for (const double density : {0.01, 1.0}) {
        Problem p = problem_of(product, block, density);
        CHECK_EQ(chosen(p), "sm90");
        CHECK_EQ(reason(p),
                 "skipping blocks is faster than a dense copy, made where it is asked for");
        p.forced = true;
        CHECK_EQ(reason(p), "takes it");
        p.workspace_offered = false;
        CHECK_EQ(reason(p), "no workspace was given (bsr_gemm_workspace_bytes)");
      }
    }
  }
  CHECK_EQ(chosen(problem_of(Product::dense, 16, 1.0)), "sm90_dense");
}

void test_declines_with_the_reason() {
  CHECK_EQ(reason(problem_of(Product::sampled, 16, 1.0)),
           "out is block-sparse, expected a dense one");
  Problem p = problem_of(Product::dense, 16, 1.0);
  p.out_dtype = DType::float32;
  CHECK_EQ(reason(p), "out_dtype is float32, expected float16");
  CHECK_EQ(chosen(p), "sm90");
  p = problem_of(Product::dense, 16, 1.0);
  p.out_access.alignment = 2;
  CHECK(reason(p).find("out has an address or strides that are multiples of 2 bytes") == 0);
  p = problem_of(Product::dense, 16, 1.0);
  p.adds_c = true;
  p.c_access = {0, 16};
  CHECK_EQ(reason(p), "c and out are contiguous along different axes");
  p.c_access = {1, 16};
  CHECK_EQ(reason(p), "takes it");
  p = problem_of(Product::sparse_dense, 48, 1.0);
  CHECK_EQ(reason(p), "a has blocks of 48x48, expected 16, 32, 64 or 128 each way");
}

void test_workspace() {
  const auto bytes = sm90_dense::backend().workspace_bytes;
  CHECK_EQ(bytes(problem_of(Product::dense, 16, 1.0)), std::size_t{0});
  CHECK_EQ(bytes(problem_of(Product::sparse_dense, 16, 1.0)), std::size_t{128} << 20);
  CHECK_EQ(bytes(problem_of(Product::sparse_sparse, 16, 1.0)), std::size_t{256} << 20);
  Problem p = problem_of(Product::dense_sparse, 16, 1.0);
  p.k = 16, p.n = 48;
  CHECK_EQ(bytes(p), std::size_t{1536});
  p.n = 80;  // 2560 bytes
  CHECK_EQ(bytes(p), std::size_t{2560});
  p.k = p.n = 0;
  CHECK_EQ(bytes(p), std::size_t{0});
}

void test_tiles() {
  // As measured on 132 SMs.
  for (const auto& [m, n] : {std::pair{8192, 8192}, {4096, 4096}, {2048, 2048}}) {
    CHECK(sm90_dense::choose_tile(m, n, 132) == sm90_dense::Tile::large);
  }
  for (const auto& [m, n] : {std::pair{512, 512}, {1024, 1024}, {128, 8192}}) {
    CHECK(sm90_dense::choose_tile(m, n, 132) == sm90_dense::Tile::small);
  }
}

}  // namespace

int main() {
  test_a_dense_copy_where_it_is_asked_for();
  test_declines_with_the_reason();
  test_workspace();
  test_tiles();
  return failures() != 0;
}
