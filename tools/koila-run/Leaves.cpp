//===- Leaves.cpp - What a call returns and changes -----------------------===//

#include "Leaves.h"
#include "Inputs.h"
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Functions.h>
#include <sstream>
#include <torch/csrc/autograd/autograd.h>

using namespace koila::run;

static void collect(const c10::IValue &value, const std::string &path,
                    std::vector<Leaf> &leaves) {
  if (value.isTensor()) {
    at::Tensor tensor = value.toTensor();
    if (tensor.defined())
      leaves.push_back({path, tensor.detach(), ""});
    else
      leaves.push_back({path, {}, "undefined tensor"});
    return;
  }
  // Numbers are compared as tensors without dims.
  if (value.isBool() || value.isInt()) {
    int64_t number = value.isBool() ? value.toBool() : value.toInt();
    leaves.push_back({path, at::scalar_tensor(number, at::kLong), ""});
    return;
  }
  if (value.isDouble()) {
    leaves.push_back(
        {path, at::scalar_tensor(value.toDouble(), at::kDouble), ""});
    return;
  }
  if (value.isList() || value.isTuple()) {
    size_t index = 0;
    auto visit = [&](const c10::IValue &element, const std::string &name) {
      std::string inner = path;
      if (name.empty())
        inner.append("[").append(std::to_string(index)).append("]");
      else
        inner.append(".").append(name);
      collect(element, inner, leaves);
      ++index;
    };
    if (value.isList()) {
      for (const c10::IValue &element : value.toListRef())
        visit(element, "");
      return;
    }
    // Named tuples have a schema with the names of their fields.
    auto type = value.type()->expect<c10::TupleType>();
    auto names = type->names();
    for (const c10::IValue &element : value.toTupleRef().elements())
      visit(element,
            names && index < names->size() ? std::string((*names)[index]) : "");
    return;
  }
  if (value.isGenericDict()) {
    for (const auto &entry : value.toGenericDict()) {
      std::ostringstream key;
      key << entry.key();
      collect(entry.value(), path + "[" + key.str() + "]", leaves);
    }
    return;
  }
  if (value.isObject()) {
    auto object = value.toObject();
    auto type = object->type();
    for (size_t index = 0; index < type->numAttributes(); ++index)
      collect(object->getSlot(index),
              path + "." + type->getAttributeName(index), leaves);
    return;
  }
  std::ostringstream text;
  text << value;
  leaves.push_back({path, {}, text.str()});
}

std::vector<Leaf> koila::run::getLeaves(const c10::IValue &value) {
  std::vector<Leaf> leaves;
  collect(value, "output", leaves);
  return leaves;
}

/// Every tensor in `value`, in order.
static void collectTensors(const c10::IValue &value,
                           std::vector<at::Tensor> &tensors) {
  mapTensors(value, [&](const at::Tensor &tensor) {
    tensors.push_back(tensor);
    return tensor;
  });
}

/// Runs backward from the outputs that a gradient can flow from.
static void runBackward(const c10::IValue &result, uint64_t seed) {
  std::vector<at::Tensor> tensors, roots, gradients;
  collectTensors(result, tensors);
  for (const at::Tensor &tensor : tensors) {
    if (!tensor.requires_grad())
      continue;
    // Multiples of 1/8, which every floating dtype has: a float64 copy of the
    // program gets the same.
    auto generator = at::make_generator<at::CPUGeneratorImpl>(
        seed * 1000003 + 29 * (roots.size() + 1));
    roots.push_back(tensor);
    gradients.push_back(at::randint(-8, 9, tensor.sizes(), generator,
                                    at::TensorOptions().dtype(at::kFloat))
                            .div_(8)
                            .to(tensor.scalar_type()));
  }
  if (!roots.empty())
    torch::autograd::backward(roots, gradients);
}

std::vector<Leaf>
koila::run::runProgram(const torch::jit::Module &module,
                       const std::string &path, const CallMode &mode,
                       const std::vector<c10::IValue> &inputs) {
  std::vector<at::Tensor> leafTensors, savedGradients;
  std::vector<std::string> names;
  if (mode.gradMode) {
    for (const auto &parameter : module.named_parameters()) {
      names.push_back(parameter.name);
      leafTensors.push_back(parameter.value);
    }
    for (const c10::IValue &input : inputs)
      collectTensors(input, leafTensors);
    for (at::Tensor &tensor : leafTensors)
      savedGradients.push_back(std::exchange(tensor.mutable_grad(), {}));
  }
  c10::IValue result = call(module, path, mode, inputs);
  std::vector<Leaf> leaves = getLeaves(result);
  for (const auto &buffer : module.named_buffers())
    if (buffer.value.defined())
      leaves.push_back({"buffer " + buffer.name, buffer.value.detach().clone(),
                        "", Leaf::Kind::Buffer});
  if (!mode.gradMode)
    return leaves;
  runBackward(result, mode.seed);
  for (size_t index = 0; index < leafTensors.size(); ++index) {
    at::Tensor gradient = std::exchange(leafTensors[index].mutable_grad(),
                                        std::move(savedGradients[index]));
    std::string name = index < names.size()
                           ? names[index]
                           : "input " + std::to_string(index - names.size());
    if (gradient.defined())
      leaves.push_back(
          {"gradient of " + name, gradient.detach(), "", Leaf::Kind::Gradient});
  }
  return leaves;
}
