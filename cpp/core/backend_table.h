#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/device_guard.h"
#include "core/log.h"
#include "core/message.h"
#include "sparsek/backend.h"

namespace sparsek {

/// Nothing, or the reason why not, in words with the values.
using Reason = std::optional<std::string>;

/// One row of an operation's table.
template <class Problem, class Args>
struct Backend {
  const char* name;
  Reason (*available)();               // on this machine
  Reason (*supports)(const Problem&);  // this problem, on a machine that has the hardware
  std::size_t (*workspace_bytes)(const Problem&);
  void (*run)(const Problem&, const Args&);
};

template <class Problem, class Args>
std::vector<BackendStatus> backend_statuses(const std::vector<Backend<Problem, Args>>& table) {
  std::vector<BackendStatus> statuses;
  for (const auto& backend : table) {
    const Reason reason = backend.available();
    statuses.push_back({backend.name, !reason.has_value(), reason.value_or("")});
  }
  return statuses;
}

/// The first backend that takes the problem, or the forced one; else an Error with each one's
/// reason.
template <class Problem, class Args>
const Backend<Problem, Args>& select_backend(const char* operation,
                                             const std::vector<Backend<Problem, Args>>& table,
                                             const Problem& problem, std::string_view forced) {
  std::string reasons;
  for (const auto& backend : table) {
    if (!forced.empty() && forced != backend.name) continue;
    // Ask about the problem first: it is the cheaper question, and its answer says more.
    Reason reason = backend.supports(problem);
    if (!reason) reason = backend.available();
    if (!reason) {
      if (log_enabled()) log_once(cat(operation, " ", to_string(problem), " -> ", backend.name));
      return backend;
    }
    reasons += cat("\n  ", backend.name, ": ", *reason);
  }
  if (reasons.empty()) {
    std::string names;
    for (const auto& backend : table) names += cat(names.empty() ? "" : ", ", backend.name);
    fail(ErrorKind::invalid_value, "backend: expected one of ", names, ", got \"", forced, "\"");
  }
  fail(ErrorKind::unsupported, operation, ": no backend takes ", to_string(problem), reasons);
}

/// Runs a backend where the arrays are.
template <class Problem, class Args>
void run_backend(const Backend<Problem, Args>& backend, const Problem& problem, const Args& args) {
  const DeviceGuard guard(problem.device.device);
  backend.run(problem, args);
}

/// The first backend that takes the problem, by name; empty when none does.
template <class Problem, class Args>
std::string first_that_takes(const std::vector<Backend<Problem, Args>>& table,
                             const Problem& problem) {
  for (const auto& backend : table) {
    if (!backend.supports(problem) && !backend.available()) return backend.name;
  }
  return {};
}

}  // namespace sparsek
