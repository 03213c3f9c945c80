#include "core/threads.h"

#include <algorithm>
#include <cstdlib>
#include <exception>
#include <mutex>
#include <system_error>
#include <thread>
#include <vector>

#if defined(__linux__)
#include <sched.h>
#endif

#include "core/message.h"

namespace sparsek {
namespace {

// Starting and joining a thread takes tens of microseconds; a core does this much work in about as
// long.
constexpr double kMinWorkPerThread = 2e6;

std::atomic<int> chosen_count{0};

int environment_count() {
  const char* text = std::getenv("SPARSEK_NUM_THREADS");
  if (text == nullptr || *text == '\0') return 0;
  char* end = nullptr;
  const long count = std::strtol(text, &end, 10);
  require_value(*end == '\0' && count >= 1 && count <= 65536,
                "SPARSEK_NUM_THREADS: expected a number from 1 to 65536, got \"", text, "\"");
  return static_cast<int>(count);
}

// Asked each time: a process may change its affinity, and its children inherit it.
int usable_cpus() {
#if defined(__linux__)
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
#endif
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

}  // namespace

int num_threads() {
  if (const int count = chosen_count.load(std::memory_order_relaxed)) return count;
  static const int from_environment = environment_count();
  return from_environment != 0 ? from_environment : usable_cpus();
}

void set_num_threads(int count) {
  require_value(count >= 0, "num_threads: expected 0 (the default) or more, got ", count);
  chosen_count.store(count, std::memory_order_relaxed);
}

void run_tasks(std::int64_t count, double work_per_task,
               const std::function<void(TaskQueue&)>& worker) {
  if (count <= 0) return;
  TaskQueue tasks(count);
  const double by_work = static_cast<double>(count) * work_per_task / kMinWorkPerThread;
  const double threads =
      std::min({static_cast<double>(num_threads()), static_cast<double>(count), by_work});
  if (threads < 2) return worker(tasks);

  std::mutex mutex;
  std::exception_ptr first_error;
  const auto guarded = [&] {
    try {
      worker(tasks);
    } catch (...) {
      tasks.stop();
      std::lock_guard<std::mutex> lock(mutex);
      if (!first_error) first_error = std::current_exception();
    }
  };
  std::vector<std::thread> helpers;
  helpers.reserve(static_cast<std::size_t>(threads));
  try {
    while (helpers.size() + 1 < static_cast<std::size_t>(threads)) helpers.emplace_back(guarded);
  } catch (const std::system_error&) {
    // The system grants no more threads: those that started, and this one, do all the work.
  }
  guarded();
  for (std::thread& helper : helpers) helper.join();
  if (first_error) std::rethrow_exception(first_error);
}

}  // namespace sparsek
