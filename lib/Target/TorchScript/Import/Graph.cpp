//===- Graph.cpp - TorchScript graphs ready to be read --------------------===//

#include "Graph.h"
#include "../Boundary/Locations.h"
#include "../Export/ExecutorBarriers.h"
#include "ForwardedOperators.h"
#include "Lifetimes.h"
#include "koila/Target/PyTorchArchive/Refusal.h"
#include "koila/Target/TorchScript/TrainStep.h"
#include "koila/Target/TorchScript/Types.h"
#include "llvm/ADT/BitVector.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringSet.h"
#include <cmath>
#include <set>
#include <sstream>
#include <torch/csrc/jit/ir/constants.h>
#include <torch/csrc/jit/passes/canonicalize.h>
#include <torch/csrc/jit/passes/constant_pooling.h>
#include <torch/csrc/jit/passes/constant_propagation.h>
#include <torch/csrc/jit/passes/dead_code_elimination.h>
#include <torch/csrc/jit/passes/inliner.h>
#include <torch/csrc/jit/passes/lower_tuples.h>
#include <torch/csrc/jit/passes/peephole.h>
#include <torch/csrc/jit/passes/peephole_alias_sensitive.h>
#include <torch/csrc/jit/passes/peephole_dict_idioms.h>
#include <torch/csrc/jit/passes/peephole_list_idioms.h>
#include <torch/csrc/jit/passes/shape_analysis.h>
#include <unordered_map>

using namespace koila::torchscript;
namespace tj = torch::jit;
namespace prim = c10::prim;

static size_t countCalls(tj::Block *block) {
  size_t count = 0;
  for (tj::Node *node : block->nodes()) {
    count +=
        node->kind() == prim::CallMethod || node->kind() == prim::CallFunction;
    for (tj::Block *inner : node->blocks())
      count += countCalls(inner);
  }
  return count;
}

void koila::torchscript::collectNodes(tj::Block *block,
                                      std::vector<tj::Node *> &nodes) {
  for (tj::Node *node : block->nodes()) {
    nodes.push_back(node);
    for (tj::Block *inner : node->blocks())
      collectNodes(inner, nodes);
  }
}

namespace {
/// On the nodes that keep a write, and on writes whose way through LibTorch's
/// clean-up is followed; no other node that prints or writes has attributes.
const c10::Symbol kKeepsWrite = c10::Symbol::attr("keeps_write");

/// Whether the value may be the operand of an operator whose schema does not
/// say so; views and in-place operators between, whose schemas do, are looked
/// through.
bool hidesOperand(const tj::Value *value) {
  static const llvm::StringSet<> silent = {
      "aten::type_as",         "aten::sum_to_size",
      "aten::atleast_1d",      "aten::atleast_2d",
      "aten::atleast_3d",      "aten::broadcast_tensors",
      "aten::einsum",          "aten::meshgrid",
      "aten::dropout",         "aten::alpha_dropout",
      "aten::feature_dropout", "aten::feature_alpha_dropout"};
  constexpr int kMostSteps = 64;
  for (int step = 0; step < kMostSteps; ++step) {
    const tj::Node *node = value->node();
    if (silent.contains(node->kind().toQualString()))
      return true;
    const c10::FunctionSchema *schema = node->maybeSchema();
    bool looksThrough = node->kind() == prim::ListUnpack ||
                        (schema && !schema->returns().empty() &&
                         schema->returns()[0].alias_info());
    if (!looksThrough || node->inputs().empty())
      return false;
    value = node->input(0);
  }
  return true;
}

} // namespace

/// LibTorch goes by schemas, and drops such a write if nothing that may share
/// the storage is read.
std::vector<tj::Node *> koila::torchscript::getHiddenWrites(tj::Graph &graph) {
  std::vector<tj::Node *> nodes;
  collectNodes(graph.block(), nodes);
  llvm::erase_if(nodes, [](const tj::Node *node) {
    const c10::FunctionSchema *schema = node->maybeSchema();
    return !schema || !schema->is_mutable() || node->inputs().empty() ||
           !hidesOperand(node->input(0));
  });
  return nodes;
}

