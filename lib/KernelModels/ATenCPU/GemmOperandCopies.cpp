//===- GemmOperandCopies.cpp - What a product copies first ----------------===//
//
// Sources: native/LinearAlgebra.cpp (mm, bmm, matmul), native/Blas.cpp,
// native/CPUBlas.cpp, native/mkldnn/Matmul.cpp; of oneDNN 3.12
// cpu/matmul/gemm_bf16_matmul.cpp and gemm_based_common.hpp, and those of
// BrgemmProduct.cpp.
//
//===----------------------------------------------------------------------===//

#include "GemmOperandCopies.h"
#include "../ATen/ProductKernels.h"
#include "../ATen/TensorBytes.h"
#include "../OneDNN/Amx/AmxProduct.h"
#include "koila/Dialect/Koila/IR/CopyOps.h"
#include "koila/Dialect/Koila/IR/Koila.h"
#include "koila/Dialect/Koila/IR/ViewOps.h"
#include "koila/Interfaces/BackwardRule.h"
#include "koila/KernelModels/LeafKernels.h"
#include "mlir/IR/BuiltinTypes.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/MathExtras.h"

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

/// Whether it is a weight that can be trained, or a view of one.
static bool isTrainedWeight(Value value) {
  while (Operation *op = value ? value.getDefiningOp() : nullptr) {
    if (auto read = dyn_cast<ParamGetOp>(op)) {
      auto param = SymbolTable::lookupNearestSymbolFrom<ParamOp>(
          op, read.getParamAttr());
      return param && param.getRequiresGrad();
    }
    auto fact = kernels::getStorageFact(value);
    if (!fact || fact->kind != StorageFact::Kind::Alias || isa<DetachOp>(op))
      return false;
    value = fact->operand;
  }
  return false;
}

bool blas::requiresGradient(const WorkspaceRule &rule, Value value) {
  return rule.isRecording() ? rule.wantsGradient(value)
                            : isTrainedWeight(value);
}

