//===- EmitGuard.cpp - What a changed program checks at entry -------------===//
//
// A program whose branches were decided holds for what they were decided by,
// and a tiled one for shapes, too: slices clamp and `copy_` broadcasts, so that
// it would answer where the original raises. The guard compares everything
// first, allocates nothing, and never raises on its own: a rank is compared
// before an extent is read. It computes one text, empty if all facts hold.
//
//===----------------------------------------------------------------------===//

#include "../../Boundary/DiagnosticJSON.h"
#include "../../Import/ProgramDevice.h"
#include "../Emit.h"
#include "../TileAttribute.h"
#include "DeviceFact.h"
#include "koila/Analysis/RequiresGradAnalysis.h"
#include "koila/Dialect/Koila/IR/DType.h"
#include "koila/Dialect/Koila/Transforms/BatchTiling.h"
#include "koila/Target/TorchScript/Types.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/MapVector.h"
#include <c10/core/ScalarType.h>
#include <torch/csrc/jit/passes/inliner.h>
#include <utility>

using namespace mlir;
using namespace koila;
using namespace koila::torchscript;
namespace tj = torch::jit;
namespace prim = c10::prim;
namespace aten = c10::aten;
using llvm::Twine;

namespace {
class GuardEmitter {
public:
  using TorchValue = tj::Value;

  GuardEmitter(GraphEmitter &emitter, func::FuncOp function,
               const tj::Module &module, const TileAttributes &attributes)
      : emitter(emitter), graph(emitter.getGraph()), function(function),
        module(module), attributes(attributes),
        tiled(
            function->getAttrOfType<DictionaryAttr>(KoilaDialect::kTiledAttr)),
        trains(tiled && runsBackward(function)) {}

  TorchValue *emit(const GuardedMethods &methods);

private:
  void collectFacts();
  /// The text of the first fact from `index` on that fails, "" for none.
  TorchValue *emitFacts(size_t index);
  TorchValue *emitCondition(AssumeOp fact);
  TorchValue *emitGradCondition(TorchValue *weights);
  /// A text where a gradient would be recorded, unless something has `failed`
  /// (null: nothing) before.
  TorchValue *emitGradFact(TorchValue *failed);
  /// The weights that the function reads; null if none.
  TorchValue *listWeights();
  /// An argument, or else a weight, that says on which device the program runs,
  /// with what messages call it; null if there is none.
  std::pair<TorchValue *, std::string> findPlace(bool knowsArguments);
  /// The device to which the program moves its arguments; null if it does not.
  const ProgramDevice *getMover();
  /// A text where tensors are on several devices, unless something has `failed`
  /// before.
  TorchValue *emitDeviceFact(TorchValue *failed);
  /// A text where the untiled program would draw other random numbers than the
  /// tiles, on a device of another type, unless something has `failed` before.
  TorchValue *emitDrawsFact(TorchValue *failed);
  TorchValue *makeList(const std::vector<TorchValue *> &tensors);
  /// Whether one of them requires a gradient.
  TorchValue *emitAnyRequiresGrad(TorchValue *list);
  /// Whether the arguments of a training step require gradients as they did
  /// when it was tiled; null if none can.
  TorchValue *emitArgumentsCondition();
  std::string getMessage(AssumeOp fact);
  TorchValue *evaluate(DimExprAttr expr, Operation *op);
  TorchValue *evaluateFactor(Attribute factor, Operation *op);
  TorchValue *emitIf(TorchValue *condition, const c10::TypePtr &type,
                     llvm::function_ref<TorchValue *()> thenBody,
                     llvm::function_ref<TorchValue *()> elseBody) {
    return emitter.branch(condition, type, thenBody, elseBody);
  }
  /// Calls the method with the arguments of the guard.
  TorchValue *callMethod(const std::string &name,
                         llvm::ArrayRef<TorchValue *> inputs);
  TorchValue *callUntiled(const GuardedMethods &methods);
  /// Whether the batch is as large as the shapes need that were tiled; null if
  /// any is.
  TorchValue *emitLeastCondition();
  int64_t getLeastBatch() const;
  /// Whether there are more than `samples`; null if no argument tells.
  TorchValue *isBatchAbove(int64_t samples);
  /// Says so if the batch is above what the budget holds for.
  void warnOfLargeBatch();
  /// The plan that is chosen, of those from `plan` on.
  TorchValue *callPlan(const GuardedMethods &methods, const c10::TypePtr &type,
                       llvm::ArrayRef<TorchValue *> arguments, int64_t plan);
  /// What runs where all facts hold.
  TorchValue *callGuarded(const GuardedMethods &methods,
                          const c10::TypePtr &type);
  TorchValue *isOfType(TorchValue *tensor, Type type);
  /// A weight; a scripted class may declare it as optional.
  TorchValue *readWeight(ParamGetOp get);
  /// What PyTorch and the user may set, and tiles do not follow: their buffers
  /// have the types that koila knew.
  void requireSettings(
      llvm::function_ref<void(TorchValue *condition, const Twine &message)>
          require);
  /// As emitFacts, of the attributes first: reading them cannot fail.
  TorchValue *emitAllFacts();
  TorchValue *emitLiteralCondition(TorchValue *value, Attribute expected);
  TorchValue *emitDictCondition(TorchValue *dict, DictionaryAttr expected);
  TorchValue *emitTupleCondition(TorchValue *tuple, ArrayAttr expected);
  void warn(TorchValue *text);
  TorchValue *getSize(AssumeOp fact) {
    return emitter.call("aten::size",
                        {getTensor(fact), emitter.integer(*fact.getDim())});
  }
  BlockArgument getArgument(AssumeOp fact);
  /// `koila: argument 'x'`.
  std::string getArgumentName(BlockArgument argument);
  /// The tensor that `fact` speaks of, which is known not to be None.
  TorchValue *getTensor(AssumeOp fact);
  /// Reads the optional arguments again, where it is known that all facts hold:
  /// what the comparisons read ends with their blocks.
  void castPresent();
  /// Whether it may be None, as far as has been compared.
  bool isOptional(AssumeOp fact);
  TorchValue *text(const Twine &message) {
    return emitter.constant(message.str());
  }

