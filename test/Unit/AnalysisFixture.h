//===- AnalysisFixture.h - A function from text, for analyses ---*- C++ -*-===//

#ifndef KOILA_TEST_UNIT_ANALYSISFIXTURE_H
#define KOILA_TEST_UNIT_ANALYSISFIXTURE_H

#include "koila/Analysis/Storage.h"
#include "koila/Dialect/Koila/IR/Koila.h"
#include "koila/InitAllDialects.h"
#include "koila/InitAllExtensions.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Parser/Parser.h"
#include "gtest/gtest.h"

/// May an operation write in place? Storage with dims of its own.
class TieResolution {
public:
  explicit TieResolution(mlir::Operation *function)
      : dims(function), storage(function, dims) {}
  bool mayReuse(mlir::Operation *op) const { return storage.mayReuse(op); }

private:
  koila::DimAnalysis dims;
  koila::StorageAnalysis storage;
};

/// Parses programs and finds values by the `name` attribute of the operation
/// that makes them.
class AnalysisTest : public ::testing::Test {
protected:
  AnalysisTest() {
    mlir::DialectRegistry registry;
    koila::registerAllDialects(registry);
    koila::registerAllExtensions(registry);
    context.appendDialectRegistry(registry);
    context.loadDialect<koila::KoilaDialect>();
  }

  /// The body of a module with the batch symbol `B`, worth `batch`.
  mlir::func::FuncOp parse(llvm::StringRef body, int64_t batch = 8) {
    std::string text = "module attributes {koila.symbols = [#koila.symbol<"
                       "name = \"B\", value = " +
                       std::to_string(batch) + ", batch = true>]} {" +
                       body.str() + "}";
    module = mlir::parseSourceString<mlir::ModuleOp>(text, &context);
    EXPECT_TRUE(module) << text;
    // The test has failed; what follows only must not crash.
    if (!module)
      module = mlir::parseSourceString<mlir::ModuleOp>(
          "func.func @f() { %0 = tensor.empty() : tensor<1xf32> return }",
          &context);
    mlir::func::FuncOp last;
    for (auto function : module->getOps<mlir::func::FuncOp>())
      last = function;
    return last;
  }
  mlir::Operation *op(llvm::StringRef name) {
    mlir::Operation *found = nullptr;
    module->walk([&](mlir::Operation *candidate) {
      auto attr = candidate->getAttrOfType<mlir::StringAttr>("name");
      if (attr && attr.getValue() == name)
        found = candidate;
    });
    EXPECT_TRUE(found) << "no operation named " << name.str();
    auto function = *module->getOps<mlir::func::FuncOp>().begin();
    return found ? found : &function.getBody().front().front();
  }
  mlir::Value value(llvm::StringRef name, unsigned result = 0) {
    return op(name)->getResult(result);
  }

  mlir::MLIRContext context;
  mlir::OwningOpRef<mlir::ModuleOp> module;
};

#endif // KOILA_TEST_UNIT_ANALYSISFIXTURE_H
