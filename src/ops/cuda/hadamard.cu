#include "ops/hadamard.h"

namespace some::cuda {
namespace {

[[noreturn]] void not_supported() {
  failed(Code::size_unsupported, "some.init = \"hadamard\" is not supported on a GPU; use the CPU");
}

}  // namespace

void hadamard_experts_forward(Context&, const Tensor&, const HadamardExperts&, const Tensor&, const Tensor&, Tensor&) {
  not_supported();
}

void hadamard_experts_backward(Context&, const HadamardExpertsBackward&) { not_supported(); }

bool hadamard_keeps_modulation(Context&) { return false; }

void hadamard_modulate_forward(Context&, const Modulation&, Tensor&, Tensor&) { not_supported(); }

void hadamard_modulate_backward(Context&, Tensor&, const Modulation&, const Tensor&, Tensor&, Tensor&, Tensor&) {
  not_supported();
}

}  // namespace some::cuda
