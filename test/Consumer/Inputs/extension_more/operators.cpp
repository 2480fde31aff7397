//===- operators.cpp - more, a library of PyTorch operators ---------------===//

#include <ATen/ops/add.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/zeros_like.h>
#include <torch/library.h>

static at::Tensor scale(const at::Tensor &x, const at::Scalar &factor) {
  return x.mul(factor);
}

static at::Tensor &scaleInPlace(at::Tensor &x, const at::Scalar &factor) {
  return x.mul_(factor);
}

static std::tuple<at::Tensor, at::Tensor>
parts(at::TensorList xs, const std::optional<at::Tensor> &bias,
      at::IntArrayRef by, bool again) {
  at::Tensor sum = at::zeros_like(xs[0]);
  for (const at::Tensor &x : xs)
    sum.add_(x);
  at::Tensor first = sum.mul(by[0]);
  at::Tensor second = sum.mul(by[1]);
  if (bias)
    first.add_(*bias);
  if (again)
    second.add_(first);
  return {first, second};
}

static at::Tensor noise(const at::Tensor &x) {
  return at::rand(x.sizes(), x.options());
}

TORCH_LIBRARY(more, m) {
  m.def("scale(Tensor x, Scalar factor) -> Tensor");
  m.def("scale_(Tensor(a!) x, Scalar factor) -> Tensor(a!)");
  m.def("parts(Tensor[] xs, Tensor? bias=None, int[2] by=[1, 2], bool "
        "again=False) -> (Tensor, Tensor)");
  m.def("noise(Tensor x) -> Tensor", {at::Tag::nondeterministic_seeded});
}

TORCH_LIBRARY_IMPL(more, CPU, m) {
  m.impl("scale", scale);
  m.impl("scale_", scaleInPlace);
  m.impl("parts", parts);
  m.impl("noise", noise);
}