namespace {
/// Keeps hidden writes through a clean-up.
class KeptWrites {
public:
  explicit KeptWrites(tj::Graph &graph) : graph(graph) {
    for (tj::Node *node : getHiddenWrites(graph)) {
      tj::Value *value =
          node->outputs().empty() ? node->input(0) : node->output(0);
      // Nothing that prints is dead.
      tj::Node *reader = graph.create(prim::Print, {value}, /*num_outputs=*/0);
      reader->i_(kKeepsWrite, 1);
      reader->insertAfter(node);
    }
  }
  /// Those in branches that were decided are gone already.
  ~KeptWrites() {
    std::vector<tj::Node *> nodes;
    collectNodes(graph.block(), nodes);
    for (tj::Node *node : nodes)
      if (node->kind() == prim::Print && node->hasAttribute(kKeepsWrite))
        node->destroy();
  }

private:
  tj::Graph &graph;
};
} // namespace

/// One of `writes` that `eliminate`, which removes dead code, takes away.
static tj::Node *
findLost(tj::Graph &graph, const std::vector<tj::Node *> &writes,
         llvm::function_ref<void(std::shared_ptr<tj::Graph> &)> eliminate) {
  if (writes.empty())
    return nullptr;
  for (auto [index, node] : llvm::enumerate(writes))
    node->i_(kKeepsWrite, static_cast<int64_t>(index));
  std::shared_ptr<tj::Graph> read = graph.copy();
  eliminate(read);
  for (tj::Node *node : writes)
    node->removeAttribute(kKeepsWrite);
  std::vector<tj::Node *> nodes;
  collectNodes(read->block(), nodes);
  llvm::BitVector lost(writes.size(), true);
  for (const tj::Node *node : nodes)
    if (node->hasAttribute(kKeepsWrite))
      lost.reset(node->i(kKeepsWrite));
  int first = lost.find_first();
  return first < 0 ? nullptr : writes[first];
}

tj::Node *koila::torchscript::findLostWrite(tj::Graph &graph) {
  auto eliminate = [](std::shared_ptr<tj::Graph> &read) {
    tj::EliminateDeadCode(read);
  };
  return findLost(graph, getHiddenWrites(graph), eliminate);
}

tj::Node *
koila::torchscript::findLostUpdate(tj::Graph &graph,
                                   const std::vector<tj::Node *> &updates) {
  // Where it unrolls loops, LibTorch goes by schemas alone, and not by what it
  // knows of aliases. Source: UnrollLoops in
  // torch/csrc/jit/passes/loop_unrolling.cpp.
  auto eliminate = [](std::shared_ptr<tj::Graph> &read) {
    tj::EliminateDeadCode(read->block());
  };
  return findLost(graph, updates, eliminate);
}

bool koila::torchscript::writesStatistics(const tj::Node *node) {
  const c10::FunctionSchema *schema = node->maybeSchema();
  if (!schema || !schema->argumentIndexWithName("running_mean") ||
      llvm::StringRef(schema->name()).ends_with("_backward"))
    return false;
  for (llvm::StringRef name : {"training", "train", "use_input_stats"}) {
    auto index = schema->argumentIndexWithName(name.str());
    if (!index)
      continue;
    auto literal = tj::toIValue(node->input(*index));
    return !literal || !literal->isBool() || literal->toBool();
  }
  return true;
}

void koila::torchscript::refuseLostUpdate(tj::Node *node,
                                          mlir::MLIRContext *context) {
  refuse(getLocation(node, context),
         llvm::Twine("PyTorch would not make the update of '") +
             node->kind().toQualString() +
             "' when it runs the program, since nothing reads its result; "
             "return what is made of it, or leave the program as it is");
}

/// Runs a peephole pass. Where one changes something, it removes dead code by
/// schemas alone, and with it updates of running statistics which LibTorch
/// otherwise makes.
static void
runPeephole(std::shared_ptr<tj::Graph> &graph, mlir::MLIRContext *context,
            llvm::function_ref<void(std::shared_ptr<tj::Graph> &)> pass) {
  std::vector<tj::Node *> updates;
  collectNodes(graph->block(), updates);
  llvm::erase_if(updates, std::not_fn(writesStatistics));
  if (tj::Node *lost = findLost(*graph, updates, pass))
    refuseLostUpdate(lost, context);
  pass(graph);
}

