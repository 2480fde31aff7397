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
                    StringRef batchSymbol = "", StringRef called = "") {
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
    if (failed(applyInputSpecs(*module, called, specs, batch, batchSymbol, os)))
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
  const std::string arguments =
      "x: Tensor, mask: Optional[Tensor] (optional), scale: float (optional)";
  EXPECT_EQ(apply(kUnknown, {"float32[B]", "q=1"}),
            "error: unknown input 'q'; the arguments are " + arguments);
  EXPECT_EQ(apply(kUnknown, {"float32[B]", "x=float32[N]"}),
            "error: argument 'x' is given twice, as 'float32[B]' and "
            "'float32[N]'");
  EXPECT_EQ(apply(kUnknown, {"x=float32[B]", "none"}),
            "error: --input 'none' is given by position after one by name; "
            "give its name too");
  EXPECT_EQ(apply(kUnknown, {"float32[B]", "none", "true"}),
            "error: argument 'scale': 'true' is no float; the arguments are " +
                arguments);
  EXPECT_EQ(apply(kUnknown, {"float32[B]", "none", "1", "2"}),
            "error: too many inputs: '2' is number 4, and the arguments are " +
                arguments);
  EXPECT_EQ(apply(kUnknown, {"float32[4*B=4611686018427387904]"}),
            "error: argument 'x': the extent 4*4611686018427387904 does not "
            "fit in 64 bits");
}

TEST_F(ApplyInputSpecsTest, ErrorsNameTheFunction) {
  auto call = [&](StringRef source, StringRef name) {
    return apply(source, {}, 0, {}, "", name);
  };
  const StringRef several = R"mlir(
    func.func @encode() { return }
    func.func @decode() { return })mlir";
  EXPECT_EQ(call("func.func private @hidden()", ""),
            "error: the module has no function to call");
  EXPECT_EQ(call(several, ""),
            "error: the module has more than one function; name one of encode, "
            "decode with --function");
  EXPECT_EQ(call(several, "forward"),
            "error: there is no function 'forward'; known: encode, decode");
}

TEST_F(ApplyInputSpecsTest, BatchSymbolIsNamedOrUnique) {
  EXPECT_EQ(apply(kUnknown, {"float32[N,M]"}),
            "error: which symbol is the batch? Name it with --batch-symbol; "
            "known: N, M");
  EXPECT_EQ(apply(kUnknown, {"float32[N,M]"}, 0, {}, "B"),
            "error: --batch-symbol B: there is no symbol 'B'; known: N, M");
  EXPECT_EQ(apply(kUnknown, {"float32[4]"}, 0, {}, "B"),
            "error: --batch-symbol B: there is no symbol 'B'; known: none "
            "(every extent is a number)");
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
  EXPECT_EQ(apply(kUnknown, {"float32[N]"}, 0, {{"B", 4}}),
            "error: --batch B=4: there is no symbol 'B'; known: N");
  EXPECT_EQ(apply(kUnknown, {"float32[B=4]"}, 0, {{"B", 8}}),
            "error: --batch B=8: symbol 'B' is fixed to 4; write it without "
            "'=4' in --input to vary it");
  EXPECT_EQ(apply(kUnknown, {"float32[B=4]", "float32[B=5]"}),
            "error: symbol 'B' is 4, but 5 in argument 'mask'; a symbol has "
            "one value");
}

// What a program that was written with a range says again.
TEST_F(ApplyInputSpecsTest, RangesOfSymbolsAreChecked) {
  std::string ranged = kKnown.str(), open = ranged;
  StringRef batch = "batch = true";
  ranged.replace(ranged.find(batch), batch.size(),
                 "lower = 2, upper = 8, batch = true");
  open.replace(open.find(batch), batch.size(), "lower = 2, batch = true");
  EXPECT_EQ(apply(ranged, {"x=float32[9,3]"}),
            "error: symbol 'B' is 9 in argument 'x', outside the range that "
            "the program was made for (from 2 to 8)");
  EXPECT_EQ(apply(open, {"x=float32[1,3]"}),
            "error: symbol 'B' is 1 in argument 'x', outside the range that "
            "the program was made for (from 2)");
  EXPECT_EQ(apply(ranged, {}, 0, {{"B", 9}}),
            "error: --batch B=9: outside the range of 'B', which is from 2 to "
            "8");
  EXPECT_EQ(apply(open, {}, 0, {{"B", 1}}),
            "error: --batch B=1: outside the range of 'B', which is from 2");
}

TEST_F(ApplyInputSpecsTest, KnownDimsAgreeOrAreRefined) {
  EXPECT_EQ(apply(kKnown, {}), "tensor<?x3xf32> #koila.dims<[B, 3]>");
  EXPECT_EQ(apply(kKnown, {"x=float32[16,3]"}, 1),
            "tensor<64xi64> #koila.dims<[4*B]>");
  EXPECT_EQ(apply(kKnown, {"y=int64[4*B]{0:B}"}, 1),
            "tensor<?xi64> #koila.dims<[4*B]> #koila.range<0:B>");
  for (auto [text, message] :
       {std::pair{"x=float64[B,3]", "argument 'x': dtype is float32 in the "
                                    "program, and float64 in --input"},
        {"x=float32[B,4]", "argument 'x': dim 1 is 3 in the program, and 4 in "
                           "--input 'float32[B,4]'"},
        {"x=float32[B]", "argument 'x': has 2 dims in the program, and 1 in "
                         "--input 'float32[B]'"},
        {"x=float32[N,3]", "argument 'x': dim 0 is B in the program, and N in "
                           "--input 'float32[N,3]'"},
        {"y=int64[63]", "argument 'y': dim 0 is 4*B in the program, which "
                        "cannot be 63"}})
    EXPECT_EQ(apply(kKnown, {text}), std::string("error: ") + message);
}

TEST_F(ApplyInputSpecsTest, RecordedShapesAreTakenAndSaid) {
  EXPECT_EQ(apply(kTraced, {}), "tensor<?x3xf32> #koila.dims<[B, 3]>");
  EXPECT_EQ(notes, "note: using recorded input shapes: "
                   "--input='x=float32[B,3]' --input='y=int64[B]'\n");
}

TEST_F(ApplyInputSpecsTest, WithoutRecordedShapesInputsAreNeeded) {
  EXPECT_EQ(apply(kUnknown, {}),
            "error: argument 'x' (Tensor) needs an input, which says its "
            "shape; add:\n  --input='x=float32[B,...]'");
}

TEST_F(ApplyInputSpecsTest, RecordedShapesWithoutOneBatchAreAnError) {
  std::string other = kTraced.str();
  other.replace(other.find("8xi64"), 5, "2xi64");
  std::string error = apply(other, {});
  EXPECT_EQ(error, "error: the shapes recorded at tracing do not tell which "
                   "dim is the batch: the leading extent of argument 'y' is 2, "
                   "and that of another 8; add these with the batch written as "
                   "B:\n  --input='x=float32[B,3]'\n  --input='y=int64[2]'");
  EXPECT_EQ(notes, "");
}