  GraphEmitter &emitter;
  tj::Graph &graph;
  func::FuncOp function;
  const tj::Module &module;
  const TileAttributes &attributes;
  /// Null for an untiled function.
  DictionaryAttr tiled;
  /// Whether it is a training step, in tiles.
  bool trains;
  llvm::SmallVector<AssumeOp> facts, attributeFacts;
  /// What listWeights() made, with their names.
  TorchValue *weightList = nullptr;
  std::vector<std::string> weightNames;
  /// Symbols by name, as long as the guard has them.
  llvm::StringMap<TorchValue *> symbols;
  /// Optional arguments that are not None where the guard stands.
  llvm::MapVector<Value, TorchValue *> present;
  bool hasLeast = false;
  std::string suffix;
  /// None before it is asked for.
  std::optional<bool> untiledHasFlow;
};
} // namespace

/// The name of the symbol if `expr` is just one, with its multiple.
static std::pair<std::string, int64_t> getSymbol(Attribute attr) {
  auto dimExpr = dyn_cast<DimExprAttr>(attr);
  if (!dimExpr)
    return {};
  std::string name;
  DimExpr expr(dimExpr);
  expr.forEachSymbol([&](DimSymbol symbol) { name = symbol.getName().str(); });
  if (name.empty())
    return {};
  std::optional<int64_t> multiple = expr.getMultipleOf(name);
  return multiple ? std::make_pair(name, *multiple)
                  : std::pair<std::string, int64_t>();
}

BlockArgument GuardEmitter::getArgument(AssumeOp fact) {
  Value value = fact.getValue();
  while (Operation *producer = value.getDefiningOp()) {
    if (!isa<RefineOp, tensor::CastOp>(producer))
      break;
    value = producer->getOperand(0);
  }
  auto argument = dyn_cast<BlockArgument>(value);
  if (!argument || argument.getOwner() != &function.getBody().front())
    refuse(fact.getLoc(), "only facts about arguments can be checked at entry");
  return argument;
}

void GuardEmitter::collectFacts() {
  // A symbol is known from the first extent that is just it; if there is
  // none, from the first multiple of it.
  llvm::StringMap<int64_t> best;
  for (AssumeOp fact : function.getBody().front().getOps<AssumeOp>()) {
    // Shapes do not matter to an untiled program, unless they decided branches.
    if (fact.getFact() == Fact::Attribute) {
      attributeFacts.push_back(fact);
      continue;
    }
    if (!tiled && !function->hasAttr(KoilaDialect::kDecidedAttr))
      continue;
    // A frozen module has no mode any more.
    if (fact.getFact() == Fact::Training && !module.hasattr("training"))
      continue;
    facts.push_back(fact);
    auto [name, multiple] = getSymbol(fact.getExpected());
    if (fact.getFact() == Fact::Extent && !name.empty()) {
      int64_t &least = best.try_emplace(name, multiple).first->second;
      least = std::min(least, multiple);
    }
  }
  llvm::StringSet<> defined;
  llvm::DenseMap<Operation *, int> order;
  for (AssumeOp fact : facts) {
    int rank = 3;
    if (fact.getFact() != Fact::Extent) {
      rank = fact.getFact() == Fact::Training ? 0 : 1;
    } else {
      auto [name, multiple] = getSymbol(fact.getExpected());
      if (!name.empty() && best.lookup(name) == multiple &&
          defined.insert(name).second)
        rank = 2;
    }
    order[fact] = rank;
  }
  llvm::stable_sort(facts, [&](AssumeOp lhs, AssumeOp rhs) {
    return order[lhs] < order[rhs];
  });
}

tj::Value *GuardEmitter::evaluateFactor(Attribute factor, Operation *op) {
  if (auto symbol = dyn_cast<DimSymbol>(factor)) {
    TorchValue *value = symbols.lookup(symbol.getName());
    if (!value)
      refuse(op->getLoc(), Twine("no argument says what symbol '") +
                               symbol.getName() + "' is");
    return value;
  }
  auto atom = cast<DimAtomAttr>(factor);
  TorchValue *lhs = evaluate(atom.getLhs(), op);
  TorchValue *rhs = evaluate(atom.getRhs(), op);
  llvm::StringRef name = atom.getFunction().getValue();
  const char *callee = name == "floordiv" ? "aten::floordiv"
                       : name == "mod"    ? "aten::remainder"
                       : name == "min"    ? "prim::min"
                       : name == "max"    ? "prim::max"
                                          : nullptr;
  if (!callee)
    refuse(op->getLoc(), Twine("the guard cannot compute '") + name + "'");
  return emitter.call(callee, {lhs, rhs});
}

