// Built in place of the backend when the library is built without CUDA.
#include "attention/backends.h"
#include "core/absent_backend.h"

namespace sparsek::attn::sm90 {

AttentionBackend backend() { return absent_backend<Problem, AttentionArgs>("sm90"); }

}  // namespace sparsek::attn::sm90
