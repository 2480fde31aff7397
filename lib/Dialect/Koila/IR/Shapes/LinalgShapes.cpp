//===- LinalgShapes.cpp - Rules of functions of matrices ------------------===//
//
// Layouts as aten/src/ATen/native/BatchLinearAlgebra.cpp allocates them for
// LAPACK: most results have their columns first.
//
//===----------------------------------------------------------------------===//

#include "../Rules/MatmulRules.h"

using namespace mlir;
using namespace koila;

/// Dense, each matrix with its columns one after the other.
static TensorInfo columnsFirst(ArrayRef<DimExpr> dims, Type type) {
  TensorInfo info = TensorInfo::contiguous(dims, type);
  size_t rank = dims.size();
  if (rank >= 2) {
    (*info.strides)[rank - 2] = DimExpr::constant(dims[0].getContext(), 1);
    (*info.strides)[rank - 1] = dims[rank - 2];
  }
  return info;
}

/// LAPACK has no code for integers and for floats of two bytes.
static LogicalResult checkFloating(ShapeRule &rule, Type type) {
  if (!type || isa<ComplexType>(type) || type.isF32() || type.isF64())
    return success();
  return rule.emitError() << "expects matrices of float32 or float64, got "
                          << type;
}

/// As many factors as there are reflectors, or less, and no more of these than
/// rows. Source: linalg_householder_product.
static LogicalResult checkReflectors(ShapeRule &rule,
                                     LinalgHouseholderProductOp op) {
  TensorInfo input = rule.tensor(op.getInput()), tau = rule.tensor(op.getTau());
  if (failed(rules::checkOneElementType(rule, input.elementType,
                                        tau.elementType, "the factors")))
    return failure();
  if (!input.hasRank() || !tau.hasRank() || input.getRank() < 2)
    return success();
  if (tau.getRank() + 1 != input.getRank())
    return rule.emitError() << "expects factors of rank " << input.getRank() - 1
                            << ", got " << tau.getRank();
  int64_t leading = input.getRank() - 2;
  for (int64_t dim = 0; dim < leading; ++dim)
    if (proveEqual(input.dim(dim), tau.dim(dim)) == TriBool::No)
      return rule.emitError()
             << "has " << input.dim(dim).str() << " reflectors and "
             << tau.dim(dim).str() << " factors in dim " << dim;
  auto rows = input.dim(leading).getConstant();
  auto columns = input.dim(leading + 1).getConstant();
  auto factors = tau.dim(leading).getConstant();
  if ((rows && columns && *rows < *columns) ||
      (columns && factors && *columns < *factors))
    return rule.emitError() << "expects no more reflectors than rows, and no "
                               "more factors than these";
  return success();
}

LogicalResult rules::inferMatrixFunction(ShapeRule &rule, Value input,
                                         bool square, StringRef results,
                                         bool takesIntegers) {
  TensorInfo info = rule.tensor(input);
  if (auto product = dyn_cast<LinalgHouseholderProductOp>(rule.getOp()))
    if (failed(checkReflectors(rule, product)))
      return failure();
  // The exponential is a sum of products, which half types have.
  if (isa<LinalgMatrixExpOp, MatrixExpOp>(rule.getOp()) &&
      isa_and_nonnull<FloatType>(info.elementType))
    takesIntegers = true;
  if (!takesIntegers && failed(checkFloating(rule, info.elementType)))
    return failure();
  int64_t leading = info.hasRank() ? info.getRank() - 2 : 0;
  if (leading < 0)
    return rule.emitError() << "expects rank 2 or more, got " << info.getRank();
  DimExpr rows, columns;
  if (info.hasRank()) {
    rows = info.dim(leading);
    columns = info.dim(leading + 1);
    if (square && proveEqual(rows, columns) == TriBool::No)
      return rule.emitError() << "expects square matrices, got " << rows.str()
                              << " rows and " << columns.str() << " columns";
    if (square && rows.getConstant())
      columns = rows;
  }
  SmallVector<StringRef> specs;
  results.split(specs, ',');
  for (auto [index, spec] : llvm::enumerate(specs)) {
    Type type = info.elementType;
    Builder builder(rule.getContext());
    if (spec[1] == 'i' || spec[1] == 'l')
      type = builder.getIntegerType(spec[1] == 'i' ? 32 : 64);
    else if (auto complex = dyn_cast_or_null<ComplexType>(type);
             complex && spec[1] == 'r')
      type = complex.getElementType();
    TensorInfo result;
    result.elementType = type;
    if (info.hasRank()) {
      SmallVector<DimExpr> dims(ArrayRef(*info.dims).take_front(leading));
      for (char letter : spec.drop_front(3))
        dims.push_back(letter == 'n'   ? rows
                       : letter == 'm' ? columns
                                       : rows.min(columns));
      result = spec[0] == 'F' ? columnsFirst(dims, type)
                              : TensorInfo::contiguous(dims, type);
    }
    rule.setResult(index, result);
  }
  return success();
}