tj::Value *GuardEmitter::evaluate(DimExprAttr expr, Operation *op) {
  TorchValue *sum = nullptr;
  for (auto [coefficient, monomial] :
       llvm::zip(expr.getCoefficients(), expr.getMonomials())) {
    TorchValue *term = nullptr;
    if (coefficient != 1 || monomial.empty())
      term = emitter.integer(coefficient);
    for (Attribute factor : monomial) {
      TorchValue *value = evaluateFactor(factor, op);
      term = term ? emitter.call("aten::mul", {term, value}) : value;
    }
    sum = sum ? emitter.call("aten::add", {sum, term}) : term;
  }
  return sum ? sum : emitter.integer(0);
}

/// As torch spells it: float32.
static std::string getDTypeName(int64_t code) {
  auto names = c10::getDtypeNames(static_cast<c10::ScalarType>(code));
  return std::string(names.first);
}

std::string GuardEmitter::getArgumentName(BlockArgument argument) {
  unsigned index = argument.getArgNumber();
  auto name =
      function.getArgAttrOfType<StringAttr>(index, KoilaDialect::kNameAttr);
  return "koila: argument " +
         (name ? "'" + name.getValue().str() + "'" : std::to_string(index));
}

bool GuardEmitter::isOptional(AssumeOp fact) {
  if (fact.getFact() == Fact::Training || fact.getFact() == Fact::Attribute ||
      isa<UnitAttr>(fact.getExpected()))
    return false;
  BlockArgument argument = getArgument(fact);
  return !present.contains(argument) &&
         emitter.lookup(argument, fact)->type()->kind() ==
             c10::TypeKind::OptionalType;
}

tj::Value *GuardEmitter::getTensor(AssumeOp fact) {
  BlockArgument argument = getArgument(fact);
  auto found = present.find(argument);
  return found == present.end() ? emitter.lookup(argument, fact)
                                : found->second;
}

std::string GuardEmitter::getMessage(AssumeOp fact) {
  std::string text;
  llvm::raw_string_ostream os(text);
  os << "koila: ";
  if (fact.getFact() == Fact::Attribute) {
    os << "attribute '" << *fact.getPath() << "' is not " << fact.getExpected();
    return text + suffix;
  }
  if (fact.getFact() == Fact::Training) {
    bool training = cast<BoolAttr>(fact.getExpected()).getValue();
    os << "the module is " << (training ? "not " : "") << "in training mode";
    return text + suffix;
  }
  text = getArgumentName(getArgument(fact)) + ": ";
  switch (fact.getFact()) {
  case Fact::DType:
    os << "dtype is not "
       << getDTypeName(
              getScalarTypeCode(cast<TypeAttr>(fact.getExpected()).getValue())
                  .value_or(0));
    break;
  case Fact::Rank:
    os << "the number of dims is not "
       << cast<IntegerAttr>(fact.getExpected()).getInt();
    break;
  case Fact::Extent:
    os << "extent of dim " << *fact.getDim() << " is not ";
    DimExpr(cast<DimExprAttr>(fact.getExpected())).print(os);
    break;
  case Fact::Contiguous:
    os << "not contiguous";
    break;
  case Fact::Device:
    os << "not on " << cast<StringAttr>(fact.getExpected()).getValue();
    break;
  case Fact::Value:
    os << "is not ";
    if (isa<UnitAttr>(fact.getExpected()))
      os << "None";
    else
      fact.getExpected().print(os, /*elideType=*/true);
    break;
  case Fact::Training:
  case Fact::Attribute:
    break;
  }
  return text + suffix;
}

tj::Value *GuardEmitter::emitCondition(AssumeOp fact) {
  if (fact.getFact() == Fact::Training) {
    TorchValue *training = emitter.readAttribute("training");
    return cast<BoolAttr>(fact.getExpected()).getValue()
               ? training
               : emitter.call("aten::__not__", training);
  }
  if (fact.getFact() == Fact::Attribute)
    return emitLiteralCondition(emitter.readAttribute(*fact.getPath()),
                                fact.getExpected());
  TorchValue *tensor = getTensor(fact);
  switch (fact.getFact()) {
  case Fact::DType: {
    std::optional<int64_t> code =
        getScalarTypeCode(cast<TypeAttr>(fact.getExpected()).getValue());
    if (!code)
      refuse(fact.getLoc(), "PyTorch has no such dtype");
    return emitter.call("aten::eq", {emitter.call("prim::dtype", tensor),
                                     emitter.integer(*code)});
  }
  case Fact::Rank:
    return emitter.call(
        "aten::eq",
        {emitter.call("aten::dim", tensor),
         emitter.integer(cast<IntegerAttr>(fact.getExpected()).getInt())});
  case Fact::Extent: {
    TorchValue *size = getSize(fact);
    auto expr = cast<DimExprAttr>(fact.getExpected());
    auto [name, multiple] = getSymbol(expr);
    if (!name.empty() && !symbols.count(name)) {
      symbols[name] = multiple == 1
                          ? size
                          : emitter.call("aten::floordiv",
                                         {size, emitter.integer(multiple)});
      // A definition always holds, but a multiple must be one.
      if (multiple == 1)
        return nullptr;
    }
    return emitter.call("aten::eq", {size, evaluate(expr, fact)});
  }
  case Fact::Contiguous:
    return emitter.call("aten::is_contiguous", tensor);
  case Fact::Device:
    return emitter.call(
        "aten::eq",
        {emitter.call("prim::type", emitter.call("prim::device", tensor)),
         text(cast<StringAttr>(fact.getExpected()).getValue())});
  case Fact::Value:
    return emitLiteralCondition(tensor, fact.getExpected());
  case Fact::Training:
  case Fact::Attribute:
    break;
  }
  return nullptr;
}

