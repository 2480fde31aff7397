//===- SpectralShapes.cpp - Rules of Fourier transforms -------------------===//
//
// Extents as canonicalize_fft_shape_and_dim_args of
// aten/src/ATen/native/SpectralOps.cpp, strides as _exec_fft of
// aten/src/ATen/native/mkl/SpectralOps.cpp.
//
//===----------------------------------------------------------------------===//

#include "../Rules/SpectralRules.h"
#include "koila/Interfaces/Layout.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/Sequence.h"
#include <algorithm>

using namespace mlir;
using namespace koila;
using rules::Fourier;

//===----------------------------------------------------------------------===//
// Arguments
//===----------------------------------------------------------------------===//

std::optional<SmallVector<int64_t>> rules::getFourierDims(Operation *op,
                                                          int64_t rank) {
  SmallVector<int64_t> given, found;
  if (auto dim = op->getAttrOfType<IntegerAttr>("dim")) {
    given.push_back(dim.getInt());
  } else if (auto dims = op->getAttrOfType<DenseI64ArrayAttr>("dim")) {
    llvm::append_range(given, dims.asArrayRef());
  } else {
    auto sizes = op->getAttrOfType<DenseI64ArrayAttr>("s");
    int64_t count = sizes ? sizes.size() : rank;
    if (count > rank)
      return std::nullopt;
    llvm::append_range(found, llvm::seq<int64_t>(rank - count, rank));
    return found;
  }
  for (int64_t dim : given) {
    auto normal = rank == 0 ? std::nullopt : rules::normalizeDim(dim, rank);
    if (!normal || llvm::is_contained(found, *normal))
      return std::nullopt;
    found.push_back(*normal);
  }
  return found;
}

/// The size along each of `count` dims; null where it is that of the input.
/// `known` is false for a size that is not known.
struct Sizes {
  SmallVector<DimExpr> sizes;
  SmallVector<bool> known;
};
static FailureOr<Sizes> getSizes(ShapeRule &rule, size_t count) {
  Sizes result{SmallVector<DimExpr>(count), SmallVector<bool>(count, true)};
  auto set = [&](size_t index, DimExpr size) -> LogicalResult {
    result.sizes[index] = size;
    result.known[index] = static_cast<bool>(size);
    auto value = size ? size.getConstant() : std::nullopt;
    if (value && *value < 1)
      return rule.emitError() << "transforms " << *value << " points";
    return success();
  };
  if (rule.hasArgument("n")) {
    if (failed(set(0, rule.integerArgument("n"))))
      return failure();
  } else if (rule.hasArgument("s")) {
    auto list = rule.integerList("s");
    if (!list) {
      result.known.assign(count, false);
      return result;
    }
    if (list->size() != count)
      return LogicalResult(rule.emitError()
                           << "gives " << list->size() << " sizes for " << count
                           << " dims");
    for (auto [index, size] : llvm::enumerate(*list))
      if (!(size && size.isConstant(-1)) && failed(set(index, size)))
        return failure();
  }
  return result;
}

static Type getTransformType(Type type, bool complex) {
  if (!type)
    return type;
  if (auto own = dyn_cast<ComplexType>(type))
    type = own.getElementType();
  if (isa<IntegerType>(type))
    type = Float32Type::get(type.getContext());
  return complex ? Type(ComplexType::get(type)) : type;
}

//===----------------------------------------------------------------------===//
// Strides
//===----------------------------------------------------------------------===//

/// Sorts `dims` by the strides of `info`, the slowest first; false if an order
/// cannot be proved.
static bool sortByStride(const TensorInfo &info,
                         MutableArrayRef<int64_t> dims) {
  if (!info.strides)
    return false;
  // Dims of one element stand anywhere; they come first here.
  std::stable_partition(dims.begin(), dims.end(), [&](int64_t dim) {
    return info.dim(dim).isConstant(1);
  });
  for (size_t i = 1; i < dims.size(); ++i)
    for (size_t j = i; j > 0 && !info.dim(dims[j - 1]).isConstant(1); --j) {
      DimExpr slower = (*info.strides)[dims[j - 1]];
      DimExpr faster = (*info.strides)[dims[j]];
      if (proveEqual(slower, faster) == TriBool::Yes)
        return false;
      TriBool ordered = proveAtMost(faster, slower);
      if (ordered == TriBool::Unknown)
        return false;
      if (ordered == TriBool::Yes)
        break;
      std::swap(dims[j - 1], dims[j]);
    }
  return true;
}

