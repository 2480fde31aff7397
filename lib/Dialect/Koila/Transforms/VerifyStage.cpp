//===- VerifyStage.cpp - What holds at each hand-over ---------------------===//

#include "PassOptions.h"
#include "koila/Analysis/ControlFlow.h"
#include "koila/Analysis/DimAnalysis.h"
#include "koila/Dialect/Koila/IR/ObjectOps.h"
#include "koila/Dialect/Koila/Transforms/Passes.h"
#include "koila/Interfaces/DataExtents.h"
#include "mlir/Interfaces/ControlFlowInterfaces.h"
#include "llvm/ADT/StringMap.h"

namespace koila {
#define GEN_PASS_DEF_VERIFYSTAGEPASS
#include "koila/Dialect/Koila/Transforms/Passes.h.inc"
} // namespace koila

using namespace mlir;
using namespace koila;

/// Those of modules in the module, too.
static SmallVector<FunctionOpInterface> getBodies(ModuleOp module) {
  SmallVector<FunctionOpInterface> functions;
  module.walk<WalkOrder::PreOrder>([&](FunctionOpInterface function) {
    if (!function.isExternal())
      functions.push_back(function);
    return WalkResult::skip();
  });
  return functions;
}

/// A key of the archive is one tensor.
static LogicalResult verifyKeys(ModuleOp module) {
  llvm::StringMap<ParamOp> owners;
  for (auto param : module.getOps<ParamOp>())
    for (auto key : param.getKeys().getAsRange<StringAttr>()) {
      auto [owner, isNew] = owners.try_emplace(key.getValue(), param);
      if (isNew)
        continue;
      InFlightDiagnostic error =
          param.emitOpError() << "has the key '" << key.getValue() << "' of '"
                              << owner->second.getSymName() << "'";
      error.attachNote(owner->second.getLoc()) << "which is here";
      return failure();
    }
  return success();
}

LogicalResult koila::verifyImported(ModuleOp module) {
  if (failed(verifyKeys(module)))
    return failure();
  for (FunctionOpInterface function : getBodies(module)) {
    for (unsigned index = 0; index < function.getNumArguments(); ++index)
      if (!function.getArgAttrOfType<StringAttr>(index,
                                                 KoilaDialect::kNameAttr))
        return function.emitError()
               << "argument " << index << " has no '" << KoilaDialect::kNameAttr
               << "'; import gives names";
    if (Operation *branching = findSeveralBlocks(function))
      return branching->emitError() << "has several blocks; import builds one";
  }
  return success();
}

static bool isUnknown(Type type) {
  auto tensor = dyn_cast<TensorType>(type);
  return tensor && (!tensor.hasRank() || isa<AnyType>(tensor.getElementType()));
}

LogicalResult koila::verifyInferred(ModuleOp module) {
  for (FunctionOpInterface function : getBodies(module)) {
    for (BlockArgument argument : function.getArguments()) {
      if (!isa<TensorType>(argument.getType()))
        continue;
      unsigned index = argument.getArgNumber();
      auto type = dyn_cast<RankedTensorType>(argument.getType());
      if (!type || isUnknown(type) ||
          (!type.hasStaticShape() && !function.getArgAttrOfType<DimsAttr>(
                                         index, KoilaDialect::kDimsAttr)))
        return function.emitError()
               << "the shape of argument " << index << " is not known; give "
               << "--input, for example --input='float32[B,64]', and run "
               << "--koila-infer-shapes";
    }
    // Of branches that no call gets to nothing is known.
    std::optional<DimAnalysis> dims;
    bool branches = function
                        ->walk([](RegionBranchOpInterface) {
                          return WalkResult::interrupt();
                        })
                        .wasInterrupted();
    if (branches)
      dims.emplace(function);
    auto isNone = [&](Value result) {
      if (!dims)
        dims.emplace(function);
      return isa_and_nonnull<UnitAttr>(dims->lookup(result).literal);
    };
    WalkResult result = function->walk([&](Operation *op) {
      // What an opaque operator makes may stay unknown, what an attribute
      // holds that the program assigns, what has no shape because data decide
      // it, and what is made of it. So may what branches merge, and what
      // nothing reads.
      if (isa<CarriedOperatorInterface, RefineOp, RegionBranchOpInterface,
              UninitializedOp, DataExtentInterface>(op) ||
          accessesModuleState(op) || (dims && dims->isDead(op)))
        return WalkResult::advance();
      bool fromOpaque = llvm::any_of(op->getOperandTypes(), isUnknown);
      for (Value result : op->getResults())
        if (isUnknown(result.getType()) && !fromOpaque && !isNone(result)) {
          op->emitOpError()
              << "has a result of unknown type " << result.getType()
              << "; what comes out of lists and objects that "
                 "change stays unknown, anything else "
                 "--koila-infer-shapes should have found";
          return WalkResult::interrupt();
        }
      return WalkResult::advance();
    });
    // The analysis says where the program contradicts itself.
    if (result.wasInterrupted() || (dims && !dims->isValid()))
      return failure();
  }
  return success();
}

