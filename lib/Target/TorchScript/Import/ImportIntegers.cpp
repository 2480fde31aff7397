//===- ImportIntegers.cpp - Arithmetic on shapes --------------------------===//
//
// Traced programs compute shapes with 0-dim tensors, scripted ones with
// integers; both become arithmetic on i64, or extents would be lost. The
// tensors stay as what holds the numbers, since they take memory as others do.
// What cannot be said that way stays opaque.
//
//===----------------------------------------------------------------------===//

#include "Import.h"
#include "koila/Dialect/Koila/IR/CopyOps.h"
#include "koila/Dialect/Koila/IR/ViewOps.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/IR/Matchers.h"

using namespace mlir;
using namespace koila;
using namespace koila::torchscript;
namespace tj = torch::jit;
namespace prim = c10::prim;
namespace aten = c10::aten;

static std::optional<arith::CmpIPredicate> getPredicate(c10::Symbol kind) {
  if (kind == aten::eq)
    return arith::CmpIPredicate::eq;
  if (kind == aten::ne)
    return arith::CmpIPredicate::ne;
  if (kind == aten::lt)
    return arith::CmpIPredicate::slt;
  if (kind == aten::le)
    return arith::CmpIPredicate::sle;
  if (kind == aten::gt)
    return arith::CmpIPredicate::sgt;
  if (kind == aten::ge)
    return arith::CmpIPredicate::sge;
  return std::nullopt;
}

/// The integer in a 0-dim tensor that holds one; else null.
static Value getHeldInteger(Value tensor) {
  auto holder = tensor.getDefiningOp<NumToTensorOp>();
  return holder ? holder.getComputedInteger() : Value();
}

/// Whether a 0-dim tensor holds an integer that arithmetic on others gave, or
/// an operator that arith has nothing for: a division by what may be zero.
static bool holdsInteger(Value tensor) {
  if (getHeldInteger(tensor))
    return true;
  auto op = tensor.getDefiningOp<ShapeRuleInterface>();
  if (!op || op->getNumResults() != 1 || !isa<TensorType>(tensor.getType()) ||
      !llvm::all_of(op->getOperands(), getHeldInteger))
    return false;
  auto facts = [&](Value value) {
    ValueInfo info;
    info.tensor =
        TensorInfo::contiguous({}, IntegerType::get(value.getContext(), 64));
    info.integer =
        DimExpr::symbol(value.getContext(), "_held", SymbolKind::Integer);
    return info;
  };
  ShapeRule rule(op, facts);
  return succeeded(op.inferShapes(rule)) && rule.getResults().front().integer;
}

/// The operator that a form in place stands for; none for others.
static std::optional<c10::Symbol> getOutOfPlace(c10::Symbol kind) {
  if (kind == aten::add_)
    return aten::add;
  if (kind == aten::sub_)
    return aten::sub;
  if (kind == aten::mul_)
    return aten::mul;
  if (kind == aten::floor_divide_)
    return aten::floor_divide;
  return std::nullopt;
}