tj::Value *GuardEmitter::emitLiteralCondition(TorchValue *value,
                                              Attribute expected) {
  if (isa<UnitAttr>(expected))
    return emitter.call("aten::__is__",
                        {value, emitter.constant(c10::IValue())});
  if (auto flag = dyn_cast<BoolAttr>(expected))
    return flag.getValue() ? value : emitter.call("aten::__not__", value);
  if (auto number = dyn_cast<FloatAttr>(expected))
    return emitter.call("aten::eq",
                        {value, emitter.constant(number.getValueAsDouble())});
  if (auto integer = dyn_cast<IntegerAttr>(expected))
    return emitter.call("aten::eq", {value, emitter.integer(integer.getInt())});
  if (auto integers = dyn_cast<DenseI64ArrayAttr>(expected))
    return emitter.call("aten::eq",
                        {value, emitter.integerList(integers.asArrayRef())});
  auto isList = [&](auto array, const c10::TypePtr &type) {
    llvm::SmallVector<TorchValue *> elements;
    for (auto element : array)
      elements.push_back(emitter.constant(c10::IValue(element)));
    return emitter.call("aten::eq", {value, emitter.list(elements, type)});
  };
  if (auto numbers = dyn_cast<DenseF64ArrayAttr>(expected))
    return isList(numbers.asArrayRef(), c10::FloatType::get());
  if (auto flags = dyn_cast<DenseBoolArrayAttr>(expected))
    return isList(flags.asArrayRef(), c10::BoolType::get());
  if (auto tuple = dyn_cast<ArrayAttr>(expected))
    return emitTupleCondition(value, tuple);
  auto dict = dyn_cast<DictionaryAttr>(expected);
  if (auto texts = dict ? dict.getAs<ArrayAttr>("texts") : ArrayAttr())
    return isList(llvm::map_range(texts.getAsValueRange<StringAttr>(),
                                  [](StringRef text) { return text.str(); }),
                  c10::StringType::get());
  if (auto member = dict ? dict.getAs<StringAttr>("member") : StringAttr())
    return emitter.call("aten::eq", {emitter.call("prim::EnumName", value),
                                     text(member.getValue())});
  if (dict)
    return emitDictCondition(value, dict);
  return emitter.call("aten::eq",
                      {value, text(cast<StringAttr>(expected).getValue())});
}

/// TorchScript compares no dicts.
tj::Value *GuardEmitter::emitDictCondition(TorchValue *dict,
                                           DictionaryAttr expected) {
  auto keys = expected.getAs<ArrayAttr>("keys");
  TorchValue *all = emitter.call("aten::eq", {emitter.call("aten::len", dict),
                                              emitter.integer(keys.size())});
  for (auto [key, value] :
       llvm::zip_equal(keys, expected.getAs<ArrayAttr>("values"))) {
    TorchValue *at = emitter.constant(getAssumed(key));
    auto isSame = [&] {
      return emitLiteralCondition(emitter.call("aten::__getitem__", {dict, at}),
                                  value);
    };
    TorchValue *same = emitIf(emitter.call("aten::__contains__", {dict, at}),
                              c10::BoolType::get(), isSame,
                              [&] { return emitter.constant(false); });
    all = emitter.call("aten::__and__", {all, same});
  }
  return all;
}

/// TorchScript compares no tuples.
tj::Value *GuardEmitter::emitTupleCondition(TorchValue *tuple,
                                            ArrayAttr expected) {
  auto type = tuple->type()->expect<c10::TupleType>();
  TorchValue *all = emitter.constant(true);
  for (auto [index, element] : llvm::enumerate(expected)) {
    tj::Node *part = graph.insertNode(graph.createTupleIndex(
        tuple, emitter.integer(index), type->elements()[index]));
    all = emitter.call("aten::__and__",
                       {all, emitLiteralCondition(part->output(), element)});
  }
  return all;
}

/// Whether the result of `op` has PyTorch's default element type: it computes a
/// tensor of floats of none. Tensors of a list may be some; a number that a
/// trace holds as a tensor is none.
static bool usesDefaultType(Operation *op) {
  auto isFloat = [](Value value) {
    auto tensor = dyn_cast<TensorType>(value.getType());
    auto get = value.getDefiningOp<ParamGetOp>();
    return tensor && isa<FloatType, ComplexType>(tensor.getElementType()) &&
           !(get && get->hasAttr("wrapped"));
  };
  auto hasTensors = [](Type type) {
    auto list = dyn_cast<ListType>(type);
    return list && isa<TensorType>(list.getElementType());
  };
  return (isa_and_present<KoilaDialect>(op->getDialect()) ||
          isa<TorchOperatorInterface>(op)) &&
         !isa<ParamGetOp>(op) && !op->hasAttr("dtype") &&
         llvm::any_of(op->getResults(), isFloat) &&
         llvm::none_of(op->getOperands(), isFloat) &&
         llvm::none_of(op->getOperandTypes(), hasTensors);
}

tj::Value *GuardEmitter::isOfType(TorchValue *tensor, Type type) {
  return emitter.call(
      "aten::eq",
      {emitter.call("prim::dtype", tensor),
       emitter.integer(*getScalarTypeCode(koila::getDTypeName(type)))});
}