static void inlineAll(tj::Graph &graph) {
  // One round inlines one level only while LibTorch's optimiser is off, which
  // is the caller's setting.
  size_t calls = countCalls(graph.block());
  do {
    tj::Inline(graph);
    size_t left = countCalls(graph.block());
    if (left == 0 || left == calls)
      break;
    calls = left;
  } while (true);
}

/// What a call runs, as it was compiled; null if it is not known.
static tj::Graph *getCallee(const tj::Node *call) {
  tj::Function *function = nullptr;
  if (call->kind() == prim::CallMethod) {
    if (auto type = call->input(0)->type()->cast<c10::ClassType>())
      function = type->findMethod(call->s(c10::attr::name));
  } else if (call->kind() == prim::CallFunction) {
    if (auto type = call->input(0)->type()->cast<c10::FunctionType>())
      function = type->function();
  }
  tj::GraphFunction *found =
      function ? tj::tryToGraphFunction(*function) : nullptr;
  return found ? found->graph().get() : nullptr;
}

/// How often running statistics are written, also by what is called; `known`
/// are graphs that have been counted.
static size_t countUpdates(tj::Graph &graph,
                           std::unordered_map<tj::Graph *, size_t> &known) {
  auto [entry, isNew] = known.try_emplace(&graph, 0);
  if (!isNew)
    return entry->second;
  std::vector<tj::Node *> nodes;
  collectNodes(graph.block(), nodes);
  size_t count = 0;
  for (const tj::Node *node : nodes)
    if (tj::Graph *callee = getCallee(node))
      count += countUpdates(*callee, known);
    else
      count += writesStatistics(node);
  return known[&graph] = count;
}

void koila::torchscript::inlineCalls(tj::Graph &graph) {
  std::unordered_map<tj::Graph *, size_t> counted, left;
  size_t updates = countUpdates(graph, counted);
  inlineAll(graph);
  // LibTorch optimises what is called first, and then goes by schemas. Source:
  // preoptimizeGraph in torch/csrc/jit/api/function_impl.cpp.
  if (countUpdates(graph, left) < updates)
    refuse("PyTorch would not make an update of running statistics when it "
           "runs the program, since nothing reads the result of that "
           "normalisation; return what is made of it, or leave the program as "
           "it is");
}

void koila::torchscript::clearGraph(tj::Graph &graph) {
  while (!graph.outputs().empty())
    graph.eraseOutput(0);
  for (auto it = graph.nodes().rbegin(); it != graph.nodes().rend(); ++it)
    it.destroyCurrent();
}

static bool hasSideEffects(tj::Node *node) {
  return node->hasSideEffects() ||
         llvm::any_of(node->blocks(), [](tj::Block *block) {
           return llvm::any_of(block->nodes(), hasSideEffects);
         });
}

/// Whether LibTorch's elimination of dead code may find any in `block`. Of
/// loops that is not looked at: what they carry may be read by itself alone.
static bool mayHaveDeadCode(tj::Block *block) {
  auto isRead = [](tj::Value *value) { return value->hasUses(); };
  return llvm::any_of(block->nodes(), [&](tj::Node *node) {
    if (node->kind() == prim::Loop || node->kind() == prim::fork)
      return true;
    if (llvm::none_of(node->outputs(), isRead) && !hasSideEffects(node))
      return true;
    // A branch need not give what nobody reads.
    return !node->blocks().empty() &&
           (!llvm::all_of(node->outputs(), isRead) ||
            llvm::any_of(node->blocks(), mayHaveDeadCode));
  });
}

static size_t countValues(tj::Block *block) {
  size_t count = block->inputs().size();
  for (tj::Node *node : block->nodes()) {
    count += 1 + node->outputs().size();
    for (tj::Block *inner : node->blocks())
      count += countValues(inner);
  }
  return count;
}

/// LibTorch goes from each live node up through all blocks around it, and in a
/// guard there is one for each fact. Whether there was any.
static bool removeDeadCode(std::shared_ptr<tj::Graph> &graph) {
  if (!mayHaveDeadCode(graph->block()))
    return false;
  size_t before = countValues(graph->block());
  tj::EliminateDeadCode(graph);
  return countValues(graph->block()) != before;
}

