// Built in place of the backend when the library is built without CUDA.
#include "attention/backends.h"
#include "core/absent_backend.h"

namespace sparsek::attn::wmma {

AttentionBackend backend() { return absent_backend<Problem, AttentionArgs>("wmma"); }

}  // namespace sparsek::attn::wmma