/// One transform over `dims`: the other dims by their strides, then `dims`,
/// in their order.
static void transformDims(TensorInfo &info, ArrayRef<int64_t> dims,
                          ArrayRef<DimExpr> extents) {
  SmallVector<int64_t> order;
  for (int64_t dim = 0; dim < info.getRank(); ++dim)
    if (!llvm::is_contained(dims, dim))
      order.push_back(dim);
  bool sorted = sortByStride(info, order);
  llvm::append_range(order, dims);
  info.dims.emplace(extents);
  info.strides.reset();
  if (!sorted)
    return;
  info.strides.emplace(extents.size());
  DimExpr stride;
  for (int64_t dim : llvm::reverse(order)) {
    if (!stride)
      stride = DimExpr::constant(extents[dim].getContext(), 1);
    (*info.strides)[dim] = stride;
    stride = stride * extents[dim];
  }
}

/// Cuts and fills up the dims to the sizes that are transformed. Source:
/// resize_fft_input.
static void resize(TensorInfo &info, ArrayRef<int64_t> dims,
                   ArrayRef<DimExpr> sizes) {
  bool fills = false, certain = true;
  TensorInfo before = info;
  for (auto [dim, size] : llvm::zip_equal(dims, sizes)) {
    switch (proveAtMost(size, info.dim(dim))) {
    case TriBool::Yes:
      break;
    case TriBool::No:
      fills = true;
      break;
    case TriBool::Unknown:
      certain = false;
      break;
    }
    (*info.dims)[dim] = size;
  }
  if (before.isContiguous() == TriBool::Yes && fills) {
    info = TensorInfo::contiguous(*info.dims, info.elementType);
  } else if (fills && certain && info.getRank() < 4) {
    info = TensorInfo::contiguous(*info.dims, info.elementType);
  } else if (fills || !certain) {
    info.strides.reset();
  }
}

//===----------------------------------------------------------------------===//
// Transforms
//===----------------------------------------------------------------------===//

LogicalResult rules::inferFourier(ShapeRule &rule, Value self, Fourier kind) {
  TensorInfo input = rule.tensor(self), result;
  bool real = kind == Fourier::HalfToReal;
  bool halves =
      kind == Fourier::RealToHalf || kind == Fourier::RealToHalfLastFirst;
  if (halves && input.elementType && isa<ComplexType>(input.elementType))
    return rule.emitError()
           << "expects real numbers, got " << input.elementType;
  result.elementType = getTransformType(input.elementType, !real);
  if (!input.hasRank()) {
    rule.setResult(0, result);
    return success();
  }
  auto dims = getFourierDims(rule.getOp(), input.getRank());
  if (!dims)
    return rule.emitError() << "a dim is out of range for rank "
                            << input.getRank() << ", or given twice";
  if (dims->empty() && kind != Fourier::Complex)
    return rule.emitError() << "transforms no dim";
  // MKL refuses to transform nothing.
  for (int64_t dim = 0; dim < input.getRank() && !dims->empty(); ++dim)
    if (!llvm::is_contained(*dims, dim) && input.dim(dim).isConstant(0))
      return rule.emitError()
             << "transforms nothing: dim " << dim << " is empty";
  auto sizes = getSizes(rule, dims->size());
  if (failed(sizes))
    return failure();
  // Extents that are transformed, and those that come out.
  SmallVector<DimExpr> taken, extents(*input.dims);
  bool known = true;
  for (auto [index, dim] : llvm::enumerate(*dims)) {
    DimExpr size = sizes->sizes[index];
    bool last = index + 1 == dims->size();
    if (!sizes->known[index] && !size) {
      extents[dim] = DimExpr();
      known = false;
      continue;
    }
    if (!size)
      size = real && last ? (input.dim(dim) - 1) * 2 : input.dim(dim);
    if (auto count = size.getConstant(); count && *count < 1)
      return rule.emitError()
             << "transforms " << *count << " points in dim " << dim;
    DimExpr half = size.floorDiv(2) + 1;
    taken.push_back(real && last ? half : size);
    extents[dim] = halves && last ? half : size;
  }
  if (!known) {
    result.dims = extents;
    rule.setResult(0, result);
    return success();
  }
  TensorInfo info = input;
  // Numbers of another type are converted first, and what overlaps gets
  // another layout there.
  if (info.elementType && !isa<ComplexType>(info.elementType) &&
      isNonOverlappingAndDense(info) != TriBool::Yes)
    info.strides.reset();
  resize(info, *dims, taken);
  SmallVector<int64_t> rest(*dims);
  SmallVector<DimExpr> spectrum(*info.dims);
  if (dims->empty()) {
    info.strides = computePreservedStrides(info);
  } else if (kind == Fourier::Complex) {
    // Several dims of real numbers are converted first.
    if (rule.getOp()->hasAttr("n") == false && info.elementType &&
        !isa<ComplexType>(info.elementType) && dims->size() > 1)
      info.strides = computePreservedStrides(info);
    if (!sortByStride(info, rest))
      info.strides.reset();
    transformDims(info, rest, extents);
  } else {
    int64_t last = rest.pop_back_val();
    bool sorted = sortByStride(info, rest) || rest.size() < 2;
    if (!sorted)
      info.strides.reset();
    if (kind == Fourier::RealToHalf) {
      rest.push_back(last);
      transformDims(info, rest, extents);
    } else if (kind == Fourier::HalfToReal) {
      if (!rest.empty())
        transformDims(info, rest, spectrum);
      transformDims(info, {last}, extents);
    } else {
      transformDims(info, {last}, extents);
      if (!rest.empty()) {
        if (!sortByStride(info, rest))
          info.strides.reset();
        transformDims(info, rest, extents);
      }
    }
  }
  result.dims = extents;
  result.strides = info.strides;
  rule.setResult(0, result);
  return success();
}

