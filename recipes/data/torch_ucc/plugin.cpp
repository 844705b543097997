// The module that gives torch the ucc process group: PyTorch's own class, compiled for a wheel that lacks it.
#include <cstdlib>

#include <torch/csrc/distributed/c10d/ProcessGroupUCC.hpp>
#include <torch/csrc/utils/pybind.h>

#include <pybind11/chrono.h> // for the timeout

namespace {

// UCC up to 1.9.0 has no reduction of float16 in host memory and loses the error: the call succeeds and the tensors are
// what they were. An exception is better; TORCH_UCC_CPU_FLOAT16=1 lets them through, for a UCC that can.
class Guarded : public c10d::ProcessGroupUCC {
 public:
  using c10d::ProcessGroupUCC::ProcessGroupUCC;

  c10::intrusive_ptr<c10d::Work> allreduce(
      std::vector<at::Tensor>& tensors,
      const c10d::AllreduceOptions& options) override {
    check(tensors.at(0));
    return ProcessGroupUCC::allreduce(tensors, options);
  }

  c10::intrusive_ptr<c10d::Work> reduce(
      std::vector<at::Tensor>& tensors,
      const c10d::ReduceOptions& options) override {
    check(tensors.at(0));
    return ProcessGroupUCC::reduce(tensors, options);
  }

  c10::intrusive_ptr<c10d::Work> reduce_scatter(
      std::vector<at::Tensor>& outputs,
      std::vector<std::vector<at::Tensor>>& inputs,
      const c10d::ReduceScatterOptions& options) override {
    check(outputs.at(0));
    return ProcessGroupUCC::reduce_scatter(outputs, inputs, options);
  }

  c10::intrusive_ptr<c10d::Work> reduce_scatter_single(
      at::Tensor& output,
      at::Tensor& input,
      const c10d::ReduceScatterOptions& options) override {
    check(output);
    return ProcessGroupUCC::reduce_scatter_single(output, input, options);
  }

 private:
  static void check(const at::Tensor& tensor) {
    static const bool allowed = std::getenv("TORCH_UCC_CPU_FLOAT16") != nullptr;
    TORCH_CHECK(
        allowed || !tensor.is_cpu() || tensor.scalar_type() != at::kHalf,
        "UCC cannot reduce float16 tensors in CPU memory (it would leave them unchanged without an error): ",
        "use init_process_group(\"cpu:gloo,cuda:ucc\"), or another dtype");
  }
};

} // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, module) {
  module.def(
      "create",
      [](const c10::intrusive_ptr<c10d::Store>& store, int rank, int size, std::chrono::duration<float> timeout)
          -> c10::intrusive_ptr<c10d::Backend> { return c10::make_intrusive<Guarded>(store, rank, size, timeout); },
      // the store's other end may be a thread of this process
      pybind11::call_guard<pybind11::gil_scoped_release>());
}