LogicalResult rules::inferCholesky(ShapeRule &rule, Value input) {
  TensorInfo info = rule.tensor(input);
  // Of nothing PyTorch checks nothing.
  if (info.hasRank() &&
      llvm::any_of(*info.dims, [](DimExpr dim) { return dim.isConstant(0); })) {
    rule.setResult(0, TensorInfo::contiguous(*info.dims, info.elementType));
    return success();
  }
  return inferMatrixFunction(rule, input, /*square=*/true, "Fs:nn",
                             /*takesIntegers=*/false);
}

LogicalResult rules::inferMatrixPower(ShapeRule &rule, Value input, int64_t n) {
  TensorInfo info = rule.tensor(input);
  if (failed(inferMatrixFunction(rule, input, /*square=*/true,
                                 n == -1 ? "Fs:nn" : "Cs:nn", n >= 0)))
    return failure();
  if (n >= 0 || !info.hasRank() || !info.strides ||
      llvm::any_of(*info.dims, [](DimExpr dim) { return dim.isConstant(0); }))
    return success();
  // An expanded matrix has equal rows or columns.
  for (int64_t dim = info.getRank() - 2; dim < info.getRank(); ++dim)
    if ((*info.strides)[dim].isConstant(0) &&
        info.dim(dim).getConstant().value_or(0) > 1)
      return rule.emitError() << "inverts a matrix that is expanded over dim "
                              << dim << ": it is singular";
  return success();
}

void rules::inferMatrixFunctionBatch(BatchRule &rule, Value input) {
  BatchFact fact = rule.fact(input);
  TensorInfo info = rule.tensor(input);
  if (!info.hasRank())
    return rule.mix("the rank of the operand is unknown");
  if (fact.dim >= info.getRank() - 2)
    return rule.mix("the batch is a dim of the matrices of " +
                    rule.getOp()->getName().stripDialect());
  rule.setAll(fact);
}

//===----------------------------------------------------------------------===//
// Systems of equations
//===----------------------------------------------------------------------===//

/// Whether the right side is one vector for each matrix; none if unknown.
/// Source: linalg_solve_is_vector_rhs.
static std::optional<bool> takesVectors(const TensorInfo &matrix,
                                        const TensorInfo &rhs) {
  if (rhs.getRank() == 1)
    return true;
  if (rhs.getRank() != matrix.getRank() - 1)
    return false;
  bool certain = true;
  for (int64_t dim = 0; dim < rhs.getRank(); ++dim)
    switch (proveEqual(rhs.dim(dim), matrix.dim(dim))) {
    case TriBool::No:
      return false;
    case TriBool::Unknown:
      certain = false;
      break;
    case TriBool::Yes:
      break;
    }
  return certain ? std::optional(true) : std::nullopt;
}

