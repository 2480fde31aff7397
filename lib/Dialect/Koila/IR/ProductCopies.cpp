//===- ProductCopies.cpp - What a product copies first --------------------===//
//
// Sources: native/LinearAlgebra.cpp (mm, bmm, matmul), native/Blas.cpp.
//
//===----------------------------------------------------------------------===//

#include "ProductCopies.h"
#include "Footprint.h"
#include "koila/Dialect/Koila/IR/Koila.h"
#include "koila/Dialect/Koila/IR/KoilaCopyOps.h"
#include "koila/Dialect/Koila/IR/KoilaViewOps.h"
#include "mlir/IR/BuiltinTypes.h"
#include "llvm/ADT/STLExtras.h"

using namespace mlir;
using namespace koila;
using koila::blas::Factor;
using koila::blas::isOneDim;

int64_t Factor::numBytes() const {
  ConcreteTensor tensor;
  tensor.dims = dims;
  tensor.elementType = type;
  return tensor.numBytes();
}

/// Whether it is a weight that can be trained, or a view of one: such products
/// are folded also where that copies, for the sake of a backward pass.
/// Source: should_fold.
static bool isTrainedWeight(Value value) {
  while (Operation *op = value ? value.getDefiningOp() : nullptr) {
    if (auto read = dyn_cast<ParamGetOp>(op)) {
      auto param = SymbolTable::lookupNearestSymbolFrom<ParamOp>(
          op, read.getParamAttr());
      return param && param.getRequiresGrad();
    }
    auto fact = footprint::getStorageFact(value);
    if (!fact || fact->kind != StorageFact::Kind::Alias || isa<DetachOp>(op))
      return false;
    value = fact->operand;
  }
  return false;
}

std::optional<Factor> blas::getFactor(const WorkspaceRule &rule, Value value) {
  auto tensor = rule.tensor(value);
  auto strides = tensor ? tensor->getStrides() : std::nullopt;
  if (!strides)
    return std::nullopt;
  return Factor{tensor->dims, *strides, tensor->elementType,
                rule.isRecording() ? rule.wantsGradient(value)
                                   : isTrainedWeight(value)};
}

Factor blas::transpose(Factor factor) {
  std::swap(factor.dims.end()[-1], factor.dims.end()[-2]);
  std::swap(factor.strides.end()[-1], factor.strides.end()[-2]);
  return factor;
}

/// One of the matrices that a factor of three dims holds.
static Factor getMatrix(const Factor &factor) {
  return {{factor.dims.end()[-2], factor.dims.end()[-1]},
          {factor.strides.end()[-2], factor.strides.end()[-1]},
          factor.type};
}

/// Whether BLAS can read the matrices: rows or columns are dense.
static bool isReadable(const Factor &factor) {
  int64_t rows = factor.dims.end()[-2], columns = factor.dims.end()[-1];
  int64_t row = factor.strides.end()[-2], column = factor.strides.end()[-1];
  return (column == 1 && row >= std::max<int64_t>(columns, 1)) ||
         (row == 1 && column >= std::max<int64_t>(rows, 1));
}

static int64_t getReadableBytes(const Factor &matrix) {
  return isReadable(matrix) ? 0 : matrix.numBytes();
}

//===----------------------------------------------------------------------===//
// Kernels
//===----------------------------------------------------------------------===//

/// Source: addmm_impl_cpu_.
int64_t blas::getMmBytes(const Factor &lhs, const Factor &rhs) {
  Factor result{{lhs.dims[0], rhs.dims[1]}, {}, lhs.type};
  if (result.numBytes() == 0 || lhs.dims[1] == 0)
    return 0;
  return getReadableBytes(lhs) + getReadableBytes(rhs);
}

/// Source: bmm_out_or_baddbmm_. Small products and readable matrices need
/// nothing; else the matrices are multiplied one after the other.
int64_t blas::getBmmBytes(const Factor &lhs, const Factor &rhs) {
  constexpr int64_t kSmall = 400;
  int64_t work = lhs.dims[1] * lhs.dims[2] * rhs.dims[2];
  if (work < kSmall || (isReadable(lhs) && isReadable(rhs)))
    return 0;
  return getMmBytes(getMatrix(lhs), getMatrix(rhs));
}

