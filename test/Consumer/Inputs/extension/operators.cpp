//===- operators.cpp - mylib, a library of PyTorch operators --------------===//

#include <ATen/ops/gelu.h>
#include <ATen/ops/gelu_backward.h>
#include <ATen/ops/mul.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

static at::Tensor computeScaledGelu(const at::Tensor &x, double scale) {
  return at::gelu(x).mul(scale);
}

namespace {
struct ScaledGelu : torch::autograd::Function<ScaledGelu> {
  static at::Tensor forward(AutogradContext *context, const at::Tensor &x,
                            double scale) {
    at::AutoDispatchBelowADInplaceOrView guard;
    context->save_for_backward({x});
    context->saved_data["scale"] = scale;
    return computeScaledGelu(x, scale);
  }
  static variable_list backward(AutogradContext *context,
                                variable_list gradients) {
    at::Tensor x = context->get_saved_variables()[0];
    double scale = context->saved_data["scale"].toDouble();
    return {at::gelu_backward(gradients[0].mul(scale), x), at::Tensor()};
  }
};
} // namespace

TORCH_LIBRARY(mylib, m) {
  m.def("scaled_gelu(Tensor x, float scale) -> Tensor");
}

TORCH_LIBRARY_IMPL(mylib, CPU, m) { m.impl("scaled_gelu", computeScaledGelu); }

TORCH_LIBRARY_IMPL(mylib, AutogradCPU, m) {
  m.impl("scaled_gelu", [](const at::Tensor &x, double scale) {
    return ScaledGelu::apply(x, scale);
  });
}