void koila::torchscript::cleanUpGraph(std::shared_ptr<tj::Graph> &graph) {
  KeptWrites kept(*graph);
  tj::LowerSimpleTuples(graph->block());
  bool isChanged = removeDeadCode(graph);
  isChanged |= tj::ConstantPropagationImmutableTypes(graph);
  tj::ConstantPooling(graph);
  // All aliases are found anew each time.
  if (isChanged)
    removeDeadCode(graph);
  // What loops carry comes in the order of its first use, when a program is
  // read.
  tj::CanonicalizeOutputs(graph);
}

namespace {
/// Makes literals of the attributes that the method reads and never writes.
class Specializer {
public:
  Specializer(const tj::Module &module, PreparedGraph &prepared,
              const std::vector<AssumedAttribute> &given)
      : prepared(prepared), given(given) {
    objects[prepared.graph->inputs()[0]] = {module._ivalue(), ""};
  }

  void run() {
    collect(prepared.graph->block());
    for (tj::Node *node : writes)
      if (!isKnown(node))
        writtenOfClass.insert({node->input(0)->type()->annotation_str(),
                               node->s(c10::attr::name)});
    // What one reader may change changes for all, under whatever name they
    // have it.
    for (tj::Node *node : reads)
      if (!isOnlyRead(node->output())) {
        if (isKnown(node))
          getValue(node).getSubValues(changed);
        else
          unknownChanges = true;
      }
    for (tj::Node *node : reads)
      if (isKnown(node))
        specialize(node);
  }

private:
  struct Owner {
    c10::intrusive_ptr<c10::ivalue::Object> object;
    std::string path;
  };

  void collect(tj::Block *block) {
    for (tj::Node *node : block->nodes()) {
      for (tj::Block *inner : node->blocks())
        collect(inner);
      bool reads = node->kind() == prim::GetAttr;
      if (!reads && node->kind() != prim::SetAttr)
        continue;
      (reads ? this->reads : writes).push_back(node);
      auto owner = objects.find(node->input(0));
      if (owner == objects.end())
        continue;
      // Objects, not paths: two paths may lead to the same one.
      const std::string &name = node->s(c10::attr::name);
      if (!reads) {
        written.insert({owner->second.object.get(), name});
        continue;
      }
      const std::string &path = owner->second.path;
      c10::IValue value = owner->second.object->getAttr(name);
      if (value.isObject())
        objects[node->output()] = {value.toObject(),
                                   path.empty() ? name : path + "." + name};
    }
  }

  /// Whether the object that the node reads or writes is the one that its path
  /// leads to when the program starts. A branch may choose another, and an
  /// attribute on the way may be assigned.
  bool isKnown(tj::Node *node) const {
    tj::Value *object = node->input(0);
    while (object->node()->kind() == prim::GetAttr) {
      tj::Node *read = object->node();
      object = read->input(0);
      if (!objects.count(object) ||
          written.count(
              {objects.at(object).object.get(), read->s(c10::attr::name)}))
        return false;
    }
    return objects.count(object);
  }

  /// Of values that never change.
  static bool isPlain(const c10::TypePtr &type) {
    switch (type->kind()) {
    case c10::TypeKind::BoolType:
    case c10::TypeKind::IntType:
    case c10::TypeKind::FloatType:
    case c10::TypeKind::StringType:
    case c10::TypeKind::NoneType:
      return true;
    default:
      return false;
    }
  }

  /// The value of an assumption, which names a member of an enum only.
  static c10::IValue getAssumed(const c10::TypePtr &type,
                                const c10::IValue &assumed) {
    auto members = type->cast<c10::EnumType>();
    if (!members)
      return assumed;
    for (const auto &[name, value] : members->enumNamesValues())
      if (name == assumed.toStringRef())
        return c10::IValue(
            c10::make_intrusive<c10::ivalue::EnumHolder>(members, name, value));
    refuse("no member of " + members->annotation_str() + " is named '" +
           assumed.toStringRef() + "'");
  }