tj::Value *GuardEmitter::readWeight(ParamGetOp get) {
  TorchValue *value = emitter.readAttribute(get.getParam());
  // Without a name it is written where it is read, and is no variable, of which
  // a branch may have hundreds.
  value->setDebugName("");
  if (value->type()->kind() == c10::TypeKind::OptionalType)
    return graph.insertUncheckedCast(value, c10::TensorType::get());
  return value;
}

void GuardEmitter::requireSettings(
    llvm::function_ref<void(TorchValue *, const Twine &)> require) {
  auto getSize = [&](TorchValue *tensor) {
    return emitter.call("aten::element_size", tensor);
  };
  // A product tells, on the device of the program: autocast is of one device.
  // LibTorch crashes where a program asks for autocast itself while it is on.
  const ProgramDevice *mover = getMover();
  TorchValue *place =
      mover ? nullptr : findPlace(/*knowsArguments=*/false).first;
  std::vector<tj::NamedValue> options;
  if (mover)
    options.emplace_back("device", emitter.constant(mover->device));
  else if (place)
    options.emplace_back("device", emitter.call("prim::device", place));
  TorchValue *none =
      graph.insert(aten::zeros, {emitter.integerList({0, 0})}, options);
  TorchValue *product = emitter.call("aten::mm", {none, none});
  require(emitter.call("aten::eq", {getSize(product), getSize(none)}),
          "koila: autocast is on, which changes the types of results");
  WalkResult found = function.walk([&](Operation *op) {
    return usesDefaultType(op) ? WalkResult::interrupt()
                               : WalkResult::advance();
  });
  if (found.wasInterrupted())
    require(emitter.call("aten::eq",
                         {getSize(none), emitter.integer(sizeof(float))}),
            "koila: the default dtype is not float32");
  // Which of them the backward pass of a tile reaches decided what it repeats.
  llvm::StringSet<> weightsSeen;
  SymbolTable weights(function->getParentOfType<ModuleOp>());
  function.walk([&](ParamGetOp get) {
    auto param = weights.lookup<ParamOp>(get.getParam());
    Type type = cast<TensorType>(get.getType()).getElementType();
    if (!trains || !param || param.getConstant() ||
        !isa<FloatType, ComplexType>(type) ||
        !weightsSeen.insert(get.getParam()).second)
      return;
    TorchValue *flag = emitter.call("prim::requires_grad", readWeight(get));
    bool isTrained = param.getRequiresGrad();
    require(isTrained ? flag : emitter.call("aten::__not__", flag),
            "koila: weight '" + get.getParam() + "' " +
                (isTrained ? "requires no gradient" : "requires a gradient") +
                " now");
  });
  // half(), double() and to() convert all weights: one of each type tells.
  llvm::SmallPtrSet<Type, 4> seen;
  function.walk([&](ParamGetOp get) {
    auto param = weights.lookup<ParamOp>(get.getParam());
    Type type = cast<TensorType>(get.getType()).getElementType();
    if (param && !param.getConstant() && isa<FloatType, ComplexType>(type) &&
        seen.insert(type).second)
      require(isOfType(readWeight(get), type),
              "koila: weight '" + get.getParam() + "': dtype is not " +
                  koila::getDTypeName(type));
  });
}

tj::Value *GuardEmitter::emitAllFacts() {
  if (attributeFacts.empty() && !tiled)
    return emitFacts(0);
  // One after the other, not nested: there may be hundreds.
  TorchValue *failed = text("");
  auto require = [&](TorchValue *condition, const Twine &message) {
    TorchValue *before = failed;
    std::string words = message.str();
    failed = emitIf(
        condition, c10::StringType::get(), [&] { return before; },
        [&] { return text(words); });
  };
  for (AssumeOp fact : attributeFacts)
    require(emitCondition(fact), getMessage(fact));
  if (tiled)
    requireSettings([&](TorchValue *condition, const Twine &message) {
      require(condition, message + suffix);
    });
  if (facts.empty())
    return failed;
  return emitIf(
      emitter.call("aten::eq", {failed, text("")}), c10::StringType::get(),
      [&] { return emitFacts(0); }, [&] { return failed; });
}

tj::Value *GuardEmitter::emitArgumentsCondition() {
  TorchValue *all = nullptr;
  for (BlockArgument argument : function.getArguments()) {
    auto type = dyn_cast<TensorType>(argument.getType());
    if (!type || !isa<FloatType, ComplexType>(type.getElementType()))
      continue;
    bool requiresGrad(function.getArgAttr(argument.getArgNumber(),
                                          KoilaDialect::kRequiresGradAttr));
    // Each tile has a leaf of its own.
    if (requiresGrad && isOnlyDetached(argument))
      continue;
    TorchValue *tensor = present.lookup(argument);
    TorchValue *flag =
        emitter.call("prim::requires_grad",
                     tensor ? tensor : emitter.lookup(argument, function));
    if (!requiresGrad)
      flag = emitter.call("aten::__not__", flag);
    all = all ? emitter.call("aten::__and__", {all, flag}) : flag;
  }
  return all;
}

tj::Value *GuardEmitter::makeList(const std::vector<TorchValue *> &tensors) {
  return graph.insertNode(graph.createList(c10::TensorType::get(), tensors))
      ->output();
}

