//===- GuardEmitter.h - What a changed program checks at entry --*- C++ -*-===//
//
// A program whose branches were decided holds for what they were decided by,
// and a tiled one for shapes, too: slices clamp and `copy_` broadcasts, so that
// it would answer where the original raises. The guard compares everything
// first, allocates nothing, and never raises on its own: a rank is compared
// before an extent is read. It computes one text, empty if all facts hold.
//
//===----------------------------------------------------------------------===//

#ifndef KOILA_LIB_TARGET_TORCHSCRIPT_EXPORT_GUARD_GUARDEMITTER_H
#define KOILA_LIB_TARGET_TORCHSCRIPT_EXPORT_GUARD_GUARDEMITTER_H

#include "../../Import/ProgramDevice.h"
#include "../Emit.h"
#include "../TileAttribute.h"
#include "koila/Dialect/Koila/Transforms/BatchTiling.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/StringMap.h"

namespace koila::torchscript {

/// The name of the symbol if `attr` is just one, with its multiple; else an
/// empty one.
std::pair<std::string, int64_t> getOnlySymbol(mlir::Attribute attr);

class GuardEmitter {
public:
  using TorchValue = torch::jit::Value;

  GuardEmitter(GraphEmitter &emitter, mlir::func::FuncOp function,
               const torch::jit::Module &module,
               const TileAttributes &attributes)
      : emitter(emitter), graph(emitter.getGraph()), function(function),
        module(module), attributes(attributes),
        tiled(function->getAttrOfType<mlir::DictionaryAttr>(
            KoilaDialect::kTiledAttr)),
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
  TorchValue *evaluate(DimExprAttr expr, mlir::Operation *op);
  TorchValue *evaluateFactor(mlir::Attribute factor, mlir::Operation *op);
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
  TorchValue *isOfType(TorchValue *tensor, mlir::Type type);
  /// A weight; a scripted class may declare it as optional.
  TorchValue *readWeight(ParamGetOp get);
  /// What PyTorch and the user may set, and tiles do not follow: their buffers
  /// have the types that koila knew.
  void requireSettings(llvm::function_ref<void(TorchValue *condition,
                                               const llvm::Twine &message)>
                           require);
  /// As emitFacts, of the attributes first: reading them cannot fail.
  TorchValue *emitAllFacts();
  TorchValue *emitLiteralCondition(TorchValue *value, mlir::Attribute expected);
  TorchValue *emitDictCondition(TorchValue *dict,
                                mlir::DictionaryAttr expected);
  TorchValue *emitTupleCondition(TorchValue *tuple, mlir::ArrayAttr expected);
  void warn(TorchValue *text);
  TorchValue *getSize(AssumeOp fact) {
    return emitter.call("aten::size",
                        {getTensor(fact), emitter.integer(*fact.getDim())});
  }
  mlir::BlockArgument getArgument(AssumeOp fact);
  /// `koila: argument 'x'`.
  std::string getArgumentName(mlir::BlockArgument argument);
  /// The tensor that `fact` speaks of, which is known not to be None.
  TorchValue *getTensor(AssumeOp fact);
  /// Reads the optional arguments again, where it is known that all facts hold:
  /// what the comparisons read ends with their blocks.
  void castPresent();
  /// Whether it may be None, as far as has been compared.
  bool isOptional(AssumeOp fact);
  TorchValue *text(const llvm::Twine &message) {
    return emitter.constant(message.str());
  }

  GraphEmitter &emitter;
  torch::jit::Graph &graph;
  mlir::func::FuncOp function;
  const torch::jit::Module &module;
  const TileAttributes &attributes;
  /// Null for an untiled function.
  mlir::DictionaryAttr tiled;
  /// Whether it is a training step, in tiles.
  bool trains;
  llvm::SmallVector<AssumeOp> facts, attributeFacts;
  /// What listWeights() made, with their names.
  TorchValue *weightList = nullptr;
  std::vector<std::string> weightNames;
  /// Symbols by name, as long as the guard has them.
  llvm::StringMap<TorchValue *> symbols;
  /// Optional arguments that are not None where the guard stands.
  llvm::MapVector<mlir::Value, TorchValue *> present;
  bool hasLeast = false;
  std::string suffix;
  /// None before it is asked for.
  std::optional<bool> untiledHasFlow;
};

} // namespace koila::torchscript

#endif // KOILA_LIB_TARGET_TORCHSCRIPT_EXPORT_GUARD_GUARDEMITTER_H