/// Source: addmv_out in native/Blas.cpp.
int64_t blas::getMvBytes(const Factor &matrix) {
  // The copy is contiguous(), for which dims of one do not matter.
  int64_t expected = 1;
  bool isContiguous = true;
  for (size_t dim = matrix.dims.size(); dim-- > 0;) {
    isContiguous &= matrix.dims[dim] == 1 || matrix.strides[dim] == expected;
    expected *= matrix.dims[dim];
  }
  return matrix.numBytes() == 0 || isContiguous ? 0 : getReadableBytes(matrix);
}

//===----------------------------------------------------------------------===//
// matmul
//===----------------------------------------------------------------------===//

/// The stride of the last dim that has one.
static int64_t getLastStride(ArrayRef<int64_t> extents,
                             ArrayRef<int64_t> strides) {
  for (size_t dim = extents.size(); dim-- > 0;)
    if (extents[dim] != 1)
      return strides[dim];
  return 0;
}

bool blas::isOneDim(ArrayRef<int64_t> extents, ArrayRef<int64_t> strides) {
  // Each dim steps over the whole of the next one of more than one.
  std::optional<int64_t> expected;
  for (size_t dim = extents.size(); dim-- > 0;) {
    if (extents[dim] == 1)
      continue;
    if (expected && strides[dim] != *expected)
      return false;
    expected = strides[dim] * extents[dim];
  }
  return true;
}

Factor blas::flattenLeading(const Factor &factor, ArrayRef<int64_t> leading,
                            int64_t &bytes) {
  int64_t own = factor.getRank() - 2, missing = leading.size() - own;
  SmallVector<int64_t> strides;
  int64_t count = 1;
  for (auto [index, extent] : llvm::enumerate(leading)) {
    int64_t dim = static_cast<int64_t>(index) - missing;
    bool repeats = dim < 0 || factor.dims[dim] != extent;
    strides.push_back(repeats ? 0 : factor.strides[dim]);
    count *= extent;
  }
  Factor flat = getMatrix(factor);
  flat.dims.insert(flat.dims.begin(), count);
  flat.strides.insert(flat.strides.begin(), getLastStride(leading, strides));
  if (isOneDim(leading, strides) || flat.numBytes() == 0)
    return flat;
  flat.strides = {flat.dims[1] * flat.dims[2], flat.dims[2], 1};
  bytes += flat.numBytes();
  return flat;
}

/// Whether the leading dims and the rows of `factor` are one dim.
/// Source: should_fold.
static bool isFolded(const Factor &factor) {
  if (llvm::is_contained(factor.dims, 0))
    return true;
  for (int64_t dim = 0; dim + 2 < factor.getRank(); ++dim)
    if (factor.strides[dim] != factor.strides[dim + 1] * factor.dims[dim + 1])
      return false;
  return true;
}

bool blas::isMatrixProduct(const Factor &lhs, const Factor &rhs) {
  return isFolded(lhs) || rhs.isTrained;
}

/// All but the last dim as one.
static Factor fold(const Factor &factor) {
  int64_t rows = 1;
  for (int64_t extent : ArrayRef(factor.dims).drop_back())
    rows *= extent;
  return {{rows, factor.dims.back()},
          {factor.strides.end()[-2], factor.strides.back()},
          factor.type};
}

Factor blas::foldRows(const Factor &factor, int64_t &bytes) {
  auto extents = ArrayRef(factor.dims).drop_back();
  auto strides = ArrayRef(factor.strides).drop_back();
  int64_t rows = 1, columns = factor.dims.back();
  for (int64_t extent : extents)
    rows *= extent;
  // A single row is as far from the next one as reshape() says.
  int64_t step = rows == 1 ? columns * factor.strides.back()
                           : getLastStride(extents, strides);
  if (factor.getRank() == 2)
    return factor;
  if (factor.numBytes() == 0 || isOneDim(extents, strides))
    return {{rows, columns}, {step, factor.strides.back()}, factor.type};
  bytes += factor.numBytes();
  return {{rows, columns}, {columns, 1}, factor.type};
}

