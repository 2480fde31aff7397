//===- TileBatchPass.cpp - Run the batch in tiles -------------------------===//

#include "AnalysisPass.h"
#include "PassOptions.h"
#include "koila/Dialect/Koila/IR/Koila.h"
#include "koila/Dialect/Koila/Transforms/BatchTiling.h"
#include "koila/Dialect/Koila/Transforms/Passes.h"

namespace koila {
#define GEN_PASS_DEF_TILEBATCHPASS
#include "koila/Dialect/Koila/Transforms/Passes.h.inc"
} // namespace koila

using namespace mlir;
using namespace koila;

namespace {
struct TileBatchPass : public koila::impl::TileBatchPassBase<TileBatchPass> {
  using Base::Base;
  // Read by PassOptions.h.
  using Base::allocator, Base::device, Base::function, Base::grads, Base::isa,
      Base::loss, Base::mode, Base::optimizer, Base::threads, Base::torch,
      Base::workspaces;
  using Base::batchnorm, Base::budget, Base::costs, Base::grad, Base::guard,
      Base::plans, Base::random, Base::recompute, Base::tile;

  std::optional<std::string> getTrainingLoss() const override {
    return mode == "train" ? std::optional<std::string>(loss) : std::nullopt;
  }

  void runOnOperation() override {
    FailureOr<TilingOptions> options = getTilingOptions(*this, getOperation());
    if (failed(options) || failed(verifyInferred(getOperation())) ||
        failed(tileBatch(getOperation(), *options)))
      signalPassFailure();
  }
};
} // namespace

TypeID AnalysisPass::getTileBatchID() { return TypeID::get<TileBatchPass>(); }
