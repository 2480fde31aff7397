//===- InferShapes.cpp - Refine types and dims ----------------------------===//

#include "koila/Analysis/DimAnalysis.h"
#include "koila/Dialect/Koila/IR/Koila.h"
#include "koila/Dialect/Koila/Transforms/Passes.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/IR/OperationSupport.h"

namespace koila {
#define GEN_PASS_DEF_INFERSHAPESPASS
#include "koila/Dialect/Koila/Transforms/Passes.h.inc"
} // namespace koila

using namespace mlir;
using namespace koila;

/// The type of `value` with what `info` adds. A static extent in the type
/// stays: it may say more than the expression, which keeps the symbol of a
/// batch that has one value.
static Type refine(Value value, const ValueInfo &info) {
  auto type = dyn_cast<TensorType>(value.getType());
  if (!type || !info.tensor)
    return value.getType();
  auto found = cast<TensorType>(getTensorType(*info.tensor, type.getContext()));
  Type element = isa<AnyType>(found.getElementType()) ? type.getElementType()
                                                      : found.getElementType();
  if (!found.hasRank())
    return type.hasRank() ? RankedTensorType::get(type.getShape(), element)
                          : Type(UnrankedTensorType::get(element));
  return RankedTensorType::get(found.getShape(), element);
}

/// Assumptions about the arguments, one of each kind, in argument order. They
/// stand at entry; what is there already is replaced.
static void writeAssumptions(FunctionOpInterface function) {
  Block &entry = function.getFunctionBody().front();
  for (Operation &op : llvm::make_early_inc_range(entry))
    if (isa<AssumeOp>(op))
      op.erase();
  OpBuilder builder(&entry, entry.begin());
  auto assume = [&](Fact fact, Value value, IntegerAttr dim,
                    Attribute expected) {
    AssumeOp::create(builder, function.getLoc(), fact, value, dim, expected);
  };
  MLIRContext *context = function.getContext();
  auto module = function->getParentOfType<ModuleOp>();
  for (BlockArgument argument : entry.getArguments()) {
    auto type = dyn_cast<RankedTensorType>(argument.getType());
    auto dims = function.getArgAttrOfType<DimsAttr>(argument.getArgNumber(),
                                                    KoilaDialect::kDimsAttr);
    if (!type || !dims)
      continue;
    if (!isa<AnyType>(type.getElementType()))
      assume(Fact::DType, argument, {}, TypeAttr::get(type.getElementType()));
    assume(Fact::Rank, argument, {}, builder.getI64IntegerAttr(type.getRank()));
    for (auto [index, expr] : llvm::enumerate(dims.getExprs())) {
      // A symbol with one value stands for that number.
      Attribute expected = expr;
      if (!type.isDynamicDim(index))
        expected = DimExpr::constant(context, type.getDimSize(index)).getAttr();
      assume(Fact::Extent, argument, builder.getI64IntegerAttr(index),
             expected);
    }
  }
  if (auto training =
          module ? module->getAttrOfType<BoolAttr>(KoilaDialect::kTrainingAttr)
                 : BoolAttr())
    assume(Fact::Training, {}, {}, training);
}

LogicalResult koila::inferShapes(ModuleOp module) {
  for (auto function : module.getOps<FunctionOpInterface>()) {
    if (function.isExternal())
      continue;
    DimAnalysis dims(function);
    if (!dims.isValid())
      return failure();
    // Region operations, their arguments, yields and results take one fact
    // from the fixed point, so that they stay consistent.
    auto apply = [&](Value value) {
      value.setType(refine(value, dims.lookup(value)));
    };
    function->walk<WalkOrder::PreOrder>([&](Operation *op) {
      // Weights are typed by their declaration, and a refinement by itself.
      if (!isa<ParamGetOp, RefineOp>(op))
        llvm::for_each(op->getResults(), apply);
      for (Region &region : op->getRegions())
        for (Block &block : region)
          if (op != function.getOperation())
            llvm::for_each(block.getArguments(), apply);
    });
    Operation *terminator = function.getFunctionBody().front().getTerminator();
    if (auto builtin = dyn_cast<func::FuncOp>(function.getOperation()))
      builtin.setFunctionType(FunctionType::get(module.getContext(),
                                                builtin.getArgumentTypes(),
                                                terminator->getOperandTypes()));
    writeAssumptions(function);
  }
  return success();
}

namespace {
struct InferShapesPass
    : public koila::impl::InferShapesPassBase<InferShapesPass> {
  void runOnOperation() override {
    if (failed(inferShapes(getOperation())))
      signalPassFailure();
  }
};
} // namespace
