#pragma once

#include <cstdio>
#include <sstream>
#include <string>

#include "sparsek/error.h"

// Failures are recorded, not thrown: a test shows all of them, and main ends with `return
// failures() != 0;`.

inline int& failures() {
  static int count = 0;
  return count;
}

template <class... Values>
void check(bool passed, const char* file, int line, const char* text, const Values&... values) {
  if (passed || ++failures() > 20) return;
  std::ostringstream message;
  ((message << "  " << values), ...);
  std::fprintf(stderr, "%s:%d: failed: %s%s\n", file, line, text, message.str().c_str());
}

/// Further arguments are printed when the condition is false.
#define CHECK(condition, ...) check((condition), __FILE__, __LINE__, #condition, ##__VA_ARGS__)
#define CHECK_EQ(a, b, ...) check((a) == (b), __FILE__, __LINE__, #a " == " #b, a, b, ##__VA_ARGS__)

/// The expression throws sparsek::Error of this kind, with this text in its message.
#define CHECK_THROWS(expected_kind, text, expression)                                     \
  try {                                                                                   \
    expression;                                                                           \
    check(false, __FILE__, __LINE__, #expression " throws");                              \
  } catch (const sparsek::Error& error) {                                                 \
    check(error.kind() == (expected_kind) &&                                              \
              std::string(error.what()).find(text) != std::string::npos,                  \
          __FILE__, __LINE__, #expression " throws " #expected_kind " with \"" text "\"", \
          error.what());                                                                  \
  }