bool FunctionImporter::importInteger(Node *node) {
  auto isModelled = [&](size_t i) {
    auto it = values.find(node->input(i));
    return it != values.end() &&
           (it->second.getType().isInteger(64) || holdsInteger(it->second));
  };
  auto toInteger = [&](size_t i) -> Value {
    auto it = values.find(node->input(i));
    if (it == values.end() || it->second.getType().isInteger(64) ||
        getHeldInteger(it->second))
      return getInteger(node->input(i));
    return IntTensorOp::create(builder, location, builder.getI64Type(),
                               it->second);
  };
  auto isInteger = [&](size_t i) {
    if (isModelled(i))
      return true;
    std::optional<c10::IValue> literal = getLiteral(node->input(i));
    return literal && (literal->isInt() ||
                       (literal->isTensor() && literal->toTensor().dim() == 0 &&
                        literal->toTensor().scalar_type() == at::kLong));
  };
  auto literalIs = [&](size_t i, const c10::IValue &value) {
    std::optional<c10::IValue> literal = getLiteral(node->input(i));
    return literal && literal->tagKind() == value.tagKind() &&
           *literal == value;
  };
  size_t count = node->inputs().size();
  c10::Symbol kind = node->kind();
  if (node->outputs().size() != 1)
    return false;
  bool isTensor = node->output()->type()->kind() == c10::TypeKind::TensorType;
  // A tensor that is written, or whose view is, is more than a number.
  auto isShared = [&](const TorchValue *value) {
    return value->type()->kind() == c10::TypeKind::TensorType &&
           isOrdered(value);
  };
  if (llvm::any_of(node->inputs(), isShared) || isShared(node->output()))
    return false;
  // `batch *= 4` of a traced program: the tensor of the number is that of the
  // result, if nobody reads the one before after that.
  auto outOfPlace = getOutOfPlace(kind);
  if (outOfPlace &&
      (!isTensor || !isModelled(0) || isSeenElsewhere(node->input(0), node)))
    return false;
  bool isInPlace = outOfPlace.has_value();
  kind = outOfPlace.value_or(kind);
  auto finish = [&](Value number) {
    if (!isTensor) {
      values[node->output()] = number;
      return true;
    }
    llvm::SmallVector<Value> operands;
    for (const TorchValue *input : node->inputs())
      if (auto it = values.find(input); it != values.end() &&
                                        isa<TensorType>(it->second.getType()) &&
                                        holdsInteger(it->second))
        operands.push_back(it->second);
    // A number becomes a tensor first, and so does a 0-dim constant of these,
    // of which the executor calls the overload for numbers (measured).
    std::optional<c10::IValue> literal;
    if (operands.size() == 1 && count >= 2)
      literal = getLiteral(node->input(1));
    bool wraps =
        literal && (literal->isInt() ||
                    (!isInPlace && (kind == aten::add || kind == aten::sub ||
                                    kind == aten::mul)));
    operands.push_back(number);
    auto holder = NumToTensorOp::create(
        builder, location, RankedTensorType::get({}, builder.getI64Type()),
        DynamicAttr::get(context), wraps ? builder.getUnitAttr() : UnitAttr(),
        operands);
    if (isInPlace)
      holder->setAttr("tied", builder.getUnitAttr());
    values[node->output()] = holder;
    return true;
  };

  if (kind == prim::NumToTensor || kind == aten::Int ||
      kind == aten::ScalarImplicit || kind == aten::IntImplicit)
    return isModelled(0) && finish(toInteger(0));

  if (count == 1 && kind == aten::neg && isModelled(0)) {
    Value zero = arith::ConstantIntOp::create(builder, location, 0, 64);
    return finish(arith::SubIOp::create(builder, location, zero, toInteger(0)));
  }
  if (count < 2 || !isInteger(0) || !isInteger(1) ||
      (!isModelled(0) && !isModelled(1)))
    return false;
  if (node->output()->type()->kind() == c10::TypeKind::BoolType) {
    auto predicate = getPredicate(kind);
    if (!predicate || count != 2)
      return false;
    Value lhs = toInteger(0);
    Value rhs = toInteger(1);
    values[node->output()] =
        arith::CmpIOp::create(builder, location, *predicate, lhs, rhs);
    return true;
  }
  bool scalars = node->output()->type()->kind() == c10::TypeKind::IntType;
  // `alpha` of the tensor overloads.
  bool plain = count == 2 || (count == 3 && literalIs(2, int64_t(1)));
  bool floored =
      (kind == aten::floordiv && scalars) || kind == aten::floor_divide ||
      (kind == aten::div && count == 3 && literalIs(2, std::string("floor")));
  // An extent is not negative, and truncating it is flooring it.
  auto isExtent = [&](size_t i) {
    Value number = values.at(node->input(i));
    if (Value held = getHeldInteger(number))
      number = held;
    return static_cast<bool>(number.getDefiningOp<SizeIntOp>());
  };
  bool truncated = kind == aten::div && count == 3 &&
                   literalIs(2, std::string("trunc")) && isModelled(0) &&
                   isExtent(0);
  if (!scalars && !isTensor)
    return false;
  bool remainder = count == 2 && kind == aten::remainder;
  if (floored || truncated || remainder) {
    // Python raises on a division by zero; arith must never meet one.
    IntegerAttr divisor;
    if (isModelled(1) || literalIs(1, int64_t(0)))
      return false;
    Value rhs = toInteger(1);
    if (!matchPattern(rhs, m_Constant(&divisor)) || divisor.getInt() == 0 ||
        (truncated && divisor.getInt() < 0))
      return false;
    Value lhs = toInteger(0);
    Value quotient = arith::FloorDivSIOp::create(builder, location, lhs, rhs);
    // Python's remainder has the sign of the divisor, unlike arith.remsi.
    if (remainder)
      quotient = arith::SubIOp::create(
          builder, location, lhs,
          arith::MulIOp::create(builder, location, quotient, rhs));
    return finish(quotient);
  }
  bool compares = scalars && (kind == prim::max || kind == prim::min);
  bool adds =
      plain && (kind == aten::add || kind == aten::sub || kind == aten::rsub);
  if (!adds && !(count == 2 && (compares || kind == aten::mul)))
    return false;
  Value lhs = toInteger(0), rhs = toInteger(1);
  if (kind == aten::add)
    return finish(arith::AddIOp::create(builder, location, lhs, rhs));
  if (kind == aten::rsub)
    return finish(arith::SubIOp::create(builder, location, rhs, lhs));
  if (kind == aten::sub)
    return finish(arith::SubIOp::create(builder, location, lhs, rhs));
  if (kind == prim::max)
    return finish(arith::MaxSIOp::create(builder, location, lhs, rhs));
  if (kind == prim::min)
    return finish(arith::MinSIOp::create(builder, location, lhs, rhs));
  return finish(arith::MulIOp::create(builder, location, lhs, rhs));
}

/// `x.size()[i]` is `x.size(i)`.
bool FunctionImporter::importSize(Node *node) {
  auto isIndexed = [&](const TorchValue *sizes) {
    return llvm::all_of(sizes->uses(), [&](const tj::Use &use) {
      return use.user->kind() == aten::__getitem__ &&
             getLiteral(use.user->input(1));
    });
  };
  if (node->kind() == aten::size && node->inputs().size() == 1)
    return isIndexed(node->output());
  if (node->kind() != aten::__getitem__ ||
      node->input(0)->node()->kind() != aten::size ||
      node->input(0)->node()->inputs().size() != 1 ||
      !isIndexed(node->input(0)))
    return false;
  OperatorTable::Match match = operators.lookup("aten::size.int");
  if (!match)
    return false;
  OperationState state(location, match.info->name);
  state.addOperands(getTensor(node->input(0)->node()->input(0)));
  state.addAttribute(
      "dim", builder.getI64IntegerAttr(getLiteral(node->input(1))->toInt()));
  state.addTypes(builder.getI64Type());
  values[node->output()] = builder.create(state)->getResult(0);
  return true;
}