  static bool isLiteral(const c10::TypePtr &type, const c10::IValue &value) {
    if (isPlain(type))
      return true;
    switch (type->kind()) {
    case c10::TypeKind::OptionalType:
      return value.isNone();
    case c10::TypeKind::ListType:
      // Not a number is not even equal to itself.
      return value.isIntList() || value.isBoolList() ||
             type->containedType(0)->kind() == c10::TypeKind::StringType ||
             (value.isDoubleList() &&
              llvm::none_of(value.toDoubleVector(),
                            [](double number) { return std::isnan(number); }));
    case c10::TypeKind::DictType:
      return llvm::all_of(value.toGenericDict(), [&](const auto &entry) {
        return isLiteral(type->containedType(0), entry.key()) &&
               isLiteral(type->containedType(1), entry.value());
      });
    case c10::TypeKind::TupleType:
      return isLiteralTuple(*type->expect<c10::TupleType>(), value);
    default:
      return false;
    }
  }

  /// Nothing inside may change, or be another type than it is declared.
  static bool isLiteralTuple(const c10::TupleType &type,
                             const c10::IValue &value) {
    return !type.schema() &&
           llvm::all_of(
               llvm::zip_equal(type.elements(), value.toTupleRef().elements()),
               [](const auto &entry) {
                 const auto &[declared, element] = entry;
                 return declared->kind() != c10::TypeKind::ListType &&
                        declared->kind() != c10::TypeKind::DictType &&
                        declared->kind() != c10::TypeKind::OptionalType &&
                        isLiteral(declared, element);
               });
  }

  static bool mayHoldList(const c10::TypePtr &type) {
    return !isPlain(type) && type->kind() != c10::TypeKind::TensorType &&
           type->kind() != c10::TypeKind::EnumType;
  }

  /// Whether the user takes the value as it is and hands it on to nobody.
  static bool isRead(const tj::Use &use) {
    // Lists that are read from an object are asked about on their own.
    if (use.user->kind() == prim::GetAttr)
      return true;
    if (use.user->kind() == prim::SetAttr)
      return use.offset == 0;
    const c10::FunctionSchema *schema = use.user->maybeSchema();
    if (!schema || schema->is_vararg() || schema->is_varret() ||
        use.offset >= schema->arguments().size())
      return false;
    // A write, or a container that keeps it.
    const c10::AliasInfo *alias = schema->arguments()[use.offset].alias_info();
    if (alias &&
        (alias->isWrite() || alias->beforeSets() != alias->afterSets()))
      return false;
    return llvm::none_of(
        llvm::zip(use.user->outputs(), schema->returns()),
        [](const auto &entry) {
          const auto &[output, declared] = entry;
          // A list that the schema says nothing of is a new one, and one of
          // tensors holds no list.
          if (auto list = output->type()->template cast<c10::ListType>())
            return declared.alias_info() &&
                   list->getElementType()->kind() != c10::TypeKind::TensorType;
          return mayHoldList(output->type());
        });
  }

  static bool isOnlyRead(const tj::Value *value) {
    return !mayHoldList(value->type()) || llvm::all_of(value->uses(), isRead);
  }

  c10::IValue getValue(tj::Node *read) const {
    return objects.at(read->input(0)).object->getAttr(read->s(c10::attr::name));
  }

  /// LibTorch takes nothing out of a constant list, since lists may change.
  void replaceElements(tj::Value *list, c10::ArrayRef<c10::IValue> elements) {
    auto count = static_cast<int64_t>(elements.size());
    for (const tj::Use &use : list->uses()) {
      if (use.user->kind() != c10::aten::__getitem__)
        continue;
      auto index = tj::toIValue(use.user->input(1));
      if (!index || index->toInt() < -count || index->toInt() >= count)
        continue;
      int64_t at = index->toInt() + (index->toInt() < 0 ? count : 0);
      use.user->output()->replaceAllUsesWith(
          prepared.graph->insertConstant(elements[at]));
    }
  }

  bool isWritten(const Owner &owner, const std::string &name) const {
    return written.count({owner.object.get(), name}) ||
           writtenOfClass.count({owner.object->type()->annotation_str(), name});
  }

  /// The attribute of `owner` that is `tensor` itself; empty if there is none.
  std::string findTensor(const Owner &owner, const at::Tensor &tensor) const {
    const c10::ClassTypePtr &type = owner.object->type();
    for (size_t slot = 0; slot < type->numAttributes(); ++slot) {
      const c10::IValue &value = owner.object->getSlot(slot);
      const std::string &name = type->getAttributeName(slot);
      if (value.isTensor() && value.toTensor().is_same(tensor) &&
          !isWritten(owner, name))
        return name;
    }
    return {};
  }