std::optional<Factor> blas::getFactor(const WorkspaceRule &rule, Value value) {
  auto tensor = rule.tensor(value);
  auto strides = tensor ? tensor->getStrides() : std::nullopt;
  if (!strides)
    return std::nullopt;
  return Factor{tensor->dims, *strides, tensor->elementType,
                requiresGradient(rule, value)};
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

/// A copy that BLAS can read, where it cannot read the matrix.
static AllocationTrace::Block allocateReadable(AllocationTrace &trace,
                                               const Factor &matrix) {
  return trace.allocate(isReadable(matrix) ? 0 : matrix.numBytes());
}

/// Tensor::is_contiguous, for which dims of one do not matter.
static bool isContiguous(const Factor &factor) {
  int64_t expected = 1;
  for (size_t dim = factor.dims.size(); dim-- > 0;) {
    if (factor.dims[dim] != 1 && factor.strides[dim] != expected)
      return false;
    expected *= factor.dims[dim];
  }
  return true;
}

/// Whether the matrices lie in columns, one after the other.
static bool isInColumns(const Factor &factor) {
  int64_t rows = factor.dims.end()[-2], columns = factor.dims.end()[-1];
  return factor.strides.end()[-2] == 1 && factor.strides.end()[-1] == rows &&
         (factor.getRank() == 2 || factor.strides[0] == rows * columns);
}

//===----------------------------------------------------------------------===//
// Half types in oneDNN
//===----------------------------------------------------------------------===//

namespace {
/// Who computes a product of half types.
enum class Library {
  /// PyTorch itself, which holds nothing.
  ATen,
  /// oneDNN's gemm_bf16_matmul_t, which sums up in float32.
  Gemm,
  /// oneDNN's brgemm_matmul_t, whose buffers follow from its blocks.
  Brgemm,
  /// The same with AMX, whose blocks depend on the caches.
  Amx,
  /// The same with other blocks, of which nothing is known.
  BrgemmOfOtherBlocks
};
} // namespace

/// Products of more elements than this go to oneDNN. Source: checksize.
static constexpr int64_t kMostOfATen = 16 * 16 * 16;

/// Of products large enough for oneDNN. Sources: mkldnn_bf16_device_check and
/// mkldnn_fp16_device_check; brgemm_matmul_t takes bfloat16 on the instruction
/// sets that have it.
static Library getLibrary(StringRef isa, Type type) {
  if (!isHalf(type))
    return Library::ATen;
  if (isa == "avx2_vnni_2" || isa == "avx512_core_amx_fp16")
    return Library::BrgemmOfOtherBlocks;
  bool isF16 = type.isF16();
  if (isa == "avx512_core_amx")
    return isF16 ? Library::Brgemm : Library::Amx;
  if (isa == "avx512_core_fp16")
    return Library::Brgemm;
  if (isF16 || !isa.starts_with("avx512_core"))
    return Library::ATen;
  return isa == "avx512_core_bf16" ? Library::Brgemm : Library::Gemm;
}

/// Whether that many multiplications are too many for PyTorch itself.
static bool isLarge(ArrayRef<int64_t> extents) {
  int64_t work = 1;
  for (int64_t extent : extents)
    if (llvm::MulOverflow(work, extent, work))
      return !llvm::is_contained(extents, 0);
  return work > kMostOfATen;
}

bool blas::takesOneDnn(const WorkspaceRule &rule, Type type,
                       ArrayRef<int64_t> extents) {
  return !getKernels(rule) &&
         getLibrary(rule.getTarget().isa, type) != Library::ATen &&
         isLarge(extents);
}

/// The scratchpad of oneDNN to multiply the matrices of `lhs` by as many
/// others.
static int64_t getScratchpadBytes(WorkspaceRule &rule, const Factor &lhs,
                                  const Factor &rhs) {
  int64_t columns = rhs.dims.back();
  const WorkspaceTarget &target = rule.getTarget();
  Library library = getLibrary(target.isa, lhs.type);
  StringRef typeName = lhs.type.isBF16() ? "bfloat16" : "float16";
  if (library == Library::BrgemmOfOtherBlocks) {
    rule.setInexact(Twine("a product of ") + typeName + " in oneDNN on '" +
                    target.isa + "'");
    return 0;
  }
  int64_t batch = lhs.getRank() == 3 ? lhs.dims[0] : 1;
  int64_t rows = lhs.dims.end()[-2], sums = lhs.dims.end()[-1];
  // Far from the end of 64 bits also for all threads.
  constexpr int64_t kMostElements = int64_t(1) << 48;
  int64_t elements;
  if (llvm::MulOverflow(batch, rows, elements) ||
      llvm::MulOverflow(elements, columns, elements) ||
      elements > kMostElements || target.threads > 1 << 12) {
    rule.setInexact(Twine("a product of ") + typeName +
                    " in oneDNN of too many elements");
    return 0;
  }
  onednn::BrgemmProduct product{batch,
                                rows,
                                sums,
                                columns,
                                lhs.strides.end()[-2],
                                lhs.strides.end()[-1],
                                lhs.type.isF16()};
  if (library == Library::Amx) {
    if (sums > kMostElements / std::max(rows, columns)) {
      rule.setInexact("a product of bfloat16 in oneDNN of too many elements");
      return 0;
    }
    onednn::AmxProduct ofAmx{product, rhs.strides.back() != 1 && columns > 1};
    onednn::Caches caches{target.l1Bytes, target.l2Bytes};
    if (auto bytes = onednn::getAmxBytes(ofAmx, target.threads, caches))
      return *bytes;
    rule.setBound("the blocks of a product of bfloat16 with AMX");
    return onednn::boundAmxBytes(ofAmx, target.threads, caches);
  }
  if (library == Library::Brgemm) {
    auto bytes = onednn::getBrgemmBytes(product, target.threads);
    if (!bytes)
      rule.setInexact(Twine("a product of ") + typeName +
                      " that oneDNN cannot cut into blocks");
    return bytes.value_or(0);
  }
  // Each thread sums whole rows of a matrix, or a part of one. Source:
  // get_scratchpad_num_elements.
  auto getSums = [&](int64_t threads) -> int64_t {
    int64_t share = llvm::divideCeil(elements, threads);
    if (share >= columns)
      share = std::min(rows * columns, share / columns * columns);
    return threads * llvm::alignTo(share, 64);
  };
  // A scratchpad can be moved to where it is aligned. Source: registry_t::book.
  constexpr int64_t kAlignment = 128;
  return std::max(getSums(1), getSums(target.threads)) * sizeof(float) +
         kAlignment;
}

/// What oneDNN holds to multiply the matrices of `lhs` by as many others: a
/// scale is a tensor of one number. Source: ideep's matmul_forward.
static void allocateOneDnn(AllocationTrace &trace, WorkspaceRule &rule,
                           const Factor &lhs, const Factor &rhs,
                           blas::Scale scale) {
  auto scaled = trace.allocate(scale == blas::Scale::Other ? sizeof(float) : 0);
  trace.allocateTemporary(getScratchpadBytes(rule, lhs, rhs));
  trace.free(scaled);
}

/// The factor in rows, as a copy is.
static Factor getDense(Factor factor) {
  int64_t stride = 1;
  for (size_t dim = factor.dims.size(); dim-- > 0;) {
    factor.strides[dim] = stride;
    stride *= factor.dims[dim];
  }
  return factor;
}

/// What mkldnn_matmul copies, for it reads what is dense; then `factor` is the
/// copy.
static AllocationTrace::Block copyUnlessDense(AllocationTrace &trace,
                                              Factor &factor) {
  if (!isContiguous(factor) && isInColumns(factor))
    return {};
  int64_t bytes = isContiguous(factor) ? 0 : factor.numBytes();
  factor = getDense(factor);
  return trace.allocate(bytes);
}

/// Whether a product with a vector is a loop of dot products: one factor is a
/// vector with a stride of one, the rows of the other are dense. So it is of
/// float16, and of bfloat16 without instructions for it. Sources:
/// use_fp16_gemv_trans and use_bf16_gemv_trans in cpublas::gemm, which ask the
/// processor: ONEDNN_MAX_CPU_ISA does not hide its instructions.
static bool isDotProducts(const Factor &lhs, const Factor &rhs) {
  int64_t rows = lhs.dims[0], sums = lhs.dims[1], columns = rhs.dims[1];
  auto isDense = [](int64_t stride, int64_t next, int64_t extent) {
    return stride == 1 && next >= std::max<int64_t>(extent, 1);
  };
  // BLAS takes columns: those of a result of rows are its rows.
  if (columns == 1)
    return !isDense(lhs.strides[0], lhs.strides[1], rows) &&
           isDense(rhs.strides[0], rhs.strides[1], sums);
  if (rows != 1 || isDense(rhs.strides[1], rhs.strides[0], columns) ||
      !isDense(rhs.strides[0], rhs.strides[1], sums))
    return false;
  // A single row that is strided is copied.
  return isDense(lhs.strides[1], lhs.strides[0], sums) ||
         !isDense(lhs.strides[0], lhs.strides[1], 1);
}

blas::Scale blas::getScale(Attribute number) {
  if (auto integer = dyn_cast<IntegerAttr>(number))
    return integer.getValue().isZero()  ? Scale::Zero
           : integer.getValue().isOne() ? Scale::One
                                        : Scale::Other;
  if (auto real = dyn_cast<FloatAttr>(number))
    return real.getValue().isZero()       ? Scale::Zero
           : real.getValueAsDouble() == 1 ? Scale::One
                                          : Scale::Other;
  return Scale::Other;
}

//===----------------------------------------------------------------------===//
// Kernels
//===----------------------------------------------------------------------===//

/// Sources: addmm_impl_cpu_; cpublas::gemm and mkldnn_gemm.
void blas::allocateMm(AllocationTrace &trace, WorkspaceRule &rule,
                      const Factor &lhs, const Factor &rhs, Scale scale) {
  int64_t rows = lhs.dims[0], sums = lhs.dims[1], columns = rhs.dims[1];
  Factor result{{rows, columns}, {}, lhs.type};
  if (result.numBytes() == 0 || sums == 0)
    return;
  if (const ProductKernels *kernels = getKernels(rule))
    return kernels->multiply(trace, rule, lhs, rhs);
  // BLAS takes columns: a result of one is that row, and the factors of others
  // are exchanged.
  bool isColumn = columns == 1;
  auto first = allocateReadable(trace, isColumn ? lhs : rhs);
  auto second = allocateReadable(trace, isColumn ? rhs : lhs);
  Library library = getLibrary(rule.getTarget().isa, lhs.type);
  bool isOfATen = library == Library::ATen || scale == Scale::Zero ||
                  !isLarge({rows, sums, columns}) ||
                  ((library == Library::Gemm || lhs.type.isF16()) &&
                   scale == Scale::One && isDotProducts(lhs, rhs));
  if (!isOfATen) {
    Factor left = isColumn ? transpose(rhs) : lhs;
    Factor right = isColumn ? transpose(lhs) : rhs;
    for (Factor *factor : {&left, &right})
      if (!isReadable(*factor))
        *factor = getDense(*factor);
    allocateOneDnn(trace, rule, left, right, scale);
  }
  trace.free(second);
  trace.free(first);
}

/// Source: mkldnn_matmul in native/mkldnn/Matmul.cpp.
static void allocateOneDnnMatmul(AllocationTrace &trace, WorkspaceRule &rule,
                                 Factor lhs, Factor rhs, blas::Scale scale) {
  if (scale == blas::Scale::Zero)
    return;
  auto left = copyUnlessDense(trace, lhs);
  auto right = copyUnlessDense(trace, rhs);
  allocateOneDnn(trace, rule, lhs, rhs, scale);
  trace.free(right);
  trace.free(left);
}

/// Source: bmm_out_or_baddbmm_. Small products and readable matrices need
/// nothing; else the matrices are multiplied one after the other.
void blas::allocateBmm(AllocationTrace &trace, WorkspaceRule &rule,
                       const Factor &lhs, const Factor &rhs, Scale scale) {
  constexpr int64_t kSmall = 400;
  int64_t batch = lhs.dims[0], rows = lhs.dims[1], columns = rhs.dims[2];
  if (batch == 0)
    return;
  if (const ProductKernels *kernels = getKernels(rule))
    return kernels->multiply(trace, rule, lhs, rhs);
  if (takesOneDnn(rule, lhs.type, {batch, rows, lhs.dims[2], columns}))
    return allocateOneDnnMatmul(trace, rule, lhs, rhs, scale);
  int64_t work = rows * lhs.dims[2] * columns;
  if (work < kSmall || (isReadable(lhs) && isReadable(rhs)))
    return;
  // Of more, the list would be too long.
  constexpr int64_t kMostProducts = 1 << 12;
  Factor left = getMatrix(lhs), right = getMatrix(rhs);
  if (batch > kMostProducts)
    return trace.lump(getMmBytes(rule, left, right, scale));
  for (int64_t index = 0; index < batch; ++index)
    allocateMm(trace, rule, left, right, scale);
}

/// Source: addmv_out in native/Blas.cpp.
void blas::allocateMv(AllocationTrace &trace, WorkspaceRule &rule,
                      const Factor &matrix, const Factor &vector, Scale scale) {
  if (matrix.numBytes() == 0)
    return;
  if (const ProductKernels *kernels = getKernels(rule))
    return kernels->multiplyVector(trace, rule, matrix, vector);
  Factor column{{vector.dims[0], 1}, {vector.strides[0], 1}, vector.type};
  if (takesOneDnn(rule, matrix.type, matrix.dims))
    return allocateOneDnnMatmul(trace, rule, matrix, column, scale);
  if (!isContiguous(matrix))
    trace.free(allocateReadable(trace, matrix));
}

/// Source: dot in native/Blas.cpp.
void blas::allocateDot(AllocationTrace &trace, WorkspaceRule &rule,
                       const Factor &lhs, const Factor &rhs) {
  if (const ProductKernels *kernels = getKernels(rule))
    return kernels->multiplyVector(trace, rule, lhs, rhs);
  if (!takesOneDnn(rule, lhs.type, lhs.dims))
    return;
  auto copy = [&](const Factor &factor) {
    return trace.allocate(isContiguous(factor) ? 0 : factor.numBytes());
  };
  auto left = copy(lhs), right = copy(rhs);
  Factor row = getDense({{1, lhs.dims[0]}, {lhs.dims[0], 1}, lhs.type});
  allocateOneDnn(trace, rule, row, transpose(row), Scale::One);
  trace.free(right);
  trace.free(left);
}

int64_t blas::getMmBytes(WorkspaceRule &rule, const Factor &lhs,
                         const Factor &rhs, Scale scale) {
  AllocationTrace trace;
  allocateMm(trace, rule, lhs, rhs, scale);
  return trace.getPeak();
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

/// The stride that Tensor::view gives a dim of one in front of a matrix.
/// Source: computeStride_impl in aten/src/ATen/TensorUtils.cpp.
static int64_t getStrideInFront(const Factor &factor) {
  int64_t rows = factor.dims.end()[-2], columns = factor.dims.end()[-1];
  int64_t row = factor.strides.end()[-2], column = factor.strides.end()[-1];
  return rows == 1 || row == columns * column ? rows * columns * column
                                              : rows * row;
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
  flat.strides.insert(flat.strides.begin(),
                      count == 1 ? getStrideInFront(flat)
                                 : getLastStride(leading, strides));
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
static blas::MatmulCopies allocateBatched(AllocationTrace &trace,
                                          WorkspaceRule &rule, Factor lhs,
                                          Factor rhs, int64_t resultBytes) {
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
  copies.leftBlock = trace.allocate(copies.left);
  Factor right = flattenLeading(rhs, leading, copies.right);
  copies.rightBlock = trace.allocate(copies.right);
  copies.result = trace.allocate(resultBytes);
  allocateBmm(trace, rule, left, right);
  return copies;
}

/// A large factor, of three dims or more, and one of a dim or two, by which it
/// is multiplied as one matrix.
static blas::MatmulCopies allocateFolded(AllocationTrace &trace,
                                         WorkspaceRule &rule, const Factor &lhs,
                                         const Factor &rhs,
                                         int64_t resultBytes) {
  bool isLeftLarge = lhs.getRank() >= 3;
  const Factor &small = isLeftLarge ? rhs : lhs;
  int64_t copied = 0;
  Factor matrix = blas::foldRows(isLeftLarge ? lhs : transpose(rhs), copied);
  blas::MatmulCopies copies;
  (isLeftLarge ? copies.left : copies.right) = copied;
  (isLeftLarge ? copies.leftBlock : copies.rightBlock) = trace.allocate(copied);
  copies.result = trace.allocate(resultBytes);
  if (small.getRank() == 1) {
    allocateMv(trace, rule, matrix, small);
  } else {
    allocateMm(trace, rule, matrix, isLeftLarge ? small : transpose(small));
    // The transposed result is copied into rows, unless each is one element or
    // there is one of each.
    if (!isLeftLarge && rhs.dims.back() != 1 && lhs.dims[0] != 1) {
      auto rows = trace.allocate(resultBytes);
      trace.free(copies.result);
      copies.result = rows;
    }
  }
  return copies;
}

/// Of a product that copies no factor.
static blas::MatmulCopies makeResult(AllocationTrace::Block result) {
  blas::MatmulCopies copies;
  copies.result = result;
  return copies;
}

/// Source: _matmul_impl.
static blas::MatmulCopies allocateProduct(AllocationTrace &trace,
                                          WorkspaceRule &rule,
                                          const Factor &lhs, const Factor &rhs,
                                          int64_t resultBytes) {
  int64_t left = lhs.getRank(), right = rhs.getRank();
  if (left >= 3 && right <= 2 && isFolded(lhs)) {
    auto result = trace.allocate(resultBytes);
    if (right == 1)
      allocateMv(trace, rule, fold(lhs), rhs);
    else
      allocateMm(trace, rule, fold(lhs), rhs);
    return makeResult(result);
  }
  if (right >= 3 && left == 1 && isFolded(transpose(rhs))) {
    auto result = trace.allocate(resultBytes);
    allocateMv(trace, rule, fold(transpose(rhs)), lhs);
    return makeResult(result);
  }
  if (left >= 3 || right >= 3) {
    bool isTrained =
        (left <= 2 && lhs.isTrained) || (right <= 2 && rhs.isTrained);
    return isTrained ? allocateFolded(trace, rule, lhs, rhs, resultBytes)
                     : allocateBatched(trace, rule, lhs, rhs, resultBytes);
  }
  auto result = trace.allocate(resultBytes);
  if (left == 1 && right == 1)
    allocateDot(trace, rule, lhs, rhs);
  else if (right == 1)
    allocateMv(trace, rule, lhs, rhs);
  else if (left == 1)
    allocateMm(trace, rule,
               {{1, lhs.dims[0]},
                {lhs.dims[0] * lhs.strides[0], lhs.strides[0]},
                lhs.type},
               rhs);
  else
    allocateMm(trace, rule, lhs, rhs);
  return makeResult(result);
}

/// The dims of torch.matmul.
static Factor getResult(const Factor &lhs, const Factor &rhs) {
  Factor result{blas::getLeadingDims(lhs, rhs), {}, lhs.type};
  if (lhs.getRank() > 1)
    result.dims.push_back(lhs.dims.end()[-2]);
  if (rhs.getRank() > 1)
    result.dims.push_back(rhs.dims.back());
  return result;
}

blas::MatmulCopies blas::allocateMatmul(AllocationTrace &trace,
                                        WorkspaceRule &rule, const Factor &lhs,
                                        const Factor &rhs, bool keepsLeft,
                                        bool keepsRight) {
  MatmulCopies copies =
      allocateProduct(trace, rule, lhs, rhs, getResult(lhs, rhs).numBytes());
  if (!keepsRight)
    trace.free(copies.rightBlock);
  if (!keepsLeft)
    trace.free(copies.leftBlock);
  return copies;
}

blas::MatmulCopies blas::getMatmulCopies(WorkspaceRule &rule, const Factor &lhs,
                                         const Factor &rhs) {
  AllocationTrace trace;
  MatmulCopies copies = allocateMatmul(trace, rule, lhs, rhs);
  copies.bytes = trace.getTransient();
  return copies;
}

void blas::keepBlocks(SavedRule &rule, const AllocationTrace &trace,
                      ArrayRef<AllocationTrace::Block> blocks) {
  // Where the rule has a sum only, the bytes are told.
  bool isItemized = rule.getTrace().getNumBlocks() == trace.getNumBlocks();
  for (AllocationTrace::Block block : blocks) {
    if (isItemized)
      rule.keep(block);
    else if (!block.isEmpty())
      rule.keep(trace.getBytes(block));
  }
}

void blas::freeKept(BackwardRule &rule, AllocationTrace &steps,
                    const AllocationTrace &forward,
                    ArrayRef<AllocationTrace::Block> kept,
                    AllocationTrace::Block block) {
  if (block.isEmpty())
    return;
  size_t number = 0, count = 0;
  for (AllocationTrace::Block other : kept) {
    number += !other.isEmpty() && other.getIndex() < block.getIndex();
    count += !other.isEmpty();
  }
  rule.freeKept(steps, forward.getBytes(block), number, count);
}

bool blas::checkFactors(WorkspaceRule &rule, const std::optional<Factor> &lhs,
                        const std::optional<Factor> &rhs) {
  if (!lhs || !rhs)
    rule.setInexact("the strides of a factor are unknown");
  return rule.isExact();
}