LogicalResult koila::verifyTiled(ModuleOp module) {
  for (FunctionOpInterface function : getBodies(module)) {
    if (!function->hasAttr(KoilaDialect::kTiledAttr))
      continue;
    if (function.getFunctionBody().front().getOps<AssumeOp>().empty())
      return function.emitError()
             << "is tiled, but states no assumption for its guard; "
             << "--koila-tile-batch should have written them";
  }
  return verifyInferred(module);
}

/// What emission can write back.
static bool isEmittable(Operation *op) {
  static const llvm::StringLiteral kUpstream[] = {"arith.constant",
                                                  "arith.addi",
                                                  "arith.subi",
                                                  "arith.muli",
                                                  "arith.floordivsi",
                                                  "arith.minsi",
                                                  "arith.maxsi",
                                                  "arith.index_cast",
                                                  "arith.cmpi",
                                                  "arith.select",
                                                  "arith.andi",
                                                  "arith.ori",
                                                  "arith.xori",
                                                  "scf.if",
                                                  "scf.for",
                                                  "scf.while",
                                                  "scf.condition",
                                                  "scf.yield",
                                                  "func.return",
                                                  "tensor.empty",
                                                  "tensor.dim",
                                                  "tensor.cast",
                                                  "tensor.extract_slice",
                                                  "tensor.insert_slice"};
  return isa_and_nonnull<KoilaDialect>(op->getDialect()) ||
         isa<TorchOperatorInterface>(op) ||
         llvm::is_contained(kUpstream, op->getName().getStringRef());
}

LogicalResult koila::verifyEmittable(ModuleOp module) {
  for (FunctionOpInterface function : getBodies(module)) {
    // Operations first, then what is in them: a body may be nobody's text.
    auto check = [&](Operation *op) {
      if (op == function.getOperation() || isEmittable(op))
        return WalkResult::advance();
      op->emitOpError() << "cannot be written as TorchScript; run passes that "
                           "leave koila, arith, scf and tensor slices only";
      return WalkResult::interrupt();
    };
    WalkResult result = function->walk<WalkOrder::PreOrder>(check);
    if (result.wasInterrupted())
      return failure();
  }
  return success();
}

namespace {
struct VerifyStagePass
    : public koila::impl::VerifyStagePassBase<VerifyStagePass> {
  using Base::Base;
  void runOnOperation() override {
    ModuleOp module = getOperation();
    LogicalResult result = failure();
    if (stage == "imported")
      result = verifyImported(module);
    else if (stage == "inferred")
      result = verifyInferred(module);
    else if (stage == "tiled")
      result = verifyTiled(module);
    else if (stage == "emittable")
      result = verifyEmittable(module);
    else
      module.emitError() << "unknown stage=" << stage
                         << "; use imported, inferred, tiled or emittable";
    if (failed(result))
      signalPassFailure();
    markAllAnalysesPreserved();
  }
};
} // namespace
