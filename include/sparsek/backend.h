#pragma once

#include <string>

namespace sparsek {

/// One row of an operation's backend table, as seen on this machine.
struct BackendStatus {
  std::string name;
  bool available = false;
  std::string reason;  // why it is not available; empty when it is
};

}  // namespace sparsek
