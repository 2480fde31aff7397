//===- ViewDimsShapes.cpp - Dims in another order, more or fewer of them --===//

#include "../Rules/ViewRules.h"
#include "llvm/ADT/Sequence.h"

using namespace mlir;
using namespace koila;
using rules::DimMap;

//===----------------------------------------------------------------------===//
// Maps
//===----------------------------------------------------------------------===//

static DimMap fail(const Twine &error) {
  DimMap map;
  map.error = error.str();
  return map;
}

static DimMap outOfRange(int64_t dim, int64_t rank) {
  return fail("dim " + Twine(dim) + " is out of range for rank " + Twine(rank));
}

DimMap rules::mapAll(const TensorInfo &info) {
  DimMap map;
  map.dims.append(llvm::to_vector(llvm::seq<int64_t>(0, info.getRank())));
  return map;
}

DimMap rules::mapPermute(const TensorInfo &info, ArrayRef<int64_t> dims) {
  int64_t rank = info.getRank();
  if (static_cast<int64_t>(dims.size()) != rank)
    return fail("has " + Twine(dims.size()) + " dims for an operand of rank " +
                Twine(rank));
  DimMap map;
  for (int64_t dim : dims) {
    auto normal = normalizeDim(dim, rank);
    if (!normal)
      return outOfRange(dim, rank);
    if (llvm::is_contained(map.dims, *normal))
      return fail("dim " + Twine(dim) + " is named twice");
    map.dims.push_back(*normal);
  }
  return map;
}

DimMap rules::mapTranspose(const TensorInfo &info, int64_t dim0, int64_t dim1) {
  int64_t rank = info.getRank();
  auto lhs = normalizeDim(dim0, rank), rhs = normalizeDim(dim1, rank);
  if (!lhs || !rhs)
    return outOfRange(lhs ? dim1 : dim0, rank);
  DimMap map = mapAll(info);
  if (rank)
    std::swap(map.dims[*lhs], map.dims[*rhs]);
  return map;
}

DimMap rules::mapMatrixTranspose(const TensorInfo &info) {
  if (info.getRank() > 2)
    return fail("transposes at most two dims, the operand has " +
                Twine(info.getRank()));
  return mapReversed(info);
}

DimMap rules::mapMatricesTransposed(const TensorInfo &info) {
  if (info.getRank() < 2)
    return fail("transposes matrices, the operand has rank " +
                Twine(info.getRank()));
  return mapTranspose(info, -2, -1);
}

DimMap rules::mapAdjoint(const TensorInfo &info) {
  return info.getRank() == 0 ? mapAll(info) : mapMatricesTransposed(info);
}

DimMap rules::mapReversed(const TensorInfo &info) {
  DimMap map = mapAll(info);
  std::reverse(map.dims.begin(), map.dims.end());
  return map;
}

DimMap rules::mapMove(const TensorInfo &info, ArrayRef<int64_t> source,
                      ArrayRef<int64_t> destination) {
  int64_t rank = info.getRank();
  if (source.size() != destination.size())
    return fail("moves " + Twine(source.size()) + " dims to " +
                Twine(destination.size()) + " places");
  DimMap map;
  map.dims.assign(rank, -1);
  SmallVector<int64_t> moved;
  for (auto [from, to] : llvm::zip_equal(source, destination)) {
    auto dim = normalizeDim(from, rank), place = normalizeDim(to, rank);
    if (!dim || !place)
      return outOfRange(dim ? to : from, rank);
    if (rank == 0)
      continue;
    if (map.dims[*place] != -1 || llvm::is_contained(moved, *dim))
      return fail("dim " + Twine(llvm::is_contained(moved, *dim) ? from : to) +
                  " is named twice");
    map.dims[*place] = *dim;
    moved.push_back(*dim);
  }
  // The others stay in order.
  int64_t next = 0;
  for (int64_t &dim : map.dims) {
    if (dim != -1)
      continue;
    while (llvm::is_contained(moved, next))
      ++next;
    dim = next++;
  }
  return map;
}

DimMap rules::mapUnsqueeze(const TensorInfo &info, int64_t dim) {
  auto place = normalizeDim(dim, info.getRank() + 1);
  if (!place)
    return outOfRange(dim, info.getRank() + 1);
  DimMap map = mapAll(info);
  map.dims.insert(map.dims.begin() + *place, -1);
  return map;
}

DimMap rules::mapSqueeze(const TensorInfo &info) {
  DimMap map = mapAll(info);
  map.squeezed = map.dims;
  llvm::erase_if(map.dims,
                 [&](int64_t dim) { return info.dim(dim).isConstant(1); });
  return map;
}

DimMap rules::mapSqueeze(const TensorInfo &info, ArrayRef<int64_t> dims) {
  DimMap map = mapAll(info);
  for (int64_t dim : dims) {
    auto normal = normalizeDim(dim, info.getRank());
    if (!normal)
      return outOfRange(dim, info.getRank());
    if (llvm::is_contained(map.squeezed, *normal))
      return fail("dim " + Twine(dim) + " is named twice");
    map.squeezed.push_back(*normal);
  }
  llvm::erase_if(map.dims, [&](int64_t dim) {
    return llvm::is_contained(map.squeezed, dim) && info.dim(dim).isConstant(1);
  });
  return map;
}

DimMap rules::mapSelect(const TensorInfo &info, int64_t dim) {
  auto normal = normalizeDim(dim, info.getRank());
  if (!normal)
    return outOfRange(dim, info.getRank());
  if (info.getRank() == 0)
    return fail("a tensor without dims has no elements to select");
  DimMap map = mapAll(info);
  map.dims.erase(map.dims.begin() + *normal);
  return map;
}

