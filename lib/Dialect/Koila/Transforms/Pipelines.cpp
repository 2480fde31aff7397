//===- Pipelines.cpp - Pipelines of koila's passes ------------------------===//

#include "koila/Dialect/Koila/Transforms/Pipelines.h"
#include "AnalysisPass.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Pass/PassRegistry.h"

using namespace mlir;
using namespace koila;

static void addStageCheck(OpPassManager &manager, StringRef stage) {
  VerifyStagePassOptions options;
  options.stage = stage.str();
  manager.addPass(createVerifyStagePass(options));
}

static void addCompilePasses(OpPassManager &manager,
                             std::unique_ptr<Pass> tiling) {
  addStageCheck(manager, "imported");
  manager.addPass(createInferShapesPass());
  addStageCheck(manager, "inferred");
  manager.addPass(std::move(tiling));
  addStageCheck(manager, "tiled");
  addStageCheck(manager, "emittable");
}

void koila::buildCompilePipeline(OpPassManager &manager,
                                 const TileBatchPassOptions &options) {
  addCompilePasses(manager, createTileBatchPass(options));
}

void koila::registerKoilaPipelines() {
  // The pass reads the options, so that they are stated once.
  registerPassPipeline(
      "koila-compile",
      "the whole pipeline from import to emittable: shape inference and batch "
      "tiling, with the options of koila-tile-batch",
      [](OpPassManager &manager, StringRef options,
         function_ref<LogicalResult(const Twine &)> errorHandler) {
        std::unique_ptr<Pass> tiling = createTileBatchPass();
        if (failed(tiling->initializeOptions(options, errorHandler)))
          return failure();
        addCompilePasses(manager, std::move(tiling));
        return success();
      },
      // --help lists them with the pass.
      [](function_ref<void(const mlir::detail::PassOptions &)>) {});
}

std::optional<std::string>
koila::findTrainingLoss(const OpPassManager &manager) {
  for (const Pass &pass : manager)
    if (auto *analysis = dyn_cast<AnalysisPass>(&pass))
      if (std::optional<std::string> loss = analysis->getTrainingLoss())
        return loss;
  return std::nullopt;
}
