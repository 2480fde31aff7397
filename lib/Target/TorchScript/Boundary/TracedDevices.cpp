//===- TracedDevices.cpp - Devices that tracing wrote down ----------------===//

#include "TracedDevices.h"
#include "llvm/ADT/SmallPtrSet.h"
#include "llvm/ADT/SmallVector.h"
#include <torch/csrc/jit/api/function_impl.h>
#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/ir/ir.h>

using namespace koila::torchscript;
namespace tj = torch::jit;
using llvm::StringRef;

namespace {
/// Where a node says on which device its result is.
struct Place {
  tj::Node *node;
  size_t input;
};

/// How sure it is that tracing wrote the device.
enum class Origin {
  /// A script may have it, too.
  Unknown,
  /// No script spells it so.
  Trace
};

class DeviceFollower {
public:
  DeviceFollower(c10::Device device, bool isTraced)
      : device(device), isTraced(isTraced) {}

  /// `isRoot`: users call the methods.
  void follow(const c10::ClassTypePtr &type, bool isRoot);

private:
  void visit(tj::Block *block);
  bool isFollowed(const tj::Value *value) const;
  std::optional<Origin> classify(const tj::Node *node, size_t input) const;
  void replace(tj::Graph &graph, tj::Value *source);

  c10::Device device;
  bool isTraced;
  llvm::SmallVector<Place> known, unknown;
};
} // namespace

static bool isLiteral(const tj::Value *value,
                      llvm::function_ref<bool(const c10::IValue &)> is) {
  auto literal = tj::toIValue(value);
  return literal && is(*literal);
}

bool DeviceFollower::isFollowed(const tj::Value *value) const {
  return isLiteral(value, [&](const c10::IValue &literal) {
    if (!literal.isDevice() || literal.toDevice().type() != device.type())
      return false;
    // `cuda` is one of them.
    auto found = literal.toDevice();
    return !found.has_index() || !device.has_index() ||
           found.index() == device.index();
  });
}

/// None if it is no device of a result.
std::optional<Origin> DeviceFollower::classify(const tj::Node *node,
                                               size_t input) const {
  const c10::FunctionSchema *schema = node->maybeSchema();
  if (!schema || schema->is_vararg() ||
      schema->arguments().size() != node->inputs().size() ||
      !isFollowed(node->input(input)))
    return std::nullopt;
  auto find = [&](StringRef name) -> const tj::Value * {
    for (auto [index, argument] : llvm::enumerate(schema->arguments()))
      if (StringRef(argument.name()) == name)
        return node->input(index);
    return nullptr;
  };
  // Where a script leaves out an argument it is None; a trace has them all.
  const tj::Value *pinned = find("pin_memory"), *layout = find("layout"),
                  *dtype = find("dtype");
  auto isFalse = [](const c10::IValue &value) {
    return value.isBool() && !value.toBool();
  };
  auto isNumber = [](const c10::IValue &value) { return value.isInt(); };
  if (node->kind() != c10::aten::to)
    return pinned && isLiteral(pinned, isFalse) ? std::optional(Origin::Trace)
                                                : std::nullopt;
  if (layout && isLiteral(layout, isNumber))
    return Origin::Trace;
  if (!dtype || !isLiteral(dtype, isNumber))
    return std::nullopt;
  // What torch.tensor() made is a constant.
  bool isConstant = node->input(0)->node()->kind() == c10::prim::Constant;
  return isConstant || isTraced ? Origin::Trace : Origin::Unknown;
}

void DeviceFollower::visit(tj::Block *block) {
  for (tj::Node *node : block->nodes()) {
    for (size_t input = 0; input < node->inputs().size(); ++input) {
      if (node->input(input)->type()->kind() != c10::TypeKind::DeviceObjType)
        continue;
      if (auto origin = classify(node, input))
        (*origin == Origin::Trace ? known : unknown).push_back({node, input});
    }
    for (tj::Block *inner : node->blocks())
      visit(inner);
  }
}

/// An argument that is a tensor, and more than a number where that is known:
/// numbers may stay on the CPU.
static tj::Value *findArgument(tj::Graph &graph) {
  for (tj::Value *input : graph.inputs().slice(1)) {
    auto type = input->type()->cast<c10::TensorType>();
    if (type && type->sizes().size().value_or(1) > 0)
      return input;
  }
  return nullptr;
}

/// The name of a weight that the object holds itself.
static std::optional<std::string> findWeight(const c10::ClassType &type) {
  for (size_t i = 0; i < type.numAttributes(); ++i)
    if ((type.is_parameter(i) || type.is_buffer(i)) &&
        type.getAttribute(i)->kind() == c10::TypeKind::TensorType)
      return type.getAttributeName(i);
  return std::nullopt;
}

void DeviceFollower::replace(tj::Graph &graph, tj::Value *source) {
  tj::Node *read = graph.create(c10::prim::device, {source}, 1);
  read->output()->setType(c10::DeviceObjType::get());
  read->setSourceRange(known.front().node->sourceRange());
  if (source->node()->kind() == c10::prim::Param)
    graph.block()->prependNode(read);
  else
    read->insertAfter(source->node());
  for (const Place &place : known) {
    tj::Value *literal = place.node->input(place.input);
    place.node->replaceInput(place.input, read->output());
    if (literal->uses().empty())
      literal->node()->destroy();
  }
}

void DeviceFollower::follow(const c10::ClassTypePtr &type, bool isRoot) {
  for (tj::Function *function : type->methods()) {
    auto *traced = tj::tryToGraphFunction(*function);
    if (!traced)
      continue;
    std::shared_ptr<tj::Graph> graph = traced->graph();
    known.clear();
    unknown.clear();
    visit(graph->block());
    if (known.empty())
      continue;
    // One trace is a trace.
    known.append(unknown);
    // Of a part, a weight: what it is called with may be a number.
    tj::Value *source = isRoot ? findArgument(*graph) : nullptr;
    if (auto weight = source ? std::nullopt : findWeight(*type)) {
      tj::Node *get = graph->createGetAttr(graph->inputs()[0], *weight);
      get->setSourceRange(known.front().node->sourceRange());
      graph->block()->prependNode(get);
      source = get->output();
    }
    if (!source)
      source = findArgument(*graph);
    if (source)
      replace(*graph, source);
  }
}

void koila::torchscript::followDevice(const tj::Module &module,
                                      StringRef device, bool isTraced) {
  DeviceFollower follower(c10::Device(device.str()), isTraced);
  llvm::SmallPtrSet<const c10::ClassType *, 16> seen;
  auto visit = [&](const tj::Module &part, bool isRoot) {
    if (seen.insert(part.type().get()).second)
      follower.follow(part.type(), isRoot);
  };
  visit(module, /*isRoot=*/true);
  for (const tj::Module &part : module.modules())
    visit(part, /*isRoot=*/false);
}
