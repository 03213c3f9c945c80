#pragma once

#include <stdexcept>
#include <string>

namespace sparsek {

enum class ErrorKind {
  invalid_value,  // Python: ValueError
  invalid_type,   // Python: TypeError
  unsupported,    // Python: NotImplementedError
  cuda,           // Python: RuntimeError
};

/// Every error the library raises. The message names the argument, what was expected and what was
/// given.
class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& message) : std::runtime_error(message), kind_(kind) {}
  ErrorKind kind() const { return kind_; }

 private:
  ErrorKind kind_;
};

}  // namespace sparsek