LogicalResult rules::inferSolve(ShapeRule &rule, Value matrix, Value rhs,
                                bool left, System kind) {
  TensorInfo a = rule.tensor(matrix), b = rule.tensor(rhs), result, info;
  info.elementType = IntegerType::get(rule.getContext(), 32);
  result.elementType = a.elementType ? a.elementType : b.elementType;
  if (failed(checkOneElementType(rule, a.elementType, b.elementType,
                                 "the right side")) ||
      failed(checkFloating(rule, result.elementType)))
    return failure();
  auto finish = [&] {
    rule.setResult(0, result);
    if (kind == System::WithInfo)
      rule.setResult(1, info);
    return success();
  };
  if (!a.hasRank() || !b.hasRank())
    return finish();
  bool isTriangular = kind == System::Triangular;
  if (a.getRank() < 2 || b.getRank() < (isTriangular ? 2 : 1))
    return rule.emitError() << "expects matrices and a right side, got ranks "
                            << a.getRank() << " and " << b.getRank();
  int64_t leading = a.getRank() - 2;
  DimExpr rows = a.dim(leading);
  if (proveEqual(rows, a.dim(leading + 1)) == TriBool::No)
    return rule.emitError()
           << "expects square matrices, got " << rows.str() << " rows and "
           << a.dim(leading + 1).str() << " columns";
  info = TensorInfo::contiguous(ArrayRef(*a.dims).take_front(leading),
                                info.elementType);
  auto vectors = isTriangular ? std::optional(false) : takesVectors(a, b);
  // A vector cannot stand on the left.
  if (!vectors && !left)
    vectors = false;
  if (!vectors)
    return finish();
  if (*vectors && !left)
    return rule.emitError() << "a vector stands on the right only";
  SmallVector<DimExpr> tail(ArrayRef(*b.dims).take_back(*vectors ? 1 : 2));
  DimExpr inner = *vectors || left ? tail.front() : tail.back();
  if (proveEqual(inner, rows) == TriBool::No)
    return rule.emitError() << "has " << rows.str() << " equations and "
                            << inner.str() << " rows on the right";
  int64_t own = b.getRank() - static_cast<int64_t>(tail.size());
  int64_t rank = std::max(leading, own);
  SmallVector<DimExpr> dims;
  for (int64_t dim = 0; dim < rank; ++dim) {
    int64_t x = dim - (rank - leading), y = dim - (rank - own);
    if (x < 0 || y < 0) {
      dims.push_back(x < 0 ? b.dim(y) : a.dim(x));
      continue;
    }
    if (proveEqual(a.dim(x), b.dim(y)) == TriBool::No &&
        !a.dim(x).isConstant(1) && !b.dim(y).isConstant(1))
      return rule.emitError() << "cannot broadcast extents " << a.dim(x).str()
                              << " and " << b.dim(y).str() << " in dim " << dim;
    dims.push_back(a.dim(x).broadcast(b.dim(y)));
  }
  dims.append(tail);
  result = left || isTriangular
               ? columnsFirst(dims, result.elementType)
               : TensorInfo::contiguous(dims, result.elementType);
  return finish();
}

void rules::inferSolveBatch(BatchRule &rule, Value matrix, Value rhs, bool left,
                            System kind) {
  TensorInfo a = rule.tensor(matrix), b = rule.tensor(rhs);
  BatchFact fact = rule.fact(matrix), other = rule.fact(rhs);
  if (!a.hasRank() || !b.hasRank())
    return rule.mix("the rank of an operand is unknown");
  auto vectors =
      kind == System::Triangular ? std::optional(false) : takesVectors(a, b);
  if (!vectors && !left)
    vectors = false;
  if (!vectors)
    return rule.mix("the right side may be vectors or matrices");
  int64_t leading = a.getRank() - 2;
  int64_t own = b.getRank() - (*vectors ? 1 : 2);
  int64_t rank = std::max(leading, own);
  // One right side for each sample, of the same matrices.
  int64_t free = own + (left ? 1 : 0);
  if (fact.isFree() && !*vectors && other.dim == free) {
    other.dim += rank - own;
    rule.setAll(BatchFact::free());
    return rule.setResult(0, other);
  }
  auto move = [&](BatchFact &moved, int64_t count) {
    if (moved.isFree())
      return true;
    bool stays = moved.dim < count;
    moved.dim += rank - count;
    return stays;
  };
  if (!move(fact, leading) || !move(other, own))
    return rule.mix("the batch is a dim of the system of equations");
  if (fact.isAt() && other.isAt() && !(fact == other))
    return rule.mix("the operands carry the batch in different dims");
  const TensorInfo &without = fact.isAt() ? b : a;
  int64_t place =
      (fact.isAt() ? fact : other).dim - (rank - (fact.isAt() ? own : leading));
  if (!(fact.isAt() && other.isAt()) && place >= 0 &&
      !without.dim(place).isConstant(1))
    return rule.mix("an operand without the batch has extent " +
                    without.dim(place).str() + " in the batch dim");
  rule.setResult(0, fact.isAt() ? fact : other);
  if (rule.getResults().size() > 1)
    rule.setResult(
        1, fact.isAt() ? BatchFact::at(fact.dim - (rank - leading), fact.factor)
                       : BatchFact::free());
}