void rules::inferFourierBatch(BatchRule &rule, Value self) {
  BatchFact fact = rule.fact(self);
  TensorInfo info = rule.tensor(self);
  if (fact.isFree())
    return rule.mix("a size of the transform follows the batch");
  auto dims = info.hasRank() ? getFourierDims(rule.getOp(), info.getRank())
                             : std::nullopt;
  if (!dims)
    return rule.mix("the rank of the operand is unknown");
  if (llvm::is_contained(*dims, fact.dim))
    return rule.mix(rule.getOp()->getName().stripDialect() +
                    " is along the batch dim " + Twine(fact.dim));
  // A size may only be that of another dim.
  for (Value size : OperatorArguments(rule.getOp()).getDynamic())
    if (!rule.fact(size).isFree())
      return rule.mix("a size of the transform follows the batch");
  rule.setResult(0, fact);
}

LogicalResult rules::inferShift(ShapeRule &rule, Value self) {
  TensorInfo info = rule.tensor(self);
  if (!info.hasRank()) {
    rule.setResult(0, info);
    return success();
  }
  if (info.getRank() == 0)
    return rule.emitError() << "expects rank 1 or more, got 0";
  if (!getFourierDims(rule.getOp(), info.getRank()))
    return rule.emitError() << "a dim is out of range for rank "
                            << info.getRank() << ", or given twice";
  TensorInfo result = TensorInfo::contiguous(*info.dims, info.elementType);
  // Pieces are joined again; cat keeps channels last.
  if (info.getRank() > 3 && info.isContiguous() != TriBool::Yes) {
    // At a batch of one the pieces do not tell the two layouts apart.
    auto isPlural = [](DimExpr dim) {
      auto extent = dim.getConstant();
      return extent && *extent > 1;
    };
    if (info.isChannelsLast() == TriBool::Yes &&
        llvm::all_of(*info.dims, isPlural))
      result = TensorInfo::channelsLast(*info.dims, info.elementType);
    else
      result.strides.reset();
  }
  rule.setResult(0, result);
  return success();
}

LogicalResult rules::inferFrequencies(ShapeRule &rule, bool halved,
                                      std::optional<int64_t> dtype) {
  TensorInfo result;
  result.elementType = dtype
                           ? getTypeForScalarTypeCode(rule.getContext(), *dtype)
                           : Float32Type::get(rule.getContext());
  DimExpr count = rule.integerArgument("n");
  result.dims.emplace(1);
  if (count) {
    if (auto value = count.getConstant(); value && *value < 0)
      return rule.emitError() << "n is " << *value;
    result = TensorInfo::contiguous(halved ? count.floorDiv(2) + 1 : count,
                                    result.elementType);
  }
  rule.setResult(0, result);
  return success();
}
