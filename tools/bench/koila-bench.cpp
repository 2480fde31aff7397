//===- koila-bench.cpp - Time of the passes -------------------------------===//
//
// koila-bench [model.mlir]
//
// Prints, never asserts: the time of each step on a module that is already in
// memory, with the noise of timing the same step twice (A/A), and time per
// operation on synthetic programs of growing length.
//
//===----------------------------------------------------------------------===//

#include "koila/Analysis/BatchAnalysis.h"
#include "koila/Dialect/Koila/IR/LossOps.h"
#include "koila/Dialect/Koila/Transforms/BatchTiling.h"
#include "koila/InitAllDialects.h"
#include "koila/InitAllExtensions.h"
#include "koila/Support/ByteSize.h"
#include "mlir/Parser/Parser.h"
#include "llvm/Support/Format.h"
#include <chrono>

using namespace mlir;
using namespace koila;

static double measure(llvm::function_ref<void()> step) {
  auto start = std::chrono::steady_clock::now();
  step();
  std::chrono::duration<double, std::milli> spent =
      std::chrono::steady_clock::now() - start;
  return spent.count();
}

/// Runs `step` on fresh copies of `module`, as two interleaved series; prints
/// the median of both and their ratio, which is the noise.
static void bench(llvm::StringRef name, ModuleOp module,
                  llvm::function_ref<void(ModuleOp)> step) {
  constexpr int kRounds = 15;
  std::vector<double> series[2];
  for (int round = 0; round < kRounds; ++round)
    for (std::vector<double> &times : series) {
      OwningOpRef<ModuleOp> copy(module.clone());
      times.push_back(measure([&] { step(*copy); }));
    }
  for (std::vector<double> &times : series)
    llvm::sort(times);
  double median = series[0][kRounds / 2], again = series[1][kRounds / 2];
  llvm::outs() << llvm::format("  %-34s %9.3f ms   A/A %.2f\n",
                               name.str().c_str(), median, again / median);
}

/// A training step, as koila-opt writes it after
/// --koila-peak-memory=mode=train: one evaluation, without curve and floor, and
/// the report with its defaults.
static void benchStep(ModuleOp module) {
  PeakMemoryOptions options;
  options.mode = PeakMemoryMode::Train;
  options.threads = 1;
  PeakMemoryAnalysis analysis(findFunction(module, ""), options);
  auto peak = analysis.evaluate();
  if (!peak) {
    llvm::outs() << "give every symbol a value first (--batch)\n";
    return;
  }
  llvm::outs() << "peak of the step " << formatBytes(*peak) << "\n";
  bench("peak memory of a step, analysis", module, [&](ModuleOp copy) {
    PeakMemoryAnalysis fresh(findFunction(copy, ""), options);
    (void)fresh.evaluate();
  });
  bench("peak memory of a step, one batch", module,
        [&](ModuleOp) { (void)analysis.evaluate(); });
  options.batches = 64;
  bench("report of a step, 64 batches", module, [&](ModuleOp copy) {
    PeakMemoryAnalysis fresh(findFunction(copy, ""), options);
    (void)fresh.report();
  });
}

static void benchModel(ModuleOp module) {
  bool trains = false;
  module.walk([&](BackwardOp) { trains = true; });
  if (trains)
    return benchStep(module);
  OwningOpRef<ModuleOp> inferred(module.clone());
  (void)inferShapes(*inferred);
  FunctionOpInterface function = findFunction(*inferred, "");
  PeakMemoryAnalysis analysis(function);
  auto peak = analysis.evaluate();
  if (!peak) {
    llvm::outs() << "give every symbol a value first (--batch)\n";
    return;
  }
  TilingOptions options;
  options.budget = *peak / 5;
  llvm::outs() << "untiled peak " << formatBytes(*peak) << ", budget "
               << formatBytes(*options.budget) << "\n";
  bench("infer shapes", module, [](ModuleOp copy) { (void)inferShapes(copy); });
  bench("peak memory, analysis", *inferred, [](ModuleOp copy) {
    PeakMemoryAnalysis fresh(findFunction(copy, ""));
    (void)fresh.evaluate();
  });
  // The analysis infers what it needs.
  bench("peak memory, as imported", module, [](ModuleOp copy) {
    PeakMemoryAnalysis fresh(findFunction(copy, ""));
    (void)fresh.evaluate();
  });
  bench("peak memory, one more batch", *inferred,
        [&](ModuleOp) { (void)analysis.evaluate(); });
  bench("tile by budget, all powers of two", *inferred,
        [&](ModuleOp copy) { (void)tileBatch(copy, options); });
  bench("everything", module, [&](ModuleOp copy) {
    (void)inferShapes(copy);
    (void)tileBatch(copy, options);
  });
}