// Source: aten/src/ATen/native/TensorTransformations.cpp.
DimMap rules::mapAtLeast(const TensorInfo &info, int64_t least) {
  DimMap map = mapAll(info);
  if (info.getRank() < 2 && least > 1)
    map.dims.insert(map.dims.begin(), -1);
  while (static_cast<int64_t>(map.dims.size()) < least)
    map.dims.push_back(-1);
  return map;
}

//===----------------------------------------------------------------------===//
// Rules
//===----------------------------------------------------------------------===//

static TensorInfo applyMap(const ShapeRule &rule, const TensorInfo &info,
                           const DimMap &map) {
  TensorInfo result;
  result.elementType = info.elementType;
  result.dims.emplace();
  if (info.strides)
    result.strides.emplace();
  for (auto [place, dim] : llvm::enumerate(map.dims)) {
    result.dims->push_back(dim == -1 ? rule.constant(1) : info.dim(dim));
    if (!info.strides)
      continue;
    if (dim != -1)
      result.strides->push_back((*info.strides)[dim]);
    else if (static_cast<int64_t>(place) < info.getRank())
      // Source: inferUnsqueezeGeometry in aten/src/ATen/native/TensorShape.cpp.
      result.strides->push_back(info.dim(place) * (*info.strides)[place]);
    else
      result.strides->push_back(rule.constant(1));
  }
  return result;
}

LogicalResult rules::inferMapped(ShapeRule &rule, Value self,
                                 GetDimMap getMap) {
  TensorInfo info = rule.tensor(self);
  if (!info.hasRank()) {
    setUnknownRank(rule, info);
    return success();
  }
  DimMap map = getMap(info);
  if (!map.error.empty())
    return rule.emitError() << map.error;
  TensorInfo result = applyMap(rule, info, map);
  for (unsigned index = 0; index < rule.getOp()->getNumResults(); ++index)
    rule.setResult(index, result);
  return success();
}

void rules::inferMappedBatch(BatchRule &rule, Value self, GetDimMap getMap) {
  rule.takeAnyRows();
  BatchFact fact = rule.fact(self);
  if (hasBatchArgument(rule))
    return rule.mix("the place is computed from the number of samples");
  TensorInfo info = rule.tensor(self);
  if (!fact.isAt() || !info.hasRank())
    return rule.mix("the rank of the operand is unknown");
  DimMap map = getMap(info);
  auto *found = llvm::find(map.dims, fact.dim);
  if (found == map.dims.end())
    return rule.mix("takes the batch dim apart");
  if (llvm::is_contained(map.squeezed, fact.dim) && fact.factor == 1)
    return rule.mix("squeeze drops the batch dim where a tile has one sample");
  fact.dim = found - map.dims.begin();
  rule.setAll(fact);
}

LogicalResult rules::inferLazyConj(ShapeRule &rule, Value self) {
  TensorInfo info = rule.tensor(self);
  if (info.elementType && !isa<ComplexType>(info.elementType))
    return rule.emitError()
           << "needs a complex tensor, got " << info.elementType;
  return inferMapped(rule, self, mapAll);
}

LogicalResult rules::inferAtLeast(ShapeRule &rule, ValueRange tensors,
                                  int64_t least) {
  unsigned count = rule.getOp()->getNumResults();
  if (tensors.size() != count)
    return rule.emitError() << "gives " << tensors.size()
                            << " tensors, the program takes " << count;
  for (auto [index, tensor] : llvm::enumerate(tensors)) {
    TensorInfo info = rule.tensor(tensor);
    if (info.hasRank())
      info = applyMap(rule, info, mapAtLeast(info, least));
    rule.setResult(index, info);
  }
  return success();
}

void rules::inferAtLeastBatch(BatchRule &rule, ValueRange tensors,
                              int64_t least) {
  for (auto [index, tensor] : llvm::enumerate(tensors)) {
    TensorInfo info = rule.tensor(tensor);
    BatchFact fact = rule.fact(tensor);
    if (!fact.isFree()) {
      if (!fact.isAt() || !info.hasRank())
        return rule.mix("the rank of an operand is unknown");
      DimMap map = mapAtLeast(info, least);
      fact.dim = llvm::find(map.dims, fact.dim) - map.dims.begin();
    }
    rule.setResult(index, fact);
  }
}

LogicalResult rules::inferSelect(ShapeRule &rule, Value self, int64_t dim) {
  if (failed(inferMapped(rule, self, [&](const TensorInfo &info) {
        return mapSelect(info, dim);
      })))
    return failure();
  TensorInfo info = rule.tensor(self);
  DimExpr index = rule.integerArgument("index");
  if (!info.hasRank() || !index)
    return success();
  auto place = index.getConstant();
  auto extent = info.dim(*normalizeDim(dim, info.getRank())).getConstant();
  if (place && extent && (*place < -*extent || *place >= *extent))
    return rule.emitError() << "index " << *place << " is out of range for "
                            << "extent " << *extent << " of dim " << dim;
  return success();
}

LogicalResult rules::inferUnbind(ShapeRule &rule, Value self, int64_t dim) {
  if (failed(inferMapped(rule, self, [&](const TensorInfo &info) {
        return mapSelect(info, dim);
      })))
    return failure();
  TensorInfo info = rule.tensor(self);
  unsigned count = rule.getOp()->getNumResults();
  if (!info.hasRank())
    return success();
  DimExpr extent = info.dim(*normalizeDim(dim, info.getRank()));
  bool differs = extent.getConstant() ? !extent.isConstant(count)
                                      : isBakedIn(rule.getOp(), extent, count);
  if (differs)
    return rule.emitError() << "gives " << extent.str()
                            << " tensors, the program takes " << count;
  return success();
}
