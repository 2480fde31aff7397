//===- peak.cpp - The peak memory of a module, for some batch sizes -------===//

#include "koila/Analysis/PeakMemory.h"
#include "koila/InitAllDialects.h"
#include "koila/InitAllExtensions.h"
#include "koila/InitAllPasses.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Pass/PassManager.h"
#include "llvm/Support/raw_ostream.h"

int main(int argc, char **argv) {
  if (argc != 2) {
    llvm::errs() << "usage: peak FILE.mlir\n";
    return 1;
  }
  mlir::DialectRegistry registry;
  koila::registerAllDialects(registry);
  koila::registerAllExtensions(registry);
  mlir::MLIRContext context(registry);
  auto module = mlir::parseSourceFile<mlir::ModuleOp>(argv[1], &context);
  if (!module)
    return 1;

  mlir::PassManager passes(&context);
  passes.addPass(koila::createInferShapesPass());
  if (mlir::failed(passes.run(*module)))
    return 1;

  koila::PeakMemoryOptions options;
  options.threads = 1;
  auto report = koila::computePeakMemory(*module, options);
  if (mlir::failed(report) || !report->peakBytes)
    return 1;
  llvm::outs() << "peak: " << *report->peakBytes << " bytes"
               << (report->exact() ? ", exact" : "") << '\n';

  // One analysis serves every batch size.
  auto function = *module->getOps<mlir::FunctionOpInterface>().begin();
  koila::PeakMemoryAnalysis analysis(function, options);
  for (int64_t batch : {1, 2, 100}) {
    auto bytes = analysis.evaluate({{"B", batch}});
    llvm::outs() << "B = " << batch << ": " << bytes.value_or(-1) << '\n';
  }
  return 0;
}
