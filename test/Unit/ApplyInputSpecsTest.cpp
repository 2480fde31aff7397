//===- ApplyInputSpecsTest.cpp - Input specs against a program ------------===//

#include "koila/Dialect/Koila/IR/Koila.h"
#include "koila/InputSpec/InputSpec.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Verifier.h"
#include "mlir/Parser/Parser.h"
#include "gtest/gtest.h"

using namespace mlir;
using namespace koila;

namespace {
class ApplyInputSpecsTest : public ::testing::Test {
protected:
  ApplyInputSpecsTest() {
    context.loadDialect<KoilaDialect, func::FuncDialect>();
  }

  /// Applies `specs` to `source`. Returns the attributes and type of argument
  /// `index`, or the first error.
  std::string apply(StringRef source, std::vector<std::string> texts,
                    unsigned index = 0, std::vector<SymbolValue> batch = {},
                    StringRef batchSymbol = "") {
    std::string error;
    ScopedDiagnosticHandler handler(&context, [&](Diagnostic &diagnostic) {
      if (error.empty())
        error = "error: " + diagnostic.str();
      return success();
    });
    module = parseSourceString<ModuleOp>(source, &context);
    if (!module)
      return error;
    std::vector<InputSpec> specs;
    for (const std::string &text : texts)
      if (!parseInputSpec(text, specs.emplace_back(), error))
        return error;
    notes.clear();
    llvm::raw_string_ostream os(notes);
    if (failed(applyInputSpecs(*module, "", specs, batch, batchSymbol, os)))
      return error;
    if (failed(verify(*module)))
      return "invalid: " + error;
    auto function = *module->getOps<func::FuncOp>().begin();
    std::string text;
    llvm::raw_string_ostream out(text);
    out << function.getArgumentTypes()[index];
    for (StringRef name : {"koila.dims", "koila.range", "koila.value"})
      if (Attribute attr = function.getArgAttr(index, name))
        out << ' ' << attr;
    return text;
  }

  std::string symbols() {
    std::string text;
    llvm::raw_string_ostream os(text);
    if (Attribute attr = (*module)->getAttr(KoilaDialect::kSymbolsAttr))
      os << attr;
    return text;
  }

  MLIRContext context;
  OwningOpRef<ModuleOp> module;
  std::string notes;
};
} // namespace

static constexpr llvm::StringLiteral kUnknown = R"mlir(
  func.func @forward(
      %x: tensor<*x!koila.any> {koila.name = "x"},
      %mask: !koila.optional<tensor<*x!koila.any>>
          {koila.name = "mask", koila.default = unit},
      %scale: f64 {koila.name = "scale", koila.default = 1.0 : f64})
      -> tensor<*x!koila.any> {
    return %x : tensor<*x!koila.any>
  })mlir";

