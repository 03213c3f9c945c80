#include <cstdlib>
#include <stdexcept>
#include <string>
#include <vector>

#include "check.h"
#include "core/threads.h"

using namespace sparsek;

namespace {

constexpr double kMuch = 1e9;

void test_counts() {
  if (const char* text = std::getenv("SPARSEK_NUM_THREADS")) {
    CHECK_EQ(num_threads(), std::atoi(text));
  } else {
    CHECK(num_threads() >= 1, num_threads());
  }
  const int by_default = num_threads();
  set_num_threads(7);
  CHECK_EQ(num_threads(), 7);
  CHECK_THROWS(ErrorKind::invalid_value, "got -1", set_num_threads(-1));
  CHECK_EQ(num_threads(), 7);
  set_num_threads(0);
  CHECK_EQ(num_threads(), by_default);
}

void test_each_task_once(int threads, std::int64_t count, double work) {
  set_num_threads(threads);
  std::vector<std::atomic<int>> runs(static_cast<std::size_t>(count));
  parallel_for(count, work, [&](std::int64_t i) { ++runs[i]; });
  for (const auto& times : runs) CHECK_EQ(times.load(), 1, threads, count, work);
}

void test_workers() {
  set_num_threads(4);
  std::atomic<int> workers{0};
  run_tasks(100, kMuch, [&](TaskQueue&) { ++workers; });
  CHECK_EQ(workers.load(), 4);
  workers = 0;
  run_tasks(100, 1.0, [&](TaskQueue&) { ++workers; });  // too little to share
  CHECK_EQ(workers.load(), 1);
  workers = 0;
  run_tasks(2, kMuch, [&](TaskQueue&) { ++workers; });
  CHECK_EQ(workers.load(), 2);
  workers = 0;
  run_tasks(0, kMuch, [&](TaskQueue&) { ++workers; });
  CHECK_EQ(workers.load(), 0);
}

void test_nested() {
  set_num_threads(3);
  std::atomic<int> sum{0};
  parallel_for(10, kMuch,
               [&](std::int64_t) { parallel_for(10, kMuch, [&](std::int64_t) { ++sum; }); });
  CHECK_EQ(sum.load(), 100);
}

void test_exception(int threads) {
  set_num_threads(threads);
  std::string message;
  std::atomic<int> later{0};
  try {
    parallel_for(1000000, kMuch, [&](std::int64_t i) {
      if (i == 5) throw std::runtime_error("task 5");
      ++later;
    });
  } catch (const std::runtime_error& error) {
    message = error.what();
  }
  CHECK_EQ(message, "task 5", threads);
  CHECK(later < 1000000, later.load());
  test_each_task_once(threads, 50, kMuch);  // and the next call works
}

}  // namespace

int main() {
  test_counts();
  for (const int threads : {1, 2, 5}) {
    for (const std::int64_t count : {0, 1, 2, 1000}) {
      test_each_task_once(threads, count, kMuch);
      test_each_task_once(threads, count, 1.0);
    }
    test_exception(threads);
  }
  test_workers();
  test_nested();
  return failures() != 0;
}
