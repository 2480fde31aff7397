//===- Emit.h - From the dialect to a TorchScript archive -------*- C++ -*-===//

#ifndef KOILA_TARGET_TORCHSCRIPT_EXPORT_EMIT_H
#define KOILA_TARGET_TORCHSCRIPT_EXPORT_EMIT_H

#include "../Import/Import.h"
#include "llvm/ADT/SmallPtrSet.h"
#include "llvm/ADT/StringMap.h"

namespace koila::torchscript {

struct EmitOptions {
  std::string weightsPath;
  std::string outputPath;
  std::string reportJson;
};

/// A method of an archive as it was read, in the context of what is emitted.
struct LoadedProgram {
  Archive archive;
  torch::jit::Module module;
  /// All extra files of the archive.
  torch::jit::ExtraFilesMap extraFiles;
  std::string function;
  /// Read without assumptions.
  ImportedFunction imported;
};

/// Writes the module's function into a copy of its archive. That is loaded
/// again, unless it is the one of `kept`, which changes then. Throws Refusal.
void emitModule(mlir::ModuleOp module, const EmitOptions &options,
                const OperatorTable &operators,
                std::optional<LoadedProgram> kept = std::nullopt);

struct Expectation;
using FinishModule =
    llvm::function_ref<void(const torch::jit::Module &, const Expectation &)>;

/// Builds `function` into a copy of `loaded` that shares all tensors, and hands
/// `finish` that copy with what a file of it must read back as. If `finish`
/// refuses a function that no pass changed, it gets one that keeps the method
/// as it is. Only what is written to a file (`isForFile`) is read back, and
/// records the examples that a method was traced with. `report` is that of the
/// function, or empty. `imported` is the method
/// of `loaded` as importFunction() reads it without assumptions, if it was
/// read. Throws Refusal.
void rebuildMethod(mlir::ModuleOp module, mlir::func::FuncOp function,
                   const Archive &archive, torch::jit::Module &loaded,
                   const OperatorTable &operators, bool isForFile,
                   llvm::StringRef report, FinishModule finish,
                   std::optional<ImportedFunction> imported = std::nullopt);

/// The value that a literal of an assumption stands for.
c10::IValue getAssumed(mlir::Attribute expected);

/// Builds the TorchScript graph of a function body.
class GraphEmitter {
public:
  using TorchValue = torch::jit::Value;

  /// `original` is the import of the method the function came from: ranges,
  /// types that only the archive knows, and constants are taken from there.
  GraphEmitter(torch::jit::Graph &graph, const ImportedFunction &original,
               const OperatorTable &operators, TorchValue *self,
               mlir::SymbolTable &symbols,
               const llvm::SmallPtrSetImpl<mlir::Operation *> &copied);

  /// Emits the operations of `block` and returns what its terminator yields.
  llvm::SmallVector<TorchValue *> emitBlock(mlir::Block &block);

  /// Emits the body of `function` and returns its result, None if it has none.
  TorchValue *emitBody(mlir::func::FuncOp function);

  void map(mlir::Value value, TorchValue *emitted) { values[value] = emitted; }
  TorchValue *lookup(mlir::Value value, mlir::Operation *user);

  // Small pieces, also used by the guard.
  TorchValue *constant(const c10::IValue &value);
  TorchValue *integer(int64_t value) { return constant(c10::IValue(value)); }
  TorchValue *integerList(llvm::ArrayRef<int64_t> values);
  TorchValue *list(llvm::ArrayRef<TorchValue *> elements,
                   const c10::TypePtr &elementType);
  /// A node of a registered operator, by `aten::name.overload`; absent
  /// trailing arguments take their defaults.
  TorchValue *call(const char *qualifiedName,
                   llvm::ArrayRef<TorchValue *> arguments);
  /// The result of a branch, of `type`; null if that is null.
  TorchValue *branch(TorchValue *condition, const c10::TypePtr &type,
                     llvm::function_ref<TorchValue *()> thenBody,
                     llvm::function_ref<TorchValue *()> elseBody);
  /// Of modules that no method assigns, which are read once where that is
  /// possible: LibTorch takes quadratic time for the variables of a branch, and
  /// much for each value that is a module.
  TorchValue *readAttribute(llvm::StringRef path);
  torch::jit::Graph &getGraph() { return graph; }
  /// The tensor that `tensor.empty` takes its device from.
  void setDeviceOf(TorchValue *tensor) { deviceOf = tensor; }
  /// Reads the attribute that says how many samples a tile has; loops that are
  /// emitted from now on follow it (LoopTiles.h).
  void readTile(llvm::StringRef attribute);
  /// Operators that write to an operand, as to running statistics, though their
  /// schemas do not say so.
  const std::vector<torch::jit::Node *> &getUpdates() const { return updates; }

private:
  using Node = torch::jit::Node;