  /// A layer may have its weights in a list as well, as nn.LSTM has.
  void replaceTensors(tj::Node *node, const Owner &owner,
                      const c10::IValue &list) {
    std::vector<std::string> names;
    for (const at::Tensor &tensor : list.toTensorVector()) {
      std::string name;
      if (tensor.defined())
        name = findTensor(owner, tensor);
      if (name.empty())
        return;
      names.push_back(name);
    }
    tj::WithInsertPoint guard(node);
    std::vector<tj::Value *> tensors;
    for (const std::string &name : names)
      tensors.push_back(prepared.graph->insertGetAttr(node->input(0), name));
    tj::Node *made = prepared.graph->createList(
        node->output()->type()->containedType(0), tensors);
    made->setSourceRange(node->sourceRange());
    node->output()->replaceAllUsesWith(
        prepared.graph->insertNode(made)->output());
  }

  void specialize(tj::Node *node) {
    const Owner &owner = objects.at(node->input(0));
    const std::string &name = node->s(c10::attr::name);
    c10::IValue value = getValue(node);
    if (isWritten(owner, name) || node->output()->uses().empty() ||
        ((value.isList() || value.isGenericDict()) &&
         (unknownChanges || changed.count(value))))
      return;
    if (value.isTensorList())
      return replaceTensors(node, owner, value);
    if (!value.isEnum() && !isLiteral(node->output()->type(), value))
      return;
    std::string path = owner.path.empty() ? name : owner.path + "." + name;
    for (const AssumedAttribute &assumption : given)
      if (assumption.path == path)
        value = getAssumed(node->output()->type(), assumption.value);
    if (value.isGenericDict()) {
      // No constant of a program is a dict.
      if (foldReaders(node->output(), value) && paths.insert(path).second)
        prepared.assumed.push_back({path, value});
      return;
    }
    tj::WithInsertPoint guard(node);
    tj::Value *literal = prepared.graph->insertConstant(value);
    if (value.isList())
      replaceElements(node->output(), value.toListRef());
    node->output()->replaceAllUsesWith(literal);
    if (paths.insert(path).second)
      prepared.assumed.push_back({path, value});
  }

  PreparedGraph &prepared;
  const std::vector<AssumedAttribute> &given;
  std::unordered_map<const tj::Value *, Owner> objects;
  std::set<std::pair<const c10::ivalue::Object *, std::string>> written;
  /// By class and name, of objects that are not known.
  std::set<std::pair<std::string, std::string>> writtenOfClass;
  c10::IValue::HashAliasedIValues changed;
  bool unknownChanges = false;
  std::vector<tj::Node *> reads, writes;
  std::set<std::string> paths;
};
} // namespace

/// As LibTorch does before it runs a method: what is read of a list or dict
/// that nobody changes is what was put there, so that the container keeps
/// nothing.
static void foldLiterals(std::shared_ptr<tj::Graph> &graph,
                         mlir::MLIRContext *context) {
  std::vector<tj::Node *> nodes;
  collectNodes(graph->block(), nodes);
  // LibTorch analyses all aliases, which takes a while.
  bool any = llvm::any_of(nodes, [](tj::Node *node) {
    return (node->kind() == prim::ListConstruct ||
            node->kind() == prim::DictConstruct) &&
           mayHoldTensor(node->output()->type()) &&
           llvm::any_of(node->output()->uses(), [](const tj::Use &use) {
             return use.user->kind() == c10::aten::__getitem__ ||
                    use.user->kind() == c10::aten::len ||
                    use.user->kind() == c10::aten::slice ||
                    use.user->kind() == c10::aten::add ||
                    use.user->kind() == prim::ListUnpack;
           });
  });
  if (!any)
    return;
  runPeephole(graph, context, [](std::shared_ptr<tj::Graph> &graph) {
    tj::PeepholeOptimizeListIdioms(graph);
    tj::PeepholeOptimizeDictIdioms(graph);
  });
}

