//===- GuardFacts.cpp - What a guard knows of arguments -------------------===//
//
// Facts as they stand in the program: in which order they are compared, as
// conditions, and what is said where one does not hold.
//
//===----------------------------------------------------------------------===//

#include "GuardEmitter.h"
#include "koila/Dialect/Koila/IR/DType.h"
#include "koila/Target/TorchScript/Types.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "llvm/ADT/StringSet.h"
#include <c10/core/ScalarType.h>

using namespace mlir;
using namespace koila;
using namespace koila::torchscript;
namespace tj = torch::jit;
namespace prim = c10::prim;
using llvm::Twine;

std::pair<std::string, int64_t>
koila::torchscript::getOnlySymbol(Attribute attr) {
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
    auto [name, multiple] = getOnlySymbol(fact.getExpected());
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
      auto [name, multiple] = getOnlySymbol(fact.getExpected());
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
static std::string spellDType(int64_t code) {
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
       << spellDType(
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
    auto [name, multiple] = getOnlySymbol(expr);
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