/// A chain of linear, relu and residual additions.
static std::string makeProgram(int64_t operations) {
  std::string text;
  llvm::raw_string_ostream os(text);
  os << "module attributes {koila.symbols = [#koila.symbol<name = \"B\", value "
        "= 8, batch = true>]} {\n"
        "koila.param @w : tensor<16x16xf32> keys [\"w\"] strides [16, 1]\n"
        "func.func @forward(%x: tensor<?x16xf32> {koila.name = \"x\", "
        "koila.dims = #koila.dims<[B, 16]>}) -> tensor<*x!koila.any> {\n"
        "%w = koila.param.get @w : tensor<16x16xf32>\n"
        "%0 = koila.relu %x : (tensor<?x16xf32>) -> tensor<*x!koila.any>\n";
  int64_t last = 0;
  while (last + 3 < operations) {
    os << "%" << last + 1 << " = koila.linear %" << last
       << ", %w : (tensor<*x!koila.any>, tensor<16x16xf32>) -> "
          "tensor<*x!koila.any>\n"
       << "%" << last + 2 << " = koila.relu tied %" << last + 1
       << " : (tensor<*x!koila.any>) -> tensor<*x!koila.any>\n"
       << "%" << last + 3 << " = koila.add_Tensor tied %" << last + 2 << ", %"
       << last
       << " {alpha = 1 : i64} : (tensor<*x!koila.any>, tensor<*x!koila.any>) "
          "-> tensor<*x!koila.any>\n";
    last += 3;
  }
  os << "return %" << last << " : tensor<*x!koila.any>\n}\n}\n";
  return text;
}

static void benchScaling(MLIRContext &context) {
  llvm::outs() << "synthetic programs, microseconds per operation\n"
               << "  operations   infer   peak   tile\n";
  for (int64_t operations : {1000, 10000, 100000}) {
    OwningOpRef<ModuleOp> module =
        parseSourceString<ModuleOp>(makeProgram(operations), &context);
    double scale = 1000.0 / static_cast<double>(operations);
    double infer = measure([&] { (void)inferShapes(*module); });
    double peak = measure([&] {
      PeakMemoryAnalysis fresh(findFunction(*module, ""));
      (void)fresh.evaluate();
    });
    TilingOptions options;
    options.tile = 4;
    double tile = measure([&] { (void)tileBatch(*module, options); });
    llvm::outs() << llvm::format("  %10lld %7.2f %6.2f %6.2f\n",
                                 static_cast<long long>(operations),
                                 infer * scale, peak * scale, tile * scale);
  }
}

int main(int argc, char **argv) {
  if (argc > 1 && StringRef(argv[1]).starts_with("-")) {
    llvm::outs() << "koila-bench [model.mlir]: the time of each step on a "
                    "module that is in memory,\nnext to the noise of timing "
                    "it twice, and the time per operation of programs of\n"
                    "growing length. Every symbol of the model needs a value "
                    "(koila-opt --batch).\n";
    return StringRef(argv[1]) == "--help" ? EXIT_SUCCESS : EXIT_FAILURE;
  }
  DialectRegistry registry;
  registerAllDialects(registry);
  registerAllExtensions(registry);
  MLIRContext context(registry, MLIRContext::Threading::DISABLED);
  if (argc > 1) {
    OwningOpRef<ModuleOp> module =
        parseSourceFile<ModuleOp>(argv[1], ParserConfig(&context));
    if (!module)
      return EXIT_FAILURE;
    llvm::outs() << argv[1] << "\n";
    benchModel(*module);
  }
  benchScaling(context);
  return EXIT_SUCCESS;
}