/// As LibTorch does before it runs a method: branches on literals and loops
/// that do not turn are gone, and keep nothing.
static void decideLiterals(std::shared_ptr<tj::Graph> &graph) {
  std::vector<tj::Node *> nodes;
  collectNodes(graph->block(), nodes);
  if (llvm::none_of(nodes, [](const tj::Node *node) {
        return node->kind() == prim::If || node->kind() == prim::Loop;
      }))
    return;
  KeptWrites kept(*graph);
  tj::ConstantPropagationImmutableTypes(graph);
}

/// As LibTorch does before it runs a method, with tuples as they are: what a
/// mark keeps would not be dead.
static void dropDeadCode(std::shared_ptr<tj::Graph> &graph) {
  KeptWrites kept(*graph);
  // A list that is gone after the first time may have hidden what is not
  // written.
  removeDeadCode(graph);
  removeDeadCode(graph);
}

/// As LibTorch does before it runs a method: what changes nothing is gone where
/// nobody can tell.
static void dropIdleNodes(std::shared_ptr<tj::Graph> &graph,
                          mlir::MLIRContext *context) {
  std::vector<tj::Node *> nodes;
  collectNodes(graph->block(), nodes);
  // LibTorch analyses all aliases, which takes a while.
  if (llvm::none_of(nodes, [](tj::Node *node) {
        return changesNothing(node, /*profiles=*/false);
      }))
    return;
  // The executor forgets what tracing saw.
  tj::EraseShapeInformation(graph);
  runPeephole(graph, context, [](std::shared_ptr<tj::Graph> &graph) {
    tj::PeepholeOptimizeAliasSensitive(graph, /*shape_peepholes=*/true);
  });
  dropDeadCode(graph);
  nodes.clear();
  collectNodes(graph->block(), nodes);
  for (tj::Node *node : nodes)
    if (changesNothing(node, /*profiles=*/false))
      node->i_(kStays, 1);
}

/// Whether a value of `type` is of one of `types`; none where values decide.
static std::optional<bool> isOfType(const c10::TypePtr &type,
                                    llvm::ArrayRef<c10::TypePtr> types) {
  if (llvm::any_of(types, [&](const c10::TypePtr &asked) {
        return type->isSubtypeOf(*asked);
      }))
    return true;
  bool isOpen = type->castRaw<c10::UnionType>() ||
                type->kind() == c10::TypeKind::AnyType ||
                type->kind() == c10::TypeKind::InterfaceType ||
                type->kind() == c10::TypeKind::NumberType;
  bool mayBe = isOpen || llvm::any_of(types, [&](const c10::TypePtr &asked) {
                 return asked->isSubtypeOf(*type);
               });
  return mayBe ? std::nullopt : std::optional(false);
}

/// An argument that may be of several types is of one where a call is inlined.
/// LibTorch asks while it runs.
static void decideTypes(tj::Graph &graph) {
  std::vector<tj::Node *> nodes;
  collectNodes(graph.block(), nodes);
  for (tj::Node *node : nodes) {
    if (node->kind() != prim::isinstance || node->inputs().size() != 1)
      continue;
    auto known = isOfType(node->input(0)->type(), node->tys(c10::attr::types));
    if (!known)
      continue;
    tj::WithInsertPoint guard(node);
    node->output()->replaceAllUsesWith(graph.insertConstant(*known));
    node->destroy();
  }
}

static size_t countStaying(tj::Graph &graph) {
  std::vector<tj::Node *> nodes;
  collectNodes(graph.block(), nodes);
  return llvm::count_if(
      nodes, [](tj::Node *node) { return node->hasAttribute(kStays); });
}

