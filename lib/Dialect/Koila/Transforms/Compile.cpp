//===- Compile.cpp - From import to emittable -----------------------------===//

#include "PassOptions.h"
#include "koila/Analysis/DimAnalysis.h"
#include "koila/Dialect/Koila/IR/Koila.h"
#include "koila/Dialect/Koila/Transforms/Passes.h"

namespace koila {
#define GEN_PASS_DEF_COMPILEPASS
#include "koila/Dialect/Koila/Transforms/Passes.h.inc"
} // namespace koila

using namespace mlir;
using namespace koila;

namespace {
struct CompilePass : public koila::impl::CompilePassBase<CompilePass> {
  using Base::Base;
  // Read by PassOptions.h.
  using Base::allocator, Base::device, Base::function, Base::grads, Base::isa,
      Base::loss, Base::mode, Base::optimizer, Base::threads, Base::torch,
      Base::workspaces;
  using Base::batchnorm, Base::budget, Base::grad, Base::guard, Base::random,
      Base::tile;
  void runOnOperation() override {
    ModuleOp module = getOperation();
    FailureOr<TilingOptions> options = getTilingOptions(*this, module);
    if (failed(options) || failed(verifyImported(module)) ||
        failed(inferShapes(module)) || failed(verifyInferred(module)) ||
        failed(tileBatch(module, *options)) || failed(verifyTiled(module)) ||
        failed(verifyEmittable(module)))
      signalPassFailure();
  }
};
} // namespace