tj::Value *GuardEmitter::emitAnyRequiresGrad(TorchValue *list) {
  tj::Node *loop = graph.insertNode(graph.create(
      prim::Loop, {emitter.call("aten::len", list), emitter.constant(true),
                   emitter.constant(false)}));
  loop->output()->setType(c10::BoolType::get());
  tj::Block *body = loop->addBlock();
  TorchValue *index = body->addInput()->setType(c10::IntType::get());
  TorchValue *before = body->addInput()->setType(c10::BoolType::get());
  tj::WithInsertPoint guard(body);
  TorchValue *flag = emitter.call(
      "prim::requires_grad", emitter.call("aten::__getitem__", {list, index}));
  TorchValue *after = emitter.call("aten::__or__", {before, flag});
  body->registerOutput(emitter.constant(true));
  body->registerOutput(after);
  return loop->output();
}

/// Whether it is more than a number, which goes with tensors of any device.
static bool hasDims(Type type) {
  auto ranked = dyn_cast<RankedTensorType>(type);
  return ranked && ranked.getRank() > 0;
}

tj::Value *GuardEmitter::listWeights() {
  if (weightList)
    return weightList;
  std::vector<TorchValue *> tensors;
  llvm::StringSet<> seen;
  SymbolTable weights(function->getParentOfType<ModuleOp>());
  function.walk([&](ParamGetOp get) {
    auto param = weights.lookup<ParamOp>(get.getParam());
    if (!param || param.getConstant() || !seen.insert(get.getParam()).second ||
        (param.getBuffer() && !hasDims(get.getType())))
      return;
    tensors.push_back(readWeight(get));
    weightNames.push_back(get.getParam().str());
  });
  if (!tensors.empty())
    weightList = makeList(tensors);
  return weightList;
}

const ProgramDevice *GuardEmitter::getMover() {
  const auto *own = function.getContext()
                        ->getLoadedDialect<KoilaDialect>()
                        ->getRegisteredInterface<ProgramDevice>();
  return own && own->fromHost ? own : nullptr;
}

std::pair<tj::Value *, std::string>
GuardEmitter::findPlace(bool knowsArguments) {
  for (BlockArgument argument : function.getArguments()) {
    if (!hasDims(argument.getType()) || getMover())
      continue;
    TorchValue *tensor = knowsArguments ? present.lookup(argument) : nullptr;
    if (!tensor)
      tensor = emitter.lookup(argument, function);
    if (tensor->type()->kind() == c10::TypeKind::TensorType)
      return {tensor, getArgumentName(argument)};
  }
  std::pair<TorchValue *, std::string> found;
  SymbolTable weights(function->getParentOfType<ModuleOp>());
  function.walk([&](ParamGetOp get) {
    auto param = weights.lookup<ParamOp>(get.getParam());
    if (!param || param.getConstant() || !hasDims(get.getType()))
      return WalkResult::advance();
    found = {readWeight(get), "koila: weight '" + get.getParam().str() + "'"};
    return WalkResult::interrupt();
  });
  return found;
}

tj::Value *GuardEmitter::emitDeviceFact(TorchValue *failed) {
  // Outside of all branches, as in emitGradFact().
  DeviceFact fact;
  fact.weights = listWeights();
  fact.weightNames = weightNames;
  fact.suffix = suffix;
  auto compare = [&] {
    castPresent();
    std::tie(fact.place, fact.placeName) = findPlace(/*knowsArguments=*/true);
    for (BlockArgument argument : function.getArguments()) {
      TorchValue *tensor = present.lookup(argument);
      if (!tensor)
        tensor = emitter.lookup(argument, function);
      // What is moved is on the CPU.
      if (hasDims(argument.getType()) && !getMover() && tensor != fact.place &&
          tensor->type()->kind() == c10::TypeKind::TensorType)
        fact.arguments.emplace_back(tensor, getArgumentName(argument));
    }
    return fact.emit(emitter);
  };
  return emitIf(emitter.call("aten::eq", {failed, text("")}),
                c10::StringType::get(), compare, [&] { return failed; });
}

tj::Value *GuardEmitter::emitDrawsFact(TorchValue *failed) {
  auto drawsOn = function->getAttrOfType<StringAttr>(kDrawsOnAttr);
  if (!drawsOn)
    return failed;
  auto compare = [&]() -> TorchValue * {
    castPresent();
    const ProgramDevice *mover = getMover();
    TorchValue *place = findPlace(/*knowsArguments=*/true).first;
    if (!mover && !place)
      return text("");
    return emitDrawsOn(emitter, drawsOn.getValue(),
                       mover ? emitter.constant(mover->device)
                             : emitter.call("prim::device", place),
                       suffix);
  };
  return emitIf(emitter.call("aten::eq", {failed, text("")}),
                c10::StringType::get(), compare, [&] { return failed; });
}

/// True where a gradient would be recorded: a tiled forward would keep every
/// tile's saved tensors, and save nothing. `weights`: a list, or null.
tj::Value *GuardEmitter::emitGradCondition(TorchValue *weights) {
  TorchValue *enabled = emitter.call("aten::is_grad_enabled", {});
  auto disabled = [&] { return emitter.constant(false); };
  auto anyRequires = [&] {
    std::vector<TorchValue *> tensors;
    for (BlockArgument argument : function.getArguments())
      if (TorchValue *tensor = present.lookup(argument);
          tensor && tensor->type()->kind() == c10::TypeKind::TensorType)
        tensors.push_back(tensor);
      else if (isa<TensorType>(argument.getType()))
        tensors.push_back(emitter.lookup(argument, function));
    TorchValue *any =
        tensors.empty() ? nullptr : emitAnyRequiresGrad(makeList(tensors));
    if (TorchValue *ofWeights =
            weights ? emitAnyRequiresGrad(weights) : nullptr)
      any = any ? emitter.call("aten::__or__", {any, ofWeights}) : ofWeights;
    return any ? any : emitter.constant(false);
  };
  return emitIf(enabled, c10::BoolType::get(), anyRequires, disabled);
}