PreparedGraph koila::torchscript::prepareGraph(
    const tj::Module &module, const tj::Method &method,
    const std::vector<AssumedAttribute> &given, mlir::MLIRContext *context) {
  PreparedGraph prepared;
  prepared.profiles = method.name() == kTrainStep;
  prepared.graph = tj::toGraphFunction(method.function()).graph()->copy();
  // Shapes of recorded examples hold for the examples only.
  for (tj::Value *input : prepared.graph->inputs())
    if (input->type()->kind() == c10::TypeKind::TensorType)
      input->setType(c10::TensorType::get());
  inlineCalls(*prepared.graph);
  removeFences(*prepared.graph);
  forwardOperators(*prepared.graph);
  foldLiterals(prepared.graph, context);
  decideLiterals(prepared.graph);
  dropDeadCode(prepared.graph);
  dropIdleNodes(prepared.graph, context);
  markLifetimes(*prepared.graph);
  decideTypes(*prepared.graph);
  Specializer(module, prepared, given).run();
  cleanUpGraph(prepared.graph);
  // Before LibTorch drops what changes nothing.
  prepared.lifetimes =
      describeShortenedLives(*prepared.graph, prepared.profiles);
  size_t staying = countStaying(*prepared.graph);
  do {
    // A branch that is gone may have been all that stood between a test for
    // None and what it tests.
    if (!prepared.assumed.empty())
      runPeephole(prepared.graph, context,
                  [](std::shared_ptr<tj::Graph> &graph) {
                    tj::PeepholeOptimize(graph, /*addmm_fusion_enabled=*/false);
                  });
    cleanUpGraph(prepared.graph);
    takeMarkedTuplesApart(*prepared.graph);
    // What a dict is known to have may decide further branches.
  } while (unfoldContainers(*prepared.graph));
  // Here LibTorch could, once attributes are known.
  if (prepared.lifetimes.empty() && countStaying(*prepared.graph) < staying)
    prepared.lifetimes = kDropsIdle;
  prepared.keptAlive = takeKeptAlive(*prepared.graph);
  // Marks were uses, too.
  tj::CanonicalizeOutputs(prepared.graph);
  collectNodes(prepared.graph->block(), prepared.nodes);
  return prepared;
}

namespace {
/// Spells a graph with values numbered in order of definition.
class NormalForm {
public:
  std::string run(const tj::Graph &graph) {
    for (const tj::Value *input : graph.inputs())
      define(input);
    print(graph.block(), 0);
    return os.str();
  }

private:
  void define(const tj::Value *value) {
    names.emplace(value, "%" + std::to_string(names.size()));
  }

  std::string getName(const tj::Value *value) {
    if (auto it = names.find(value); it != names.end())
      return it->second;
    const tj::Node *node = value->node();
    std::ostringstream text;
    if (node->kind() == prim::GetAttr) {
      text << getName(node->input()) << "." << node->s(c10::attr::name);
    } else if (auto constant = tj::toIValue(value)) {
      if (constant->isTensor()) {
        const at::Tensor &tensor = constant->toTensor();
        text << "tensor<" << tensor.toString() << tensor.sizes() << ">";
      } else {
        text << constant->tagKind() << " " << *constant;
      }
    } else {
      text << "?";
    }
    return text.str();
  }

  void print(const tj::Block *block, int depth) {
    for (const tj::Node *node : block->nodes()) {
      if (node->kind() == prim::Constant || node->kind() == prim::GetAttr)
        continue;
      os << std::string(depth, ' ') << node->kind().toQualString();
      for (tj::Symbol name : node->attributeNames()) {
        // A serial number that the parser gives.
        if (name == c10::attr::warn_id || name == kShortens || name == kStays)
          continue;
        os << " " << name.toUnqualString();
        if (node->kindOf(name) == tj::AttributeKind::s)
          os << "=" << node->s(name);
      }
      os << "(";
      for (const tj::Value *input : node->inputs())
        os << getName(input) << ", ";
      os << ")";
      for (const tj::Value *output : node->outputs()) {
        define(output);
        os << " " << getName(output);
      }
      os << "\n";
      for (const tj::Block *inner : node->blocks()) {
        os << std::string(depth, ' ') << "{";
        for (const tj::Value *input : inner->inputs()) {
          define(input);
          os << " " << getName(input);
        }
        os << "\n";
        print(inner, depth + 1);
        os << std::string(depth, ' ') << "}\n";
      }
    }
    os << std::string(depth, ' ') << "->";
    for (const tj::Value *output : block->outputs())
      os << " " << getName(output);
    os << "\n";
  }

  std::unordered_map<const tj::Value *, std::string> names;
  std::ostringstream os;
};
} // namespace

std::string koila::torchscript::getNormalForm(const tj::Graph &graph) {
  return NormalForm().run(graph);
}
