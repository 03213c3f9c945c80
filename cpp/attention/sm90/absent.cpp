// Built in place of the backend when the library is built without CUDA.
#include "attention/backends.h"

namespace sparsek::attn::sm90 {
namespace {

Reason not_built() { return "not in this build (SPARSEK_CUDA=OFF)"; }
Reason declines(const Problem&) { return not_built(); }
std::size_t no_workspace(const Problem&) { return 0; }
void refuse(const Problem&, const AttentionArgs&) { fail(ErrorKind::unsupported, *not_built()); }

}  // namespace

AttentionBackend backend() { return {"sm90", not_built, declines, no_workspace, refuse}; }

}  // namespace sparsek::attn::sm90
