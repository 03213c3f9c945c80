#include "sparsek/system.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <tuple>
#include <vector>

#include "arrays.h"

namespace sparsek::python {
namespace {

using namespace nb::literals;

using Status = std::tuple<std::string, bool, std::string>;

std::vector<Status> as_tuples(const std::vector<BackendStatus>& statuses) {
  std::vector<Status> tuples;
  for (const BackendStatus& status : statuses) {
    tuples.emplace_back(status.name, status.available, status.reason);
  }
  return tuples;
}

}  // namespace

void bind_system(nb::module_& module) {
  module.attr("__version__") = SPARSEK_VERSION;
  module.def(
      "attention_backends", [] { return as_tuples(attention_backends()); },
      "(name, available, reason) of each attention backend, in order of preference.");
  module.def(
      "bsr_gemm_backends", [] { return as_tuples(bsr_gemm_backends()); },
      "(name, available, reason) of each bsr_gemm backend, in order of preference.");
  module.def("cuda_build_version", &cuda_build_version,
             "CUDA toolkit of the build (13000 for 13.0), 0 without CUDA.");
  module.def(
      "gpus",
      [] {
        std::vector<std::tuple<int, std::string, int, std::string, std::string>> gpus;
        const auto attention = attention_backends_by_gpu(), products = bsr_gemm_backends_by_gpu();
        for (const GpuInfo& gpu : list_gpus()) {
          const std::size_t place = gpus.size();
          gpus.emplace_back(gpu.index, gpu.name, gpu.compute_capability, attention[place],
                            products[place]);
        }
        return gpus;
      },
      "(index, name, compute capability, attention backend, bsr_gemm backend) of each GPU that the "
      "driver shows.");
  module.def(
      "synchronize",
      [](int device_index, std::uintptr_t stream) {
        nb::gil_scoped_release release;
        synchronize({DeviceType::cuda, device_index}, reinterpret_cast<void*>(stream));
      },
      "device_index"_a, "stream"_a, "Waits for the work on a stream of a CUDA device.");
  module.def("num_threads", &num_threads, "Threads that the CPU backend uses.");
  module.def("set_num_threads", &set_num_threads, "count"_a,
             "Sets the threads that the CPU backend uses; 0 = as many as the process may run on.");
}

}  // namespace sparsek::python