static constexpr llvm::StringLiteral kKnown = R"mlir(
  module attributes {koila.symbols = [#koila.symbol<name = "B", batch = true>]} {
    func.func @forward(
        %x: tensor<?x3xf32> {koila.name = "x", koila.dims = #koila.dims<[B, 3]>},
        %y: tensor<?xi64> {koila.name = "y", koila.dims = #koila.dims<[4*B]>}) {
      return
    }
  })mlir";

static constexpr llvm::StringLiteral kTraced = R"mlir(
  func.func @forward(
      %x: tensor<*x!koila.any> {koila.name = "x",
                                koila.example = tensor<8x3xf32>},
      %y: tensor<*x!koila.any> {koila.name = "y",
                                koila.example = tensor<8xi64>}) {
    return
  })mlir";

TEST_F(ApplyInputSpecsTest, SymbolicBatchStaysSymbolic) {
  EXPECT_EQ(apply(kUnknown, {"x=float32[B,3]"}, 0, {{"B", 8}}),
            "tensor<?x3xf32> #koila.dims<[B, 3]>");
  EXPECT_EQ(symbols(),
            "[#koila.symbol<name = \"B\", value = 8, batch = true>]");
}

TEST_F(ApplyInputSpecsTest, StaticBatchKeepsItsName) {
  EXPECT_EQ(apply(kUnknown, {"float32[B=8,3]", "float32[2*B]"}, 1),
            "tensor<16xf32> #koila.dims<[2*B]>");
  EXPECT_EQ(symbols(), "[#koila.symbol<name = \"B\", value = 8, lower = 8, "
                       "upper = 8, batch = true>]");
}

TEST_F(ApplyInputSpecsTest, MissingTrailingArgumentsTakeDefaults) {
  EXPECT_EQ(apply(kUnknown, {"float32[B]"}, 2), "f64 1.000000e+00 : f64");
  EXPECT_EQ(apply(kUnknown, {"float32[B]", "scale=2"}, 2),
            "f64 2.000000e+00 : f64");
}

TEST_F(ApplyInputSpecsTest, ErrorsNameTheArgument) {
  EXPECT_EQ(apply(kUnknown, {"mask=none"}),
            "error: argument 'x' (Tensor) has no input; add:\n"
            "  --input='x=float32[B,...]'\n"
            "The arguments are x: Tensor, mask: Optional[Tensor] (optional), "
            "scale: float (optional)");
  EXPECT_NE(apply(kUnknown, {"float32[B]", "q=1"}).find("unknown input 'q'"),
            std::string::npos);
  EXPECT_NE(apply(kUnknown, {"float32[B]", "x=float32[B]"})
                .find("argument 'x' is given twice"),
            std::string::npos);
  EXPECT_NE(apply(kUnknown, {"x=float32[B]", "none"}).find("by position"),
            std::string::npos);
  EXPECT_NE(apply(kUnknown, {"float32[B]", "none", "true"})
                .find("argument 'scale': 'true' is no float"),
            std::string::npos);
  EXPECT_NE(apply(kUnknown, {"float32[B]", "none", "1", "2"}).find("too many"),
            std::string::npos);
}

TEST_F(ApplyInputSpecsTest, BatchSymbolIsNamedOrUnique) {
  EXPECT_NE(apply(kUnknown, {"float32[N,M]"}).find("--batch-symbol"),
            std::string::npos);
  apply(kUnknown, {"float32[N,M]"}, 0, {}, "M");
  EXPECT_NE(symbols().find("name = \"M\", batch = true"), std::string::npos);
  apply(kUnknown, {"float32[N,3]"});
  EXPECT_NE(symbols().find("name = \"N\", batch = true"), std::string::npos);
  apply(kUnknown, {"float32[N,B]"});
  EXPECT_NE(symbols().find("name = \"B\", batch = true"), std::string::npos);
  // Nothing is symbolic: nothing is the batch, and that is fine.
  apply(kUnknown, {"float32[4,3]"});
  EXPECT_EQ(symbols(), "");
}

TEST_F(ApplyInputSpecsTest, ValuesOfSymbolsAreChecked) {
  EXPECT_NE(apply(kUnknown, {"float32[N]"}, 0, {{"B", 4}})
                .find("no symbol 'B'; known: N"),
            std::string::npos);
  EXPECT_NE(apply(kUnknown, {"float32[B=4]"}, 0, {{"B", 8}})
                .find("'B' is fixed to 4"),
            std::string::npos);
  EXPECT_NE(apply(kUnknown, {"float32[B=4]", "float32[B=5]"})
                .find("a symbol has one value"),
            std::string::npos);
}

TEST_F(ApplyInputSpecsTest, KnownDimsAgreeOrAreRefined) {
  EXPECT_EQ(apply(kKnown, {}), "tensor<?x3xf32> #koila.dims<[B, 3]>");
  EXPECT_EQ(apply(kKnown, {"x=float32[16,3]"}, 1),
            "tensor<64xi64> #koila.dims<[4*B]>");
  EXPECT_EQ(apply(kKnown, {"y=int64[4*B]{0:B}"}, 1),
            "tensor<?xi64> #koila.dims<[4*B]> #koila.range<0:B>");
  for (auto [text, part] :
       {std::pair{"x=float64[B,3]", "dtype is float32"},
        {"x=float32[B,4]", "dim 1 is 3 in the program, and 4"},
        {"x=float32[B]", "has 2 dims"},
        {"x=float32[N,3]", "dim 0 is B in the program, and N"},
        {"y=int64[63]", "dim 0 is 4*B in the program, which cannot be 63"}})
    EXPECT_NE(apply(kKnown, {text}).find(part), std::string::npos) << text;
}

TEST_F(ApplyInputSpecsTest, RecordedShapesAreTakenAndSaid) {
  EXPECT_EQ(apply(kTraced, {}), "tensor<?x3xf32> #koila.dims<[B, 3]>");
  EXPECT_EQ(notes, "note: using recorded input shapes: "
                   "--input='x=float32[B,3]' --input='y=int64[B]'\n");
}

TEST_F(ApplyInputSpecsTest, RecordedShapesWithoutOneBatchAreAnError) {
  std::string other = kTraced.str();
  other.replace(other.find("8xi64"), 5, "2xi64");
  std::string error = apply(other, {});
  EXPECT_NE(error.find("leading extent of argument 'y' is 2"),
            std::string::npos);
  EXPECT_NE(error.find("--input='x=float32[B,3]'"), std::string::npos);
  EXPECT_EQ(notes, "");
}