tj::Value *GuardEmitter::emitGradFact(TorchValue *failed) {
  // Outside of all branches: when LibTorch reads a program, it makes a text of
  // the whole file for each variable of a branch.
  TorchValue *weights = listWeights();
  auto recorded = [&] {
    castPresent();
    return emitIf(
        emitGradCondition(weights), c10::StringType::get(),
        [&] {
          return text("koila: grad mode is on and something requires a "
                      "gradient: the tiled forward would not reduce memory; "
                      "call it under torch.no_grad(); running the untiled "
                      "program");
        },
        [&] { return text(""); });
  };
  if (!failed)
    return recorded();
  return emitIf(emitter.call("aten::eq", {failed, text("")}),
                c10::StringType::get(), recorded, [&] { return failed; });
}

tj::Value *GuardEmitter::emitFacts(size_t index) {
  // What may be None is compared with it once, before it is read.
  if (index < facts.size() && isOptional(facts[index])) {
    BlockArgument argument = getArgument(facts[index]);
    TorchValue *value = emitter.lookup(argument, facts[index]);
    auto type = value->type()->expect<c10::OptionalType>();
    return emitIf(
        emitter.call("aten::__isnot__",
                     {value, emitter.constant(c10::IValue())}),
        c10::StringType::get(),
        [&] {
          present[argument] =
              graph.insertUncheckedCast(value, type->getElementType());
          return emitFacts(index);
        },
        [&] { return text(getArgumentName(argument) + ": is None" + suffix); });
  }
  TorchValue *condition = nullptr;
  std::string message;
  // Definitions have no condition.
  for (; index < facts.size() && !condition && !isOptional(facts[index]);
       ++index) {
    condition = emitCondition(facts[index]);
    message = getMessage(facts[index]);
  }
  if (condition)
    return emitIf(
        condition, c10::StringType::get(), [&] { return emitFacts(index); },
        [&] { return text(message); });
  if (index < facts.size())
    return emitFacts(index);
  if (TorchValue *isEnough =
          std::exchange(hasLeast, true) ? nullptr : emitLeastCondition())
    return emitIf(
        isEnough, c10::StringType::get(), [&] { return emitFacts(index); },
        [&] {
          return text((trains ? Twine("koila: no tile of this step has fewer "
                                      "samples than ")
                              : Twine("koila: the program means something else "
                                      "for a batch below ")) +
                      Twine(getLeastBatch()) + suffix);
        });
  if (TorchValue *isSame = trains ? emitArgumentsCondition() : nullptr)
    return emitIf(
        isSame, c10::StringType::get(), [&] { return text(""); },
        [&] {
          return text("koila: other arguments require a gradient than when "
                      "the step was tiled" +
                      suffix);
        });
  return text("");
}

void GuardEmitter::castPresent() {
  for (auto &[argument, tensor] : present) {
    TorchValue *value = emitter.lookup(argument, function);
    tensor = graph.insertUncheckedCast(
        value, value->type()->expect<c10::OptionalType>()->getElementType());
  }
}

int64_t GuardEmitter::getLeastBatch() const {
  auto least = tiled ? tiled.getAs<IntegerAttr>("least_batch") : IntegerAttr();
  return least ? least.getInt() : 0;
}

tj::Value *GuardEmitter::emitLeastCondition() {
  auto batch = tiled ? tiled.getAs<StringAttr>("batch_symbol") : StringAttr();
  if (getLeastBatch() == 0 || !batch)
    return nullptr;
  return emitter.call("aten::ge", {symbols.lookup(batch.getValue()),
                                   emitter.integer(getLeastBatch())});
}

void GuardEmitter::warn(TorchValue *text) {
  graph.insertNode(graph.create(aten::warn, {text, emitter.integer(2)}, 0));
}

/// Whether `graph` has branches or loops before it is inlined, in what it calls
/// as well.
static bool mayHaveFlow(const tj::Graph &graph,
                        llvm::DenseSet<const tj::Graph *> &seen) {
  if (!seen.insert(&graph).second)
    return false;
  return llvm::any_of(graph.nodes(), [&](const tj::Node *node) {
    if (!node->blocks().empty())
      return true;
    tj::Function *callee = nullptr;
    if (node->kind() == prim::CallMethod) {
      auto object = node->input(0)->type()->cast<c10::ClassType>();
      callee = object ? object->findMethod(node->s(c10::attr::name)) : nullptr;
      // Of an interface nobody knows what it calls.
      if (!callee)
        return true;
    } else if (node->kind() == prim::CallFunction) {
      auto type = node->input(0)->type()->cast<c10::FunctionType>();
      callee = type ? type->function() : nullptr;
    }
    auto *function = callee ? tj::tryToGraphFunction(*callee) : nullptr;
    return function && mayHaveFlow(*function->graph(), seen);
  });
}

/// Whether `method` has branches or loops, in what it calls as well.
static bool hasFlow(const tj::Method &method) {
  std::shared_ptr<tj::Graph> original =
      tj::toGraphFunction(method.function()).graph();
  // LibTorch optimises each function that it inlines.
  llvm::DenseSet<const tj::Graph *> seen;
  if (!mayHaveFlow(*original, seen))
    return false;
  auto graph = original->copy();
  tj::Inline(*graph);
  return llvm::any_of(graph->nodes(),
                      [](tj::Node *node) { return !node->blocks().empty(); });
}