  void emitOperation(mlir::Operation *op);
  void emitOperator(mlir::Operation *op, const OperatorInfo &info);
  void emitCarried(CarriedOperatorInterface op);
  /// Lists, tuples, dicts and other literals; false if `op` is none.
  bool emitContainer(mlir::Operation *op);
  void emitParam(ParamGetOp op);
  /// A leaf, or the gradient of one.
  void emitLeaf(mlir::Operation *op);
  /// Attributes and methods; false if `op` is none.
  bool emitObject(mlir::Operation *op);
  /// The object that holds the attribute at `path`, and the attribute's name.
  std::pair<TorchValue *, std::string>
  emitOwner(mlir::Operation *op, llvm::StringRef path, mlir::Value object);
  void emitFor(mlir::Operation *op);
  /// The tile that the loop has, and how many sizes its tiles have; nulls if
  /// those are constants.
  std::pair<TorchValue *, TorchValue *> emitTile(mlir::Operation *op);
  /// Of a power of two, which one it is.
  TorchValue *emitLog2(TorchValue *value);
  void emitIf(mlir::Operation *op);
  void emitWhile(mlir::Operation *op);
  /// Names `values`, so that the compiler that reads the file back, which
  /// sorts variables by name, keeps their order.
  void nameInOrder(at::ArrayRef<TorchValue *> values);
  /// Keeps a list or tuple of one element from being unpacked later than it
  /// stands.
  void keepInPlace(Node *unpack);
  /// A loop over `inputs` whose body has `carried` as what is carried; the
  /// body is the caller's to fill.
  torch::jit::Block *addLoop(mlir::Operation *op,
                             llvm::ArrayRef<TorchValue *> inputs,
                             mlir::ValueRange carried);
  c10::TypePtr getResultType(mlir::Operation *op, unsigned index,
                             TorchValue *fallback);
  bool emitArith(mlir::Operation *op);
  bool emitTensor(mlir::Operation *op);
  TorchValue *getDeviceOfBuffer(mlir::Operation *empty);
  TorchValue *slice(TorchValue *tensor, mlir::Operation *op,
                    mlir::Type fullType, mlir::Type sliceType);
  TorchValue *fromAttr(mlir::Attribute attr, c10::TypePtr type,
                       mlir::Operation *op, mlir::ValueRange operands);
  TorchValue *ofr(mlir::OpFoldResult value, mlir::Operation *op);
  /// As convertType, with types that only the archive has; null if unknown.
  c10::TypePtr getType(mlir::Type type) const;
  /// The node that `op` was imported from; null if it is new.
  Node *getOriginal(mlir::Operation *op) const;
  /// Checks that LibTorch sees the operator that was meant: it picks overloads
  /// by the types of the arguments.
  void checkOverload(Node *node, mlir::Operation *op, llvm::StringRef name);
  Node *insert(mlir::Operation *op, c10::Symbol kind,
               llvm::ArrayRef<TorchValue *> inputs, size_t outputs);

  torch::jit::Graph &graph;
  const ImportedFunction &original;
  const OperatorTable &operators;
  TorchValue *self;
  mlir::SymbolTable &symbols;
  const llvm::SmallPtrSetImpl<mlir::Operation *> &copied;
  TorchValue *deviceOf = nullptr;
  /// What readTile() read, and which power of two it is.
  TorchValue *tile = nullptr, *tilePower = nullptr;
  /// How many branches and loops have names.
  size_t numNamed = 0;
  llvm::DenseMap<mlir::Value, TorchValue *> values;
  std::vector<Node *> updates;
  /// Modules that were read, by path.
  llvm::StringMap<TorchValue *> owners;
};

/// What a method that facts are assumed for is made of. The method itself holds
/// the guard alone: LibTorch takes quadratic time to read a large branch.
struct GuardedMethods {
  explicit GuardedMethods(const std::string &name)
      : guarded(name + "_guarded"), untiled(name + "_untiled") {}

  /// What runs if the facts hold, of the plan at that place.
  std::string getGuarded(int64_t plan) const {
    return plan == 0 ? guarded : guarded + "_" + std::to_string(plan);
  }
  /// The methods of all plans that a program may have.
  llvm::SmallVector<std::string> listGuarded() const;

  /// What runs if the facts hold.
  std::string guarded;
  /// The original program.
  std::string untiled;
};

/// Attributes that a tiled program follows; empty where there are none.
struct TileAttributes {
  /// How many samples a tile has.
  std::string tile;
  /// Which of `plans` plans runs.
  std::string plan;
  int64_t plans = 1;
};

/// Emits the guard, which calls one of the methods; returns the result. It
/// makes sure that `attributes` are a tile and a plan.
torch::jit::Value *emitGuard(GraphEmitter &emitter, mlir::func::FuncOp function,
                             const torch::jit::Module &module,
                             const GuardedMethods &methods,
                             const TileAttributes &attributes);

} // namespace koila::torchscript

#endif // KOILA_TARGET_TORCHSCRIPT_EXPORT_EMIT_H
