//===- Rules.h - What the rules of an operator read and set -----*- C++ -*-===//
//
// Each rule is a method of the operation; these classes carry the facts in
// and out, so that one rule serves inference, verification, analysis and
// tiling.
//
//===----------------------------------------------------------------------===//

#ifndef KOILA_INTERFACES_RULES_H
#define KOILA_INTERFACES_RULES_H

#include "koila/Dialect/Koila/IR/DimExpr.h"
#include "koila/Interfaces/AllocationTrace.h"
#include "koila/Interfaces/Trust.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/Operation.h"
#include "mlir/IR/SymbolTable.h"
#include "mlir/IR/Value.h"
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace koila {

//===----------------------------------------------------------------------===//
// Shapes
//===----------------------------------------------------------------------===//

/// What is known of a tensor.
struct TensorInfo {
  /// One expression per dim; none: the rank is unknown.
  std::optional<llvm::SmallVector<DimExpr>> dims;
  /// Null: unknown.
  mlir::Type elementType;
  /// In elements, one per dim; none: unknown.
  std::optional<llvm::SmallVector<DimExpr>> strides;

  bool hasRank() const { return dims.has_value(); }
  int64_t getRank() const { return dims->size(); }
  DimExpr dim(int64_t index) const { return (*dims)[index]; }

  static TensorInfo contiguous(llvm::ArrayRef<DimExpr> dims, mlir::Type type);
  /// Dims of 4-D (N, C, H, W) in N, H, W, C order of memory.
  static TensorInfo channelsLast(llvm::ArrayRef<DimExpr> dims, mlir::Type type);
  /// Dense row-major; dims of extent one do not matter. Unknown strides are
  /// `Unknown`.
  TriBool isContiguous() const;
  TriBool isChannelsLast() const;
  /// Of a tensor without gaps or overlap, the dims from the outermost in
  /// memory; none if that is not known of it.
  std::optional<llvm::SmallVector<int64_t>> getDenseOrder() const;
  /// Some permutation of dense row-major without gaps or overlap.
  TriBool isDense() const;
};

/// What is known of any value: a tensor, an integer, a list of integers, a
/// container, or nothing.
struct ValueInfo {
  std::optional<TensorInfo> tensor;
  /// The value of an integer; null if unknown or no integer.
  DimExpr integer;
  /// The elements of a list of integers; a null element is unknown.
  std::optional<llvm::SmallVector<DimExpr>> list;
  /// The elements of a tuple, of a list of known length, or of a dict in the
  /// order of its keys; empty if not known.
  std::vector<ValueInfo> elements;
  /// A bool, float, string, device or None (unit) that is known; else null.
  mlir::Attribute literal;

  /// Of a tensor; null if unknown.
  mlir::Type getElementType() const {
    return tensor ? tensor->elementType : mlir::Type();
  }
};

/// From the type alone; each `?` becomes what `getExtent` gives for that dim.
TensorInfo
getTensorInfoFromType(mlir::Type type,
                      llvm::function_ref<DimExpr(unsigned dim)> getExtent);
/// The same with local symbols `<prefix>d<dim>`.
TensorInfo getTensorInfoFromType(mlir::Type type, llvm::StringRef prefix,
                                 SymbolKind kind = SymbolKind::Extent);
/// The builtin tensor type that says as much of `info` as a type can.
mlir::Type getTensorType(const TensorInfo &info, mlir::MLIRContext *context);

/// The arguments of an operator that are no tensors, by their names in the
/// schema. A literal is an attribute. A computed one is marked there, by
/// `ShapedType::kDynamic` for an integer or an element of a list and by
/// `#koila.dynamic` for a number, and is the next operand of the last operand
/// group, in the order of the arguments. A list with one marker may as a whole
/// be an operand of list type.
class OperatorArguments {
public:
  explicit OperatorArguments(mlir::Operation *op) : op(op) {}

  /// False for None.
  bool has(llvm::StringRef name) const;
  /// The operand behind the argument, or behind the marked element `index` of
  /// a list; null for a literal.
  mlir::Value getDynamic(llvm::StringRef name, unsigned index = 0) const;
  /// All operands of the group.
  mlir::OperandRange getDynamic() const;

private:
  mlir::Operation *op;
};

class ShapeRule {
public:
  using Lookup = llvm::function_ref<ValueInfo(mlir::Value)>;
  /// With `symbols`, which have to outlive the rule, symbols are looked up in
  /// tables; else by going through all operations of the module.
  ShapeRule(mlir::Operation *op, Lookup lookup,
            mlir::SymbolTableCollection *symbols = nullptr);

  mlir::Operation *getOp() const { return op; }
  mlir::MLIRContext *getContext() const { return op->getContext(); }
  /// Facts of an operand; a null value (absent optional) gives nothing known.
  TensorInfo tensor(mlir::Value value) const;
  DimExpr integer(mlir::Value value) const;
  /// An integer argument, literal or computed; null if unknown or None.
  DimExpr integerArgument(llvm::StringRef name) const;
  /// A list of integers; none if its length is unknown, or for None. An
  /// element may be null.
  std::optional<llvm::SmallVector<DimExpr>>
  integerList(llvm::StringRef name) const;
  /// The nearest operation of this name; null if there is none.
  mlir::Operation *lookupSymbol(mlir::SymbolRefAttr name) const;
  /// The type of a number: i64, f64 or i1; null if unknown.
  mlir::Type numberType(llvm::StringRef name) const;
  bool hasArgument(llvm::StringRef name) const {
    return OperatorArguments(op).has(name);
  }
  DimExpr constant(int64_t value) const {
    return DimExpr::constant(getContext(), value);
  }
  void setResult(unsigned index, TensorInfo info) {
    results[index].tensor = std::move(info);
  }
  void setInteger(unsigned index, DimExpr value) {
    results[index].integer = value;
  }
  void setList(unsigned index, llvm::ArrayRef<DimExpr> elements) {
    results[index].list.emplace(elements.begin(), elements.end());
  }
  /// An error at the operation.
  mlir::InFlightDiagnostic emitError() const;

  /// All facts of an operand, and of a result.
  ValueInfo info(mlir::Value value) const { return lookup(value); }
  void setInfo(unsigned index, ValueInfo info) {
    results[index] = std::move(info);
  }

  llvm::ArrayRef<ValueInfo> getResults() const { return results; }

private:
  mlir::Operation *op;
  Lookup lookup;
  mlir::SymbolTableCollection *symbols;
  llvm::SmallVector<ValueInfo, 1> results;
};

//===----------------------------------------------------------------------===//
// Batch
//===----------------------------------------------------------------------===//

/// How what each tile gives makes what the whole batch gives, where samples
/// meet.
enum class Combine {
  /// It does not.
  None,
  Sum,
  /// Of the gradient of a weight: parts may be rounded to a half type, as
  /// autograd rounds what it adds up.
  GradientSum,
  /// The sum, each tile weighed by its share of the samples.
  Mean,
  /// The logarithm of the sum of exponentials.
  LogSumExp,
  /// The square root of the sum of squares.
  Norm,
  /// A second result, if there is one, is where along the reduced dim the first
  /// result is, first among equals.
  Max,
  Min,
  /// The variance and its square root. The attributes `dim`, `keepdim`,
  /// `unbiased` and `correction` are those of PyTorch's operators.
  Variance,
  Deviation,
  /// Of two results, the mean and the variance that no one is taken off of.
  MeanAndVariance,
  Any,
  All
};

/// Where the batch is in a value.
struct BatchFact {
  enum class Kind {
    /// Not visited yet.
    Unset,
    /// Does not depend on the batch.
    Free,
    /// Dim `dim` has `factor` rows per sample, samples outermost. Of an
    /// integer (`dim` is -1): `factor` times the number of samples; of a list
    /// of integers: the element `dim` is.
    At,
    /// Dim `dim` has `outer` times all the samples, each with `factor` rows:
    /// row (t*B + b)*factor + j belongs to sample b.
    Inner,
    /// Samples meet, or nothing is known; `reason` says why.
    Mixed
  };
  Kind kind = Kind::Unset;
  int64_t dim = 0;
  int64_t factor = 1;
  /// In the user's terms, for example "softmax over dim 0 mixes samples".
  std::string reason;
  /// The operation that mixed; null for arguments.
  mlir::Operation *origin = nullptr;
  /// How often all samples follow each other; null but for Inner.
  DimExpr outer;
  /// Of Mixed, to be asked of the rule itself: facts that meet do not keep it.
  Combine combine = Combine::None;
  /// Of Inner: the rows are those where this mask, which has the batch, is
  /// true, so that data decide how many there are of a sample, and `outer` says
  /// nothing.
  mlir::Value mask = {};

  static BatchFact free() {
    return {Kind::Free, 0, 1, {}, nullptr, {}, Combine::None};
  }
  static BatchFact at(int64_t dim, int64_t factor) {
    return {Kind::At, dim, factor, {}, nullptr, {}, Combine::None};
  }
  /// At, if `outer` is one.
  static BatchFact inner(int64_t dim, int64_t factor, DimExpr outer) {
    if (outer.isConstant(1))
      return at(dim, factor);
    return {Kind::Inner, dim, factor, {}, nullptr, outer, Combine::None};
  }
  /// Inner: what a mask selects.
  static BatchFact selected(int64_t dim, mlir::Value mask) {
    DimExpr any =
        DimExpr::symbol(mask.getContext(), "_selected", SymbolKind::Selected);
    return {Kind::Inner, dim, 1, {}, nullptr, any, Combine::None, mask};
  }
  static BatchFact mixed(std::string reason, mlir::Operation *origin) {
    return {Kind::Mixed, 0, 1, std::move(reason), origin, {}, Combine::None};
  }
  bool isFree() const { return kind == Kind::Free; }
  bool isAt() const { return kind == Kind::At; }
  bool isInner() const { return kind == Kind::Inner; }
  bool isSelected() const { return isInner() && mask; }
  bool isMixed() const { return kind == Kind::Mixed; }
  bool operator==(const BatchFact &other) const {
    return kind == other.kind && dim == other.dim && factor == other.factor &&
           outer == other.outer && mask == other.mask;
  }
};

class BatchRule {
public:
  BatchRule(mlir::Operation *op,
            llvm::function_ref<BatchFact(mlir::Value)> facts,
            ShapeRule::Lookup shapes);

  mlir::Operation *getOp() const { return op; }
  /// Facts of an operand; a null value is Free. Of an operand that is Inner
  /// every row is shown as a sample: what keeps rows apart keeps the order in
  /// which they lie, and takeResults() gives it to the results.
  BatchFact fact(mlir::Value value) const;
  /// The rule holds for any number of rows, none included: of rows that a mask
  /// selects, which data count, a tile may have as many as it likes.
  void takeAnyRows() { takesAnyRows = true; }
  /// The same for a rule that merges or splits dims, and knows what Inner is.
  BatchFact rows(mlir::Value value);
  /// Facts of an argument that is no tensor; a literal is Free. Of a list,
  /// those of the marked element `index`.
  BatchFact argumentFact(llvm::StringRef name, unsigned index = 0) const {
    return fact(OperatorArguments(op).getDynamic(name, index));
  }
  TensorInfo tensor(mlir::Value value) const;
  /// All that is known of a value without the batch.
  ValueInfo info(mlir::Value value) const { return shapes(value); }
  void setResult(unsigned index, BatchFact fact) {
    results[index] = std::move(fact);
  }
  void setAll(const BatchFact &fact);
  /// Marks every result as mixing samples; `reason` in the user's terms.
  void mix(const llvm::Twine &reason, Combine combine = Combine::None);
  /// What the rule said so far.
  llvm::ArrayRef<BatchFact> getResults() const { return results; }
  /// The same, and Inner where operands are.
  llvm::SmallVector<BatchFact, 1> takeResults();

private:
  std::optional<BatchFact> getCommonRows(bool &agrees) const;
  BatchFact orderRows(const BatchFact &rows, unsigned result) const;

  mlir::Operation *op;
  bool knowsRows = false, takesAnyRows = false;
  llvm::function_ref<BatchFact(mlir::Value)> facts;
  ShapeRule::Lookup shapes;
  llvm::SmallVector<BatchFact, 1> results;
};

//===----------------------------------------------------------------------===//
// Memory
//===----------------------------------------------------------------------===//

/// Where a result lives.
struct StorageFact {
  enum class Kind {
    /// A storage of its own.
    New,
    /// The storage of `operand`: a view.
    Alias,
    /// May reuse the storage of `operand`; tie resolution decides.
    Tied,
    /// A container that keeps its operands alive, or a value without bytes.
    Keeps
  };
  Kind kind = Kind::New;
  mlir::Value operand;
  /// False if the rule had to guess between view and copy.
  bool exact = true;
};

class StorageRule {
public:
  StorageRule(mlir::Operation *op, ShapeRule::Lookup shapes);
  mlir::Operation *getOp() const { return op; }
  TensorInfo tensor(mlir::Value value) const;
  void setNew(unsigned result) { results[result] = {}; }
  void setAlias(unsigned result, mlir::Value operand) {
    results[result] = {StorageFact::Kind::Alias, operand, true};
  }
  void setTied(unsigned result, mlir::Value operand) {
    results[result] = {StorageFact::Kind::Tied, operand, true};
  }
  void setKeeps(unsigned result) {
    results[result] = {StorageFact::Kind::Keeps, {}, true};
  }
  /// The decision needs a fact that is not known.
  void setInexact(unsigned result) { results[result].exact = false; }
  llvm::ArrayRef<StorageFact> getResults() const { return results; }

private:
  mlir::Operation *op;
  ShapeRule::Lookup shapes;
  llvm::SmallVector<StorageFact, 1> results;
};

/// A tensor with numbers for symbols.
struct ConcreteTensor {
  llvm::SmallVector<int64_t> dims;
  mlir::Type elementType;
  bool contiguous = true;
  /// In elements, of a tensor that is not contiguous; none: unknown.
  std::optional<llvm::SmallVector<int64_t>> strides = std::nullopt;

  int64_t numElements() const;
  /// Extent product times element size.
  int64_t numBytes() const;
  /// `strides`, or those of a contiguous tensor.
  std::optional<llvm::SmallVector<int64_t>> getStrides() const;
};

/// Bytes of one element; 0 for an unknown element type.
int64_t getElementBytes(mlir::Type type);

class DeviceProfile;
class LeafKernels;

/// The machine and library a figure is for.
struct WorkspaceTarget {
  int64_t threads = 1;
  /// oneDNN's name of the instruction set, for example `avx512_core_bf16`.
  std::string isa;
  /// Data caches of one core in bytes, 0 if unknown.
  int64_t l1Bytes = 0, l2Bytes = 0;
  /// Of the target's library (KernelModels/KernelModel.h): kernels that no
  /// operation stands for, and what was measured on the device; null without
  /// any.
  const LeafKernels *leaves = nullptr;
  const DeviceProfile *profile = nullptr;
};

class WorkspaceRule {
public:
  using Lookup = llvm::function_ref<std::optional<ConcreteTensor>(mlir::Value)>;
  using Wants = llvm::function_ref<bool(mlir::Value)>;
  /// `wants` says of a value whether a gradient flows to it; without it nothing
  /// is recorded.
  WorkspaceRule(mlir::Operation *op, const WorkspaceTarget &target,
                Lookup lookup, Wants wants = {})
      : op(op), target(target), lookup(lookup), wants(wants) {}

  mlir::Operation *getOp() const { return op; }
  const WorkspaceTarget &getTarget() const { return target; }
  /// Numbers of an operand or result; none if unknown or absent.
  std::optional<ConcreteTensor> tensor(mlir::Value value) const;
  /// Whether autograd records the program.
  bool isRecording() const { return static_cast<bool>(wants); }
  /// Whether a gradient flows to `value`; false for an absent one.
  bool wantsGradient(mlir::Value value) const {
    return wants && value && wants(value);
  }
  /// What the operation allocates. Of the blocks that are left the results have
  /// those of their bytes, in order; results without a block are there before.
  /// `left` are the bytes of those that the trace has.
  void setTrace(AllocationTrace steps, int64_t left) {
    trace = std::move(steps);
    transient = trace.getPeak() - left;
    if (left == 0)
      trace.freeAll();
  }
  void setTrace(AllocationTrace steps) {
    int64_t left = steps.getLeft();
    setTrace(std::move(steps), left);
  }
  /// Bytes beyond the results at the worst moment, of which no more is known.
  void setTransient(int64_t bytes) {
    trace = AllocationTrace();
    trace.lump(bytes);
    transient = bytes;
  }
  /// The storage of `result` takes `bytes`, not those of its elements.
  void setStorageBytes(mlir::Value result, int64_t bytes) {
    storageBytes.push_back({result, bytes});
  }
  /// The figure is a guess; `why` says why.
  void setInexact(const llvm::Twine &why) { addDoubt(Trust::Unknown, why); }
  /// The figure is at least what is allocated; `why` says why it may be more.
  void setBound(const llvm::Twine &why) { addDoubt(Trust::UpperBound, why); }
  /// Joined with the doubts that there are: none is taken back.
  void addDoubt(Trust trust, const llvm::Twine &why,
                llvm::StringRef source = {}) {
    doubts.add({trust, why.str(), source.str()});
  }

  /// Bytes beyond the results at the worst moment.
  int64_t getTransient() const { return transient; }
  const AllocationTrace &getTrace() const { return trace; }
  /// What setStorageBytes() said; none if the storage is as large as its
  /// elements.
  std::optional<int64_t> getStorageBytes(mlir::Value result) const;
  bool isExact() const { return doubts.getTrust() == Trust::Exact; }
  /// Exact, or an upper bound.
  bool isBounded() const { return doubts.getTrust() <= Trust::UpperBound; }
  const Doubts &getDoubts() const { return doubts; }

private:
  mlir::Operation *op;
  const WorkspaceTarget &target;
  Lookup lookup;
  Wants wants;
  int64_t transient = 0;
  llvm::SmallVector<std::pair<mlir::Value, int64_t>, 1> storageBytes;
  Doubts doubts;

protected:
  AllocationTrace trace;
};

/// What autograd keeps of an operation that it records, until the last tensor
/// that came of it is gone. `describeWorkspace` has been asked before.
class SavedRule : public WorkspaceRule {
public:
  using WorkspaceRule::WorkspaceRule;

  /// An operand or a result.
  void save(mlir::Value value) {
    if (value)
      saved.push_back(value);
  }
  /// As `save`, if a gradient flows to `reason`, which needs it.
  void saveFor(mlir::Value reason, mlir::Value value) {
    if (wantsGradient(reason))
      save(value);
  }
  /// A block that the operation made inside, part of what it held there.
  void keep(int64_t bytes) {
    kept += bytes;
    trace.keep(bytes);
  }
  /// The same of a block of the trace.
  void keep(AllocationTrace::Block block) {
    kept += block.isEmpty() ? 0 : trace.getBytes(block);
    trace.keep(block);
  }
  /// No gradient passes, whatever the sizes are.
  void setDetached() { detached = true; }
  /// To autograd the result is a view of the whole of another tensor, which
  /// nobody else has.
  void setViewed() { viewed = true; }

  llvm::ArrayRef<mlir::Value> getSaved() const { return saved; }
  int64_t getKept() const { return kept; }
  bool isDetached() const { return detached; }
  bool isViewed() const { return viewed; }

private:
  llvm::SmallVector<mlir::Value, 3> saved;
  int64_t kept = 0;
  bool detached = false;
  bool viewed = false;
};

namespace detail {
/// The verifier of every operator: runs the shape rule on what the operand
/// types say, and compares the result types with it.
llvm::LogicalResult verifyShapeRule(mlir::Operation *op);
} // namespace detail

} // namespace koila

#endif // KOILA_INTERFACES_RULES_H