SmallVector<int64_t> blas::getLeadingDims(const Factor &lhs,
                                          const Factor &rhs) {
  SmallVector<int64_t> leading;
  int64_t rank = std::max(lhs.getRank(), rhs.getRank());
  for (int64_t dim = 0; dim < rank - 2; ++dim) {
    int64_t extent = 1;
    for (const Factor *factor : {&lhs, &rhs})
      if (int64_t own = dim - (rank - factor->getRank()); own >= 0)
        extent = extent == 1 ? factor->dims[own] : extent;
    leading.push_back(extent);
  }
  return leading;
}

/// A product in which a factor has three dims or more, and is not folded.
static blas::MatmulCopies getBatchedCopies(Factor lhs, Factor rhs) {
  auto addRows = [](Factor &factor, bool front) {
    if (factor.getRank() > 1)
      return;
    int64_t stride = front ? factor.dims[0] * factor.strides[0] : 1;
    factor.dims.insert(front ? factor.dims.begin() : factor.dims.end(), 1);
    factor.strides.insert(front ? factor.strides.begin() : factor.strides.end(),
                          stride);
  };
  addRows(lhs, true);
  addRows(rhs, false);
  SmallVector<int64_t> leading = blas::getLeadingDims(lhs, rhs);
  blas::MatmulCopies copies;
  Factor left = flattenLeading(lhs, leading, copies.left);
  Factor right = flattenLeading(rhs, leading, copies.right);
  copies.bytes = copies.left + copies.right + getBmmBytes(left, right);
  return copies;
}

/// Source: _matmul_impl.
blas::MatmulCopies blas::getMatmulCopies(const Factor &lhs, const Factor &rhs) {
  int64_t left = lhs.getRank(), right = rhs.getRank();
  if (left == 1 && right == 1)
    return {};
  if (left == 2 && right == 1)
    return {getMvBytes(lhs)};
  if (left == 1 && right == 2)
    return {getMmBytes({{1, lhs.dims[0]},
                        {lhs.dims[0] * lhs.strides[0], lhs.strides[0]},
                        lhs.type},
                       rhs)};
  if (left == 2 && right == 2)
    return {getMmBytes(lhs, rhs)};
  auto multiplyFolded = [](const Factor &folded, const Factor &other) {
    return MatmulCopies{other.getRank() == 1 ? getMvBytes(fold(folded))
                                             : getMmBytes(fold(folded), other)};
  };
  if (left >= 3 && right <= 2 && isFolded(lhs))
    return multiplyFolded(lhs, rhs);
  if (right >= 3 && left == 1 && isFolded(transpose(rhs)))
    return multiplyFolded(transpose(rhs), lhs);
  bool leftIsLarge = left >= 3 && right <= 2;
  bool rightIsLarge = right >= 3 && left <= 2;
  const Factor &small = leftIsLarge ? rhs : lhs;
  if ((!leftIsLarge && !rightIsLarge) || !small.isTrained)
    return getBatchedCopies(lhs, rhs);
  int64_t bytes = 0;
  Factor matrix = foldRows(leftIsLarge ? lhs : transpose(rhs), bytes);
  MatmulCopies copies;
  (leftIsLarge ? copies.left : copies.right) = bytes;
  if (small.getRank() == 1) {
    copies.bytes = bytes + getMvBytes(matrix);
    return copies;
  }
  Factor other = leftIsLarge ? small : transpose(small);
  // The transposed result is copied into rows, unless each is one element or
  // there is one of each.
  if (rightIsLarge && rhs.dims.back() != 1 && lhs.dims[0] != 1)
    bytes += Factor{{matrix.dims[0], other.dims[1]}, {}, lhs.type}.numBytes();
  copies.bytes = bytes + getMmBytes(matrix, other);
  return copies;
}

/// bfloat16 goes to oneDNN, whose buffers are not known.
bool blas::checkFactors(WorkspaceRule &rule, const std::optional<Factor> &lhs,
                        const std::optional<Factor> &rhs) {
  if (!lhs || !rhs)
    rule.setInexact("the strides of a factor are unknown");
  else if (lhs->type.isBF16() || rhs->type.isBF16())
    rule.setInexact("a product of bfloat16 in oneDNN");
  else if (isa<ComplexType>(lhs->type))
    rule.setInexact("a product of complex numbers");
  return rule.isExact();
}
