//===- DoubleProgram.cpp - A program in float64 ---------------------------===//

#include "DoubleProgram.h"
#include <ATen/core/grad_mode.h>
#include <map>
#include <optional>
#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/ir/ir.h>
#include <torch/csrc/jit/passes/inliner.h>

using namespace koila::run;
namespace tj = torch::jit;

static at::Tensor toDouble(const at::Tensor &tensor) {
  if (!tensor.defined())
    return tensor;
  if (tensor.is_floating_point())
    return tensor.to(at::kDouble);
  return tensor.is_complex() ? tensor.to(at::kComplexDouble) : tensor;
}

/// The code to use for a dtype code; none if it stays.
static std::optional<int64_t> getDoubleCode(int64_t code) {
  if (code < 0 || code >= static_cast<int64_t>(at::ScalarType::NumOptions))
    return std::nullopt;
  auto type = static_cast<at::ScalarType>(code);
  if (at::isFloatingType(type) && type != at::kDouble)
    return static_cast<int64_t>(at::kDouble);
  if (at::isComplexType(type) && type != at::kComplexDouble)
    return static_cast<int64_t>(at::kComplexDouble);
  return std::nullopt;
}

static bool isDType(const tj::Value *value) {
  return value->node()->kind() == c10::prim::dtype;
}

/// Whether input `index` of `node` is a dtype.
static bool takesDType(tj::Node *node, size_t index) {
  if (node->kind() == c10::aten::eq || node->kind() == c10::aten::ne)
    return node->inputs().size() == 2 && isDType(node->input(1 - index));
  const c10::FunctionSchema *schema = node->maybeSchema();
  return schema && index < schema->arguments().size() &&
         schema->arguments()[index].name() == "dtype";
}

/// Rewrites the node's dtype operands and constants. Constants are pooled: a
/// 6 may be a dtype here and a dim there, so each use gets its own.
static void rewrite(tj::Node *node) {
  if (node->kind() == c10::prim::Constant &&
      node->output()->type()->kind() == c10::TypeKind::TensorType &&
      node->hasAttribute(c10::attr::value) &&
      node->kindOf(c10::attr::value) == tj::AttributeKind::t) {
    node->t_(c10::attr::value, toDouble(node->t(c10::attr::value)));
    node->output()->setType(c10::TensorType::get());
    return;
  }
  for (size_t index = 0; index < node->inputs().size(); ++index) {
    std::optional<c10::IValue> constant = tj::toIValue(node->input(index));
    if (!constant || !constant->isInt() || !takesDType(node, index))
      continue;
    std::optional<int64_t> code = getDoubleCode(constant->toInt());
    if (!code)
      continue;
    tj::WithInsertPoint guard(node);
    node->replaceInput(index, node->owningGraph()->insertConstant(*code));
  }
  // `y.to(x)` and the like were typed by the given dtype; nothing below may
  // rely on it.
  for (tj::Value *output : node->outputs())
    if (output->type()->kind() == c10::TypeKind::TensorType)
      output->setType(c10::TensorType::get());
}

static void rewrite(tj::Block *block) {
  for (auto it = block->nodes().begin(); it != block->nodes().end(); ++it) {
    rewrite(*it);
    for (tj::Block *inner : it->blocks())
      rewrite(inner);
  }
}

/// Makes one tensor of `to` of what is one in `from`: a clone has one for each
/// attribute, so that tied weights would get a part of their gradient each.
static void tie(const tj::Module &from, tj::Module to,
                std::map<const void *, at::Tensor> &copies) {
  for (const auto &[name, value] : from.named_attributes(/*recurse=*/false)) {
    if (!value.isTensor() || !value.toTensor().defined())
      continue;
    auto [found, isFirst] = copies.try_emplace(
        value.toTensor().unsafeGetTensorImpl(), to.attr(name).toTensor());
    if (!isFirst)
      to.setattr(name, found->second);
  }
  for (const auto &[name, child] : from.named_children())
    tie(child, to.attr(name).toModule(), copies);
}

tj::Module koila::run::makeDoubleProgram(const tj::Module &module,
                                         const std::string &method) {
  // With grad mode on, clone makes tensors that are results of a copy.
  at::NoGradGuard noGrad;
  // New types and graphs, so that the given program stays as it is.
  tj::Module copy = module.clone();
  std::map<const void *, at::Tensor> copies;
  tie(module, copy, copies);
  auto original = module.parameters().begin();
  for (at::Tensor parameter : copy.parameters()) {
    bool requiresGrad = (*original++).requires_grad();
    if (!parameter.defined())
      continue;
    parameter.set_data(toDouble(parameter));
    parameter.requires_grad_(requiresGrad);
  }
  for (at::Tensor buffer : copy.buffers())
    if (buffer.defined())
      buffer.set_data(toDouble(buffer));
  auto graph = tj::toGraphFunction(copy.get_method(method).function()).graph();
  // Calls first: the graphs of free functions are shared with `module`.
  tj::Inline(*graph);
  for (tj::Value *input : graph->inputs())
    if (input->type()->kind() == c10::TypeKind::TensorType)
      input->setType(c10::TensorType::get());
  rewrite(graph->block());
  return copy;
}
