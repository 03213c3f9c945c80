#pragma once

#include <atomic>
#include <cstdint>
#include <functional>

#include "sparsek/threads.h"

namespace sparsek {

/// Hands out 0, 1, ... count - 1, each once, to whichever thread asks next.
class TaskQueue {
 public:
  explicit TaskQueue(std::int64_t count) : count_(count) {}

  /// False when none is left.
  bool next(std::int64_t* task) {
    *task = next_.fetch_add(1, std::memory_order_relaxed);
    return *task < count_;
  }
  void stop() { next_.store(count_, std::memory_order_relaxed); }

 private:
  std::atomic<std::int64_t> next_{0};
  std::int64_t count_;
};

/// Runs `worker` on up to num_threads() threads at once, the caller's among them; each takes tasks
/// from the queue until none is left, so that what it needs for every task is allocated once. Runs
/// on the caller's thread alone when the work (`work_per_task`: roughly, floating-point operations)
/// is too small to share.
///
/// Threads live for the call only: nothing survives a fork or waits to be torn down, and calls may
/// nest. The first exception of a worker is thrown again here, after every thread has ended.
void run_tasks(std::int64_t count, double work_per_task,
               const std::function<void(TaskQueue&)>& worker);

/// fn(0) ... fn(count - 1), in any order.
template <class Fn>
void parallel_for(std::int64_t count, double work_per_task, const Fn& fn) {
  run_tasks(count, work_per_task, [&](TaskQueue& tasks) {
    for (std::int64_t task; tasks.next(&task);) fn(task);
  });
}

}  // namespace sparsek
