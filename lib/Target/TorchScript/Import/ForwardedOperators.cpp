//===- ForwardedOperators.cpp - Operators that call another ---------------===//

#include "ForwardedOperators.h"
#include "Graph.h"
#include "Lifetimes.h"
#include <optional>
#include <torch/csrc/jit/ir/constants.h>

using namespace koila::torchscript;
namespace tj = torch::jit;
namespace aten = c10::aten;

static const c10::Symbol kNorm =
    c10::Symbol::fromQualString("aten::linalg_norm");
static const c10::Symbol kMatrixNorm =
    c10::Symbol::fromQualString("aten::linalg_matrix_norm");
static const c10::Symbol kVectorNorm =
    c10::Symbol::fromQualString("aten::linalg_vector_norm");

static tj::Node *replace(tj::Node *node, c10::Symbol kind,
                         at::ArrayRef<tj::Value *> inputs) {
  tj::Graph &graph = *node->owningGraph();
  tj::WithInsertPoint guard(node);
  tj::Node *made = graph.create(kind, inputs);
  made->setSourceRange(node->sourceRange());
  made->setScope(node->scope());
  if (auto stack = node->callstack())
    made->setCallStack(*stack);
  graph.insertNode(made);
  node->output()->replaceAllUsesWith(made->output());
  node->destroy();
  return made;
}

/// `x[i] = 0.5` is a copy of a number to LibTorch's compiler, and fills when it
/// runs. Source: aten::copy_.float in register_prim_ops_fulljit.cpp.
static bool fillWithNumber(tj::Node *node) {
  if (node->kind() != aten::copy_ || node->inputs().size() != 2 ||
      node->input(1)->type()->kind() == c10::TypeKind::TensorType)
    return false;
  replace(node, aten::fill_, node->inputs());
  return true;
}

/// Whether `dims` is a literal list of one dim.
static bool isOneDim(tj::Value *dims) {
  if (dims->node()->kind() == c10::prim::ListConstruct)
    return dims->node()->inputs().size() == 1;
  auto literal = tj::toIValue(dims);
  return literal && literal->isIntList() && literal->toIntVector().size() == 1;
}

/// Without an order, or along one dim, it is the norm of vectors; so is
/// Frobenius's of matrices. Source: linalg_norm and linalg_matrix_norm in
/// native/LinearAlgebra.cpp.
static bool callVectorNorm(tj::Node *node) {
  bool ofMatrix = node->kind() == kMatrixNorm;
  if ((!ofMatrix && node->kind() != kNorm) || node->inputs().size() != 5)
    return false;
  auto order = tj::toIValue(node->input(1));
  std::vector<tj::Value *> inputs = node->inputs().vec();
  if (!order)
    return false;
  bool isPlain = ofMatrix ? order->isString() && order->toStringRef() == "fro"
                          : order->isNone();
  if (!isPlain && (ofMatrix || !order->isScalar() || !isOneDim(inputs[2])))
    return false;
  if (isPlain) {
    tj::WithInsertPoint guard(node);
    inputs[1] = node->owningGraph()->insertConstant(2);
  }
  replace(node, kVectorNorm, inputs);
  return true;
}

/// Three names of one view.
static bool callConjugateTranspose(tj::Node *node) {
  static const c10::Symbol kAdjoint =
      c10::Symbol::fromQualString("aten::adjoint");
  static const c10::Symbol kMatrixH =
      c10::Symbol::fromQualString("aten::matrix_H");
  if (node->kind() != kAdjoint && node->kind() != kMatrixH)
    return false;
  replace(node, c10::Symbol::fromQualString("aten::mH"), node->inputs());
  return true;
}

/// The ends of a range may be 0-dim tensors, as sizes are to the tracer; the
/// operator takes their numbers, and holds them until it is done. Source:
/// native/RangeFactories.cpp.
static bool callWithNumbers(tj::Node *node) {
  if ((node->kind() != aten::linspace && node->kind() != aten::logspace) ||
      node->inputs().size() < 2)
    return false;
  std::vector<tj::Value *> inputs = node->inputs().vec();
  std::vector<tj::Value *> held;
  for (size_t index : {0, 1}) {
    if (inputs[index]->type()->kind() != c10::TypeKind::TensorType)
      continue;
    held.push_back(inputs[index]);
    tj::WithInsertPoint guard(node);
    tj::Node *number =
        node->owningGraph()->create(aten::ScalarImplicit, {inputs[index]});
    number->output()->setType(c10::NumberType::get());
    number->setSourceRange(node->sourceRange());
    node->owningGraph()->insertNode(number);
    inputs[index] = number->output();
  }
  if (held.empty())
    return false;
  markLifetimes(replace(node, node->kind(), inputs), held);
  return true;
}

void koila::torchscript::forwardOperators(tj::Graph &graph) {
  std::vector<tj::Node *> nodes;
  collectNodes(graph.block(), nodes);
  for (tj::Node *node : nodes)
    if (!fillWithNumber(node) && !callConjugateTranspose(node) &&
        !callWithNumbers(node))
      callVectorNorm(node);
}
