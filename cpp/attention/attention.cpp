#include "sparsek/attention.h"

#include <cstdint>

#include "attention/backends.h"
#include "attention/problem.h"
#include "core/message.h"

namespace sparsek {

using attn::Problem;

namespace {

const attn::AttentionBackend& select(const Problem& problem, const AttentionArgs& args) {
  return select_backend("attention", attn::backends(), problem, args.backend);
}

}  // namespace

std::size_t attention_workspace_bytes(const AttentionArgs& args) {
  const Problem problem = attn::make_problem(args);
  return select(problem, args).workspace_bytes(problem);
}

void attention(const AttentionArgs& args) {
  const Problem problem = attn::make_problem(args);
  const attn::AttentionBackend& backend = select(problem, args);
  if (args.out.num_elements() == 0) return;
  const std::size_t needed = backend.workspace_bytes(problem);
  require_value(needed == 0 || args.workspace != nullptr, "workspace: expected ", needed,
                " bytes of device memory, got null");
  require_value(args.workspace_bytes >= needed, "workspace_bytes: expected at least ", needed,
                ", got ", args.workspace_bytes);
  require_value(reinterpret_cast<std::uintptr_t>(args.workspace) % 256 == 0,
                "workspace: expected an address that is a multiple of 256, got ", args.workspace);
  backend.run(problem, args);
}

std::string attention_backend(const AttentionArgs& args) {
  return select(attn::make_problem(args), args).name;
}

std::vector<BackendStatus> attention_backends() { return backend_statuses(attn::backends()); }

}  // namespace sparsek
