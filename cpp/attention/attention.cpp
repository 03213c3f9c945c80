#include "sparsek/attention.h"

#include <cstdint>

#include "attention/backends.h"
#include "attention/problem.h"
#include "core/checks.h"
#include "core/message.h"

namespace sparsek {

using attn::Problem;

namespace {

const attn::AttentionBackend& select(const Problem& problem, const AttentionArgs& args) {
  return select_backend("attention", attn::backends(), problem, args.backend);
}

/// What is written while q, k and v are read lies elsewhere.
void check_outputs_apart(const AttentionArgs& args) {
  const auto check = [&](const char* name, const TensorView& output) {
    check_apart(name, output, "q", args.q);
    check_apart(name, output, "k", args.k);
    check_apart(name, output, "v", args.v);
  };
  check("out", args.out);
  if (args.lse.given()) check("lse", args.lse);
  if (args.weights.given()) check("weights", args.weights);
}

}  // namespace

std::size_t attention_workspace_bytes(const AttentionArgs& args) {
  const Problem problem = attn::make_problem(args);
  return select(problem, args).workspace_bytes(problem);
}

void attention(const AttentionArgs& args) {
  attention(args, [&](std::size_t needed) {
    require_value(args.workspace_bytes >= needed || args.workspace == nullptr,
                  "workspace_bytes: expected at least ", needed, ", got ", args.workspace_bytes);
    return args.workspace;
  });
}

void attention(const AttentionArgs& args, const std::function<void*(std::size_t)>& allocate) {
  const Problem problem = attn::make_problem(args);
  const attn::AttentionBackend& backend = select(problem, args);
  if (args.out.num_elements() == 0) return;
  check_outputs_apart(args);
  const std::size_t needed = backend.workspace_bytes(problem);
  if (needed == 0) return run_backend(backend, problem, args);

  AttentionArgs with_workspace = args;
  with_workspace.workspace = allocate(needed);
  with_workspace.workspace_bytes = needed;
  require_value(with_workspace.workspace != nullptr, "workspace: expected ", needed,
                " bytes of device memory, got null");
  require_value(reinterpret_cast<std::uintptr_t>(with_workspace.workspace) % 256 == 0,
                "workspace: expected an address that is a multiple of 256, got ",
                with_workspace.workspace);
  run_backend(backend, problem, with_workspace);
}

std::string attention_backend(const AttentionArgs& args) {
  return select(attn::make_problem(args), args).name;
}

std::vector<BackendStatus> attention_backends() { return backend_statuses(attn::backends()); }

std::vector<std::string> attention_backends_by_gpu() {
  std::vector<std::string> names;
  for (const DeviceInfo& info : cuda_devices().infos) {
    Problem problem;
    problem.batch = problem.num_q_heads = problem.num_kv_heads = 1;
    problem.q_len = problem.kv_len = 1024;
    problem.head_dim = problem.value_dim = 128;
    problem.device = info;
    problem.scale = 1;
    problem.band = attn::make_band(1024, 1024, false, std::nullopt, std::nullopt);
    names.push_back(first_that_takes(attn::backends(), problem));
  }
  return names;
}

}  // namespace sparsek