tj::Value *GuardEmitter::callUntiled(const GuardedMethods &methods) {
  if (!untiledHasFlow)
    untiledHasFlow = hasFlow(module.get_method(methods.untiled));
  llvm::SmallVector<TorchValue *> inputs(graph.inputs().begin(),
                                         graph.inputs().end());
  // In the branch of a guard arguments live longer than by themselves, and
  // LibTorch then may move others too early; see separateLastUses().
  if (*untiledHasFlow)
    for (TorchValue *&input : inputs)
      if (input->type()->isSubtypeOf(*c10::TensorType::get()))
        input = emitter.call("aten::alias", input);
  return callMethod(methods.untiled, inputs);
}

tj::Value *GuardEmitter::callMethod(const std::string &name,
                                    llvm::ArrayRef<TorchValue *> inputs) {
  tj::Node *call = graph.insertNode(
      graph.create(prim::CallMethod,
                   at::ArrayRef<TorchValue *>(inputs.data(), inputs.size())));
  call->s_(c10::attr::name, name);
  call->output()->setType(
      module.get_method(name).function().getSchema().returns()[0].type());
  return call->output();
}

tj::Value *GuardEmitter::isBatchAbove(int64_t samples) {
  auto batch = tiled ? tiled.getAs<StringAttr>("batch_symbol") : StringAttr();
  for (AssumeOp fact : facts) {
    auto [name, multiple] = getSymbol(fact.getExpected());
    if (batch && fact.getFact() == Fact::Extent && name == batch.getValue())
      return emitter.call("aten::gt",
                          {getSize(fact), emitter.integer(samples * multiple)});
  }
  return nullptr;
}

void GuardEmitter::warnOfLargeBatch() {
  auto limit = tiled.getAs<IntegerAttr>("holds_to");
  if (!limit || limit.getInt() < 0)
    return;
  if (TorchValue *above = isBatchAbove(limit.getInt()))
    emitIf(
        above, nullptr,
        [&]() -> TorchValue * {
          warn(text(Twine("koila: the batch is above ") +
                    Twine(limit.getInt()) +
                    ", up to which the memory budget holds; the result is "
                    "right, but needs more memory"));
          return nullptr;
        },
        []() -> TorchValue * { return nullptr; });
}

tj::Value *GuardEmitter::callPlan(const GuardedMethods &methods,
                                  const c10::TypePtr &type,
                                  llvm::ArrayRef<TorchValue *> arguments,
                                  int64_t plan) {
  auto call = [&] { return callMethod(methods.getGuarded(plan), arguments); };
  if (plan + 1 == attributes.plans)
    return call();
  TorchValue *isThis =
      emitter.call("aten::eq", {emitter.readAttribute(attributes.plan),
                                emitter.integer(plan)});
  return emitIf(isThis, type, call,
                [&] { return callPlan(methods, type, arguments, plan + 1); });
}

tj::Value *GuardEmitter::callGuarded(const GuardedMethods &methods,
                                     const c10::TypePtr &type) {
  castPresent();
  llvm::SmallVector<TorchValue *> arguments(graph.inputs().begin(),
                                            graph.inputs().end());
  if (!tiled)
    return callMethod(methods.guarded, arguments);
  warnOfLargeBatch();
  // Of no samples no tile runs, whose kernels might raise.
  TorchValue *hasSamples = isBatchAbove(0);
  auto call = [&] { return callPlan(methods, type, arguments, /*plan=*/0); };
  if (!hasSamples)
    return call();
  return emitIf(hasSamples, type, call, [&] { return callUntiled(methods); });
}

tj::Value *GuardEmitter::emit(const GuardedMethods &methods) {
  auto mode = tiled ? tiled.getAs<StringAttr>("guard") : StringAttr();
  bool raises = mode && mode.getValue() == "raise";
  suffix = raises  ? ""
           : tiled ? "; running the untiled program"
                   : "; running the original program";
  collectFacts();
  // Without tiles grad mode changes nothing.
  // A training step needs it on, tiled or not.
  TorchValue *failed = emitAllFacts();
  if (tiled)
    failed = emitDrawsFact(emitDeviceFact(failed));
  if (tiled && !raises && !trains)
    failed = emitGradFact(failed);
  if (raises) {
    emitIf(
        emitter.call("aten::ne", {failed, text("")}), nullptr,
        [&]() -> TorchValue * {
          graph.insertNode(
              graph.create(prim::RaiseException,
                           {failed, emitter.constant(c10::IValue())}, 0));
          return nullptr;
        },
        []() -> TorchValue * { return nullptr; });
    // Only grad mode is left.
    failed = trains ? text("") : emitGradFact(nullptr);
  }
  c10::TypePtr type = module.get_method(methods.untiled)
                          .function()
                          .getSchema()
                          .returns()[0]
                          .type();
  return emitIf(
      emitter.call("aten::eq", {failed, text("")}), type,
      [&] { return callGuarded(methods, type); },
      [&] {
        warn(failed);
        return callUntiled(methods);
      });
}

tj::Value *koila::torchscript::emitGuard(GraphEmitter &emitter,
                                         func::FuncOp function,
                                         const tj::Module &module,
                                         const GuardedMethods &methods,
                                         const TileAttributes &attributes) {
  if (!attributes.tile.empty())
    requireTile(emitter, attributes, function);
  return GuardEmitter(emitter, function, module, attributes).emit(methods);
}
