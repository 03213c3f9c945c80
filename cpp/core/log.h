#pragma once

#include <string>

namespace sparsek {

/// True when the environment variable SPARSEK_LOG is set to something other than "" and "0".
bool log_enabled();

/// Prints "sparsek: LINE" to stderr, the first time that this line is seen.
void log_once(const std::string& line);

}  // namespace sparsek
