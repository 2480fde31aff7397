//===- PeakMemoryTest.cpp - Peaks of small programs -----------------------===//
//
// Also of programs of another dialect, which knows koila's interfaces only.
//
//===----------------------------------------------------------------------===//

#include "koila/Analysis/PeakMemory.h"
#include "AnalysisFixture.h"
#include "koila/Analysis/BatchAnalysis.h"
#include "koila/Dialect/Koila/Transforms/BatchTiling.h"
#include "koila/Interfaces/BackwardRule.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Pass/Pass.h"
#include "mlir/Pass/PassManager.h"

using namespace mlir;
using namespace koila;

//===----------------------------------------------------------------------===//
// A dialect of somebody else
//===----------------------------------------------------------------------===//

namespace foreign {
/// Doubles its operand's first extent, and holds 100 bytes meanwhile.
class GrowOp
    : public Op<GrowOp, OpTrait::OneOperand, OpTrait::OneResult,
                OpTrait::ZeroRegions, ShapeRuleInterface::Trait,
                BatchRuleInterface::Trait, MemoryRuleInterface::Trait,
                AllocationInterface::Trait, DifferentiationInterface::Trait> {
public:
  using Op::Op;
  static StringRef getOperationName() { return "foreign.grow"; }
  static ArrayRef<StringRef> getAttributeNames() { return {}; }
  LogicalResult inferShapes(ShapeRule &rule) {
    TensorInfo info = rule.tensor(getOperand());
    if (!info.hasRank() || info.getRank() == 0)
      return rule.emitError() << "needs a dim to grow";
    (*info.dims)[0] = info.dim(0) * 2;
    rule.setResult(0, TensorInfo::contiguous(*info.dims, info.elementType));
    return success();
  }
  void inferBatch(BatchRule &rule) {
    BatchFact fact = rule.fact(getOperand());
    fact.factor *= 2;
    rule.setResult(0, fact);
  }
  void describeStorage(StorageRule &) {}
  void describeWorkspace(WorkspaceRule &rule) { rule.setTransient(100); }
  void describeDifferentiation(DifferentiationRule &rule) {
    rule.save(getOperand());
  }
  /// Of an operand of `n` bytes the gradient takes 2 n, of which n stay.
  void describeBackward(BackwardRule &rule) {
    auto tensor = rule.tensor(getOperand());
    if (!tensor || !rule.getGradient())
      return rule.setInexact("nothing arrives");
    rule.setNew(0, *tensor);
    rule.setPeak(2 * tensor->numBytes());
  }
};

/// May write into its operand.
class ScaleOp
    : public Op<ScaleOp, OpTrait::OneOperand, OpTrait::OneResult,
                OpTrait::ZeroRegions, ShapeRuleInterface::Trait,
                MemoryRuleInterface::Trait, AllocationInterface::Trait> {
public:
  using Op::Op;
  static StringRef getOperationName() { return "foreign.scale"; }
  static ArrayRef<StringRef> getAttributeNames() { return {}; }
  LogicalResult inferShapes(ShapeRule &rule) {
    rule.setResult(0, rule.tensor(getOperand()));
    return success();
  }
  void describeStorage(StorageRule &rule) { rule.setTied(0, getOperand()); }
  void describeWorkspace(WorkspaceRule &) {}
};

/// As its operand, row by row; holds 10,000 bytes if it gets eight rows.
class EightOp
    : public Op<EightOp, OpTrait::OneOperand, OpTrait::OneResult,
                OpTrait::ZeroRegions, ConditionallySpeculatable::Trait,
                OpTrait::AlwaysSpeculatableImplTrait,
                MemoryEffectOpInterface::Trait, ShapeRuleInterface::Trait,
                BatchRuleInterface::Trait, MemoryRuleInterface::Trait,
                AllocationInterface::Trait> {
public:
  using Op::Op;
  static StringRef getOperationName() { return "foreign.eight"; }
  static ArrayRef<StringRef> getAttributeNames() { return {}; }
  void getEffects(
      SmallVectorImpl<SideEffects::EffectInstance<MemoryEffects::Effect>> &) {}
  LogicalResult inferShapes(ShapeRule &rule) {
    rule.setResult(0, rule.tensor(getOperand()));
    return success();
  }
  void inferBatch(BatchRule &rule) {
    rule.setResult(0, rule.fact(getOperand()));
  }
  void describeStorage(StorageRule &) {}
  void describeWorkspace(WorkspaceRule &rule) {
    auto tensor = rule.tensor(getOperand());
    rule.setTransient(tensor && tensor->dims[0] == 8 ? 10000 : 0);
  }
};

/// Of a loss: its gradient reads what `reads` says, nothing by default. Of its
/// bytes nothing is known.
class HeadOp
    : public Op<HeadOp, OpTrait::OneOperand, OpTrait::OneResult,
                OpTrait::ZeroRegions, ConditionallySpeculatable::Trait,
                OpTrait::AlwaysSpeculatableImplTrait,
                MemoryEffectOpInterface::Trait, ShapeRuleInterface::Trait,
                BatchRuleInterface::Trait, DifferentiationInterface::Trait> {
public:
  using Op::Op;
  static StringRef getOperationName() { return "foreign.head"; }
  static ArrayRef<StringRef> getAttributeNames() { return {}; }
  void getEffects(
      SmallVectorImpl<SideEffects::EffectInstance<MemoryEffects::Effect>> &) {}
  LogicalResult inferShapes(ShapeRule &rule) {
    rule.setResult(0, rule.tensor(getOperand()));
    return success();
  }
  void inferBatch(BatchRule &rule) {
    rule.setResult(0, rule.fact(getOperand()));
  }
  void describeDifferentiation(DifferentiationRule &rule) {
    auto reads = (*this)->getAttrOfType<StringAttr>("reads");
    if (!reads)
      return;
    if (reads.getValue() == "operand")
      rule.save(getOperand());
    else if (reads.getValue() == "inner")
      rule.saveInner();
    else
      rule.setUnknown("it does not say");
  }
};

class ForeignDialect : public Dialect {
public:
  explicit ForeignDialect(MLIRContext *context)
      : Dialect(getDialectNamespace(), context, TypeID::get<ForeignDialect>()) {
    // Dim expressions are attributes of the koila dialect.
    context->loadDialect<KoilaDialect>();
    addOperations<GrowOp, ScaleOp, EightOp, HeadOp>();
  }
  static StringRef getDialectNamespace() { return "foreign"; }
};

/// A rule for an operation that knows nothing of koila.
struct SplatMemory
    : MemoryRuleInterface::ExternalModel<SplatMemory, tensor::SplatOp> {
  void describeStorage(Operation *, StorageRule &) const {}
};
struct SplatAllocations
    : AllocationInterface::ExternalModel<SplatAllocations, tensor::SplatOp> {
  void describeWorkspace(Operation *, WorkspaceRule &rule) const {
    rule.setTransient(1000);
  }
};
} // namespace foreign

namespace {
class PeakMemoryTest : public AnalysisTest {
protected:
  void analyse(StringRef body, int64_t batch = 8) {
    PeakMemoryOptions options;
    options.threads = 1;
    options.isa = "avx2";
    analysis =
        std::make_unique<PeakMemoryAnalysis>(parse(body, batch), options);
  }
  std::optional<int64_t> at(int64_t batch) {
    llvm::StringMap<int64_t> symbols;
    symbols["B"] = batch;
    return analysis->evaluate(symbols);
  }

  std::unique_ptr<PeakMemoryAnalysis> analysis;
};

/// A context for programs of another dialect; no koila operation occurs.
class ForeignTest : public ::testing::Test {
protected:
  ForeignTest() {
    context.loadDialect<foreign::ForeignDialect, func::FuncDialect,
                        tensor::TensorDialect>();
  }
  func::FuncOp parse(StringRef text) {
    module = parseSourceString<ModuleOp>(text, &context);
    EXPECT_TRUE(module);
    return *module->getOps<func::FuncOp>().begin();
  }

  MLIRContext context;
  OwningOpRef<ModuleOp> module;
};
} // namespace

//===----------------------------------------------------------------------===//
// koila's own operations
//===----------------------------------------------------------------------===//

// Two values of 8 x 4 floats are live while the second is computed; the
// argument belongs to the caller.
TEST_F(PeakMemoryTest, OperandAndResultAreLiveTogether) {
  analyse(
      R"(func.func @f(%x: tensor<?x4xf32> {koila.dims = #koila.dims<[B, 4]>})
      -> tensor<?x4xf32> {
    %0 = koila.exp %x : (tensor<?x4xf32>) -> tensor<?x4xf32>
    %1 = koila.exp %0 : (tensor<?x4xf32>) -> tensor<?x4xf32>
    %2 = koila.exp %1 : (tensor<?x4xf32>) -> tensor<?x4xf32>
    return %2 : tensor<?x4xf32> })");
  EXPECT_EQ(analysis->evaluate(), 256);
  EXPECT_EQ(at(1), 32);
  EXPECT_EQ(at(0), 0);
  EXPECT_EQ(at(1000), 32000);
  PeakReport report = analysis->report();
  EXPECT_TRUE(report.exact());
  EXPECT_EQ(report.peakBytes, 256);
  EXPECT_EQ(report.inputBytes, 128);
  EXPECT_EQ(report.outputBytes, 128);
  EXPECT_EQ(report.liveAtPeak.size(), 2u);
  EXPECT_EQ(report.timeline.size(), 3u);
}

TEST_F(PeakMemoryTest, ResolvedTiesTakeNoStorage) {
  analyse(R"(func.func @f(%x: tensor<8xf32>) -> tensor<8xf32> {
    %0 = koila.exp %x : (tensor<8xf32>) -> tensor<8xf32>
    %1 = koila.relu tied %0 : (tensor<8xf32>) -> tensor<8xf32>
    %2 = koila.relu tied %1 : (tensor<8xf32>) -> tensor<8xf32>
    return %2 : tensor<8xf32> })");
  EXPECT_EQ(analysis->evaluate(), 32);
}

// The base lives as long as its last view.
TEST_F(PeakMemoryTest, ViewsKeepTheirBase) {
  analyse(R"(func.func @f(%x: tensor<2x4xf32>) -> tensor<8xf32> {
    %0 = koila.exp %x : (tensor<2x4xf32>) -> tensor<2x4xf32>
    %v = koila.flatten_using_ints %0 : (tensor<2x4xf32>) -> tensor<8xf32>
    %1 = koila.exp %x : (tensor<2x4xf32>) -> tensor<2x4xf32>
    %2 = koila.exp %1 : (tensor<2x4xf32>) -> tensor<2x4xf32>
    %3 = koila.exp %v : (tensor<8xf32>) -> tensor<8xf32>
    return %3 : tensor<8xf32> })");
  EXPECT_EQ(analysis->evaluate(), 96);
}

// A result without a use is allocated and freed at once.
TEST_F(PeakMemoryTest, UnusedResultsCountWhileTheyAreMade) {
  analyse(R"(func.func @f(%x: tensor<8xf32>) {
    %0 = koila.exp %x : (tensor<8xf32>) -> tensor<8xf32>
    %1 = koila.neg %x : (tensor<8xf32>) -> tensor<8xf32>
    return })");
  EXPECT_EQ(analysis->evaluate(), 32);
}

TEST_F(PeakMemoryTest, ElementsOfAContainerLiveWithIt) {
  analyse(R"(func.func @f(%x: tensor<8xf32>) -> tuple<tensor<8xf32>> {
    %0 = koila.exp %x : (tensor<8xf32>) -> tensor<8xf32>
    %t = koila.construct tuple(%0) : (tensor<8xf32>) -> tuple<tensor<8xf32>>
    %1 = koila.exp %x : (tensor<8xf32>) -> tensor<8xf32>
    return %t : tuple<tensor<8xf32>> })");
  EXPECT_EQ(analysis->evaluate(), 64);
}

// An iteration frees what it made; the larger iteration counts.
TEST_F(PeakMemoryTest, LoopsRunOverTheirSizes) {
  analyse(R"(func.func @f(%x: tensor<8xf32>) {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    %c9 = arith.constant 9 : index
    scf.for %i = %c0 to %c9 step %c1 {
      %e = tensor.empty(%i) : tensor<?xf32>
      %r = koila.exp %e : (tensor<?xf32>) -> tensor<?xf32>
    }
    return })");
  EXPECT_EQ(analysis->evaluate(), 64);
}

TEST_F(PeakMemoryTest, ALoopThatDoesNotRunTakesNothing) {
  analyse(R"(func.func @f(%x: tensor<8xf32>) {
    %c0 = arith.constant 0 : index
    %c1 = arith.constant 1 : index
    scf.for %i = %c0 to %c0 step %c1 {
      %r = koila.exp %x : (tensor<8xf32>) -> tensor<8xf32>
    }
    return })");
  EXPECT_EQ(analysis->evaluate(), 0);
}

TEST_F(PeakMemoryTest, TheLargerBranchCounts) {
  analyse(R"(func.func @f(%x: tensor<8xf32>, %p: i1) {
    scf.if %p {
      %0 = koila.exp %x : (tensor<8xf32>) -> tensor<8xf32>
    } else {
      %0 = koila.exp %x : (tensor<8xf32>) -> tensor<8xf32>
      %1 = koila.exp %0 : (tensor<8xf32>) -> tensor<8xf32>
    }
    return })");
  EXPECT_EQ(analysis->evaluate(), 64);
}

TEST_F(PeakMemoryTest, ASymbolWithoutValueIsNamed) {
  func::FuncOp function = parse(R"(func.func @f(
      %x: tensor<?xf32> {koila.dims = #koila.dims<[N]>}) {
    %0 = koila.exp %x : (tensor<?xf32>) -> tensor<?xf32>
    return })");
  PeakMemoryAnalysis peak(function);
  EXPECT_EQ(peak.evaluate(), std::nullopt);
  EXPECT_EQ(peak.report().missing, "N");
  EXPECT_FALSE(peak.report().exact());
}

// A size that data decides is no number, and the report says so.
TEST_F(PeakMemoryTest, SizesOfDataAreInexact) {
  analyse(R"(func.func @f(%n: index) {
    %0 = tensor.empty(%n) : tensor<?xf32>
    return })");
  PeakReport report = analysis->report();
  EXPECT_FALSE(report.exact());
  ASSERT_EQ(report.inexact.size(), 1u);
  EXPECT_EQ(report.inexact[0].op, "tensor.empty");
}

// Figures saturate; a sum of huge tensors never wraps to a small peak.
TEST_F(PeakMemoryTest, SumsDoNotWrap) {
  analyse(R"(func.func @f(%x: tensor<1500000000000000000xf32>) {
    %0 = koila.exp %x : (tensor<1500000000000000000xf32>) -> tensor<1500000000000000000xf32>
    %1 = koila.exp %0 : (tensor<1500000000000000000xf32>) -> tensor<1500000000000000000xf32>
    return })");
  auto peak = analysis->evaluate();
  EXPECT_TRUE(!peak || *peak == INT64_MAX) << peak.value_or(-1);
}

// The tiled peak never exceeds the bound for any smaller batch.
TEST_F(PeakMemoryTest, TheBoundOfATiledProgramHoldsForEveryBatch) {
  func::FuncOp function = parse(R"(func.func @f(
      %x: tensor<?x4xf32> {koila.dims = #koila.dims<[B, 4]>}) -> tensor<?x4xf32> {
    %0 = koila.exp %x : (tensor<?x4xf32>) -> tensor<?x4xf32>
    %1 = koila.exp %0 : (tensor<?x4xf32>) -> tensor<?x4xf32>
    %2 = koila.add_Tensor %0, %1 {alpha = 1 : i64}
        : (tensor<?x4xf32>, tensor<?x4xf32>) -> tensor<?x4xf32>
    return %2 : tensor<?x4xf32> })",
                                37);
  auto tiled = TiledFunction::create(function, "B");
  ASSERT_TRUE(succeeded(tiled));
  for (int64_t tile : {1, 2, 4, 8, 16, 32}) {
    tiled->setTile(tile);
    analysis = std::make_unique<PeakMemoryAnalysis>(function);
    auto bound = getPeakUpTo(*analysis, "B", 37, tile);
    ASSERT_TRUE(bound);
    int64_t most = 0;
    for (int64_t batch = 1; batch <= 37; ++batch)
      most = std::max(most, at(batch).value());
    EXPECT_EQ(*bound, most) << "tile " << tile;
    // The output, and three values of a tile.
    EXPECT_EQ(at(32), 32 * 16 + 3 * tile * 16) << "tile " << tile;
  }
}

// Tiles are constants that are read at each evaluation; only where a loop over
// their sizes runs once, shapes are known better.
TEST_F(PeakMemoryTest, AnAnalysisServesOtherTiles) {
  func::FuncOp function = parse(R"(func.func @f(
      %x: tensor<?x4xf32> {koila.dims = #koila.dims<[B, 4]>}) -> tensor<?x4xf32> {
    %0 = koila.exp %x : (tensor<?x4xf32>) -> tensor<?x4xf32>
    %1 = koila.softmax_int %0 {dim = 0 : i64} : (tensor<?x4xf32>) -> tensor<?x4xf32>
    %2 = koila.exp %1 : (tensor<?x4xf32>) -> tensor<?x4xf32>
    return %2 : tensor<?x4xf32> })",
                                37);
  auto tiled = TiledFunction::create(function, "B");
  ASSERT_TRUE(succeeded(tiled));
  tiled->setTile(4);
  PeakMemoryAnalysis shared(function);
  for (int64_t first : {2, 8, 32})
    for (int64_t second : {4, 16}) {
      tiled->setTile(0, first);
      tiled->setTile(1, second);
      analysis = std::make_unique<PeakMemoryAnalysis>(function);
      for (int64_t batch = 0; batch <= 37; ++batch) {
        llvm::StringMap<int64_t> symbols;
        symbols["B"] = batch;
        EXPECT_EQ(shared.evaluate(symbols), at(batch))
            << "tiles " << first << " and " << second << ", batch " << batch;
      }
      EXPECT_EQ(shared.report().timeline.size(),
                analysis->report().timeline.size());
    }
}

// Phases in tiles of different sizes: at each batch both may run a remainder.
TEST_F(PeakMemoryTest, TheBoundHoldsForPhasesWithTilesOfTheirOwn) {
  func::FuncOp function = parse(R"(func.func @f(
      %x: tensor<?x4xf32> {koila.dims = #koila.dims<[B, 4]>}) -> tensor<?x4xf32> {
    %0 = koila.exp %x : (tensor<?x4xf32>) -> tensor<?x4xf32>
    %1 = koila.exp %0 : (tensor<?x4xf32>) -> tensor<?x4xf32>
    %2 = koila.softmax_int %1 {dim = 0 : i64} : (tensor<?x4xf32>) -> tensor<?x4xf32>
    %3 = koila.exp %2 : (tensor<?x4xf32>) -> tensor<?x4xf32>
    %4 = koila.mul_Tensor %3, %3 : (tensor<?x4xf32>, tensor<?x4xf32>) -> tensor<?x4xf32>
    return %4 : tensor<?x4xf32> })",
                                37);
  auto tiled = TiledFunction::create(function, "B");
  ASSERT_TRUE(succeeded(tiled));
  ASSERT_EQ(tiled->getPhases().size(), 2u);
  for (int64_t first : {1, 4, 32})
    for (int64_t second : {1, 2, 16, 32}) {
      tiled->setTile(0, first);
      tiled->setTile(1, second);
      EXPECT_EQ(tiled->getTile(), std::min(first, second));
      analysis = std::make_unique<PeakMemoryAnalysis>(function);
      auto bound = getPeakUpTo(*analysis, "B", 37, tiled->getTiles());
      ASSERT_TRUE(bound);
      int64_t most = 0;
      for (int64_t batch = 1; batch <= 37; ++batch)
        most = std::max(most, at(batch).value());
      EXPECT_EQ(*bound, most) << "tiles " << first << ", " << second;
      // The softmax's result and the output, and two values of a tile; or the
      // softmax's operand in place of its result.
      EXPECT_EQ(at(32),
                std::max(16 * (32 + 2 * first), 16 * (2 * 32 + 2 * second)))
          << "tiles " << first << ", " << second;
    }
}

// The peak need not be at the largest batch: a tile that only a smaller one
// runs, as the remainder of the second phase, may hold more than any other.
TEST_F(PeakMemoryTest, TheBoundHoldsForTilesThatOnlySmallerBatchesRun) {
  context.loadDialect<foreign::ForeignDialect>();
  func::FuncOp function = parse(R"(func.func @f(
      %x: tensor<?x4xf32> {koila.dims = #koila.dims<[B, 4]>}) -> tensor<?x4xf32> {
    %0 = koila.exp %x : (tensor<?x4xf32>) -> tensor<?x4xf32>
    %1 = koila.softmax_int %0 {dim = 0 : i64} : (tensor<?x4xf32>) -> tensor<?x4xf32>
    %2 = "foreign.eight"(%1) : (tensor<?x4xf32>) -> tensor<?x4xf32>
    return %2 : tensor<?x4xf32> })",
                                36);
  auto tiled = TiledFunction::create(function, "B");
  ASSERT_TRUE(succeeded(tiled));
  ASSERT_EQ(tiled->getPhases().size(), 2u);
  tiled->setTile(0, 4);
  tiled->setTile(1, 16);
  analysis = std::make_unique<PeakMemoryAnalysis>(function);
  int64_t most = 0;
  for (int64_t batch = 1; batch <= 36; ++batch)
    most = std::max(most, at(batch).value());
  EXPECT_GT(most, at(36).value() + 5000);
  EXPECT_EQ(getPeakUpTo(*analysis, "B", 36, tiled->getTiles()), most);
  // Who forgets the tiles of the second phase does not see it.
  EXPECT_LT(getPeakUpTo(*analysis, "B", 36, 4), most);
}

//===----------------------------------------------------------------------===//
// Operations of another dialect
//===----------------------------------------------------------------------===//

TEST_F(ForeignTest, RulesOfAnotherDialectAreAsked) {
  func::FuncOp function =
      parse(R"(func.func @f(%x: tensor<3xf32>) -> tensor<12xf32> {
    %0 = "foreign.grow"(%x) : (tensor<3xf32>) -> tensor<6xf32>
    %1 = "foreign.scale"(%0) : (tensor<6xf32>) -> tensor<6xf32>
    %2 = "foreign.grow"(%1) : (tensor<6xf32>) -> tensor<12xf32>
    return %2 : tensor<12xf32> })");
  PeakMemoryAnalysis peak(function);
  ASSERT_TRUE(peak.isValid());
  // 6 floats, tied, 12 floats and the workspace.
  EXPECT_EQ(peak.evaluate(), 24 + 48 + 100);
  EXPECT_TRUE(peak.report().exact());
  EXPECT_EQ(peak.report().peakOp, "foreign.grow");
}

// With gradients the operand that the rule saves stays, though nobody reads it.
TEST_F(ForeignTest, SavedTensorsOfAnotherDialectStay) {
  func::FuncOp function = parse(R"(func.func @f(
      %x: tensor<3xf32> {koila.requires_grad}) -> tensor<24xf32> {
    %0 = "foreign.grow"(%x) : (tensor<3xf32>) -> tensor<6xf32>
    %1 = "foreign.grow"(%0) : (tensor<6xf32>) -> tensor<12xf32>
    %2 = "foreign.grow"(%1) : (tensor<12xf32>) -> tensor<24xf32>
    return %2 : tensor<24xf32> })");
  EXPECT_EQ(PeakMemoryAnalysis(function).evaluate(), 48 + 96 + 100);
  PeakMemoryOptions options;
  options.mode = PeakMemoryMode::ForwardWithGrad;
  PeakMemoryAnalysis recorded(function, options);
  EXPECT_EQ(recorded.evaluate(), 24 + 48 + 96 + 100);
  EXPECT_TRUE(recorded.report().exact());
}

// The backward pass runs the rules from the last record to the first; what was
// saved goes with its node, and the argument gets its gradient.
TEST_F(ForeignTest, BackwardRulesOfAnotherDialectAreRun) {
  func::FuncOp function = parse(R"(func.func @f(
      %x: tensor<1xf32> {koila.requires_grad}, %gradient: tensor<4xf32>) {
    %0 = "foreign.grow"(%x) : (tensor<1xf32>) -> tensor<2xf32>
    %1 = "foreign.grow"(%0) : (tensor<2xf32>) -> tensor<4xf32>
    "koila.backward"(%1, %gradient)
        {retain_graph = false, create_graph = false}
        : (tensor<4xf32>, tensor<4xf32>) -> ()
    return })");
  PeakMemoryOptions options;
  options.mode = PeakMemoryMode::Train;
  PeakMemoryAnalysis step(function, options);
  ASSERT_TRUE(step.isValid());
  PeakReport report = step.report();
  EXPECT_TRUE(report.exact()) << report.inexact.front().reason;
  ASSERT_EQ(report.timeline.size(), 4u);
  // The operand that is saved (8) and the result (16).
  EXPECT_EQ(report.timeline[2].liveBytes, 8 + 16);
  EXPECT_EQ(report.timeline[2].transientBytes, 2 * 8);
  // What was saved is gone, and its gradient is there.
  EXPECT_EQ(report.timeline[3].liveBytes, 16 + 8);
  EXPECT_EQ(report.timeline[3].transientBytes, 2 * 4);
  EXPECT_EQ(report.timeline[3].op, "foreign.grow (backward)");
}

namespace {
/// Asks for the analysis, as the pass of another compiler would.
struct AskingPass : PassWrapper<AskingPass, OperationPass<func::FuncOp>> {
  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(AskingPass)
  explicit AskingPass(std::vector<const PeakMemoryAnalysis *> &seen)
      : seen(seen) {}
  void runOnOperation() override {
    auto &analysis = getAnalysis<PeakMemoryAnalysis>();
    EXPECT_EQ(analysis.evaluate(), 24 + 100);
    seen.push_back(&analysis);
    markAnalysesPreserved<PeakMemoryAnalysis>();
  }
  std::vector<const PeakMemoryAnalysis *> &seen;
};
} // namespace

TEST_F(ForeignTest, ThePassManagerCachesTheAnalysis) {
  func::FuncOp function = parse(R"(func.func @f(%x: tensor<3xf32>) {
    %0 = "foreign.grow"(%x) : (tensor<3xf32>) -> tensor<6xf32>
    return })");
  std::vector<const PeakMemoryAnalysis *> seen;
  PassManager passes(&context, func::FuncOp::getOperationName());
  passes.addPass(std::make_unique<AskingPass>(seen));
  passes.addPass(std::make_unique<AskingPass>(seen));
  ASSERT_TRUE(succeeded(passes.run(function)));
  ASSERT_EQ(seen.size(), 2u);
  EXPECT_EQ(seen[0], seen[1]);
}

// The tie of another dialect's operation is resolved as koila's own.
TEST_F(ForeignTest, TiesOfAnotherDialectAreResolved) {
  func::FuncOp function = parse(
      R"(func.func @f(%x: tensor<3xf32>) -> (tensor<6xf32>, tensor<6xf32>) {
    %0 = "foreign.grow"(%x) : (tensor<3xf32>) -> tensor<6xf32>
    %1 = "foreign.scale"(%0) : (tensor<6xf32>) -> tensor<6xf32>
    %2 = "foreign.scale"(%0) : (tensor<6xf32>) -> tensor<6xf32>
    return %1, %2 : tensor<6xf32>, tensor<6xf32> })");
  DimAnalysis dims(function);
  StorageAnalysis storage(function, dims);
  SmallVector<Operation *> scales;
  function.walk([&](foreign::ScaleOp op) { scales.push_back(op); });
  EXPECT_FALSE(storage.mayReuse(scales[0]));
  EXPECT_TRUE(storage.mayReuse(scales[1]));
}

TEST_F(ForeignTest, ExternalModelsGiveRules) {
  tensor::SplatOp::attachInterface<foreign::SplatMemory>(context);
  tensor::SplatOp::attachInterface<foreign::SplatAllocations>(context);
  func::FuncOp function = parse(R"(func.func @f(%x: f32) {
    %0 = tensor.splat %x : tensor<5xf32>
    return })");
  EXPECT_EQ(PeakMemoryAnalysis(function).evaluate(), 1020);
}

TEST_F(ForeignTest, WhatTheRuleRefusesMakesTheAnalysisInvalid) {
  func::FuncOp function = parse(R"(func.func @f(%x: tensor<f32>) {
    %0 = "foreign.grow"(%x) : (tensor<f32>) -> tensor<f32>
    return })");
  std::string error;
  ScopedDiagnosticHandler handler(
      &context, [&](Diagnostic &diagnostic) { error = diagnostic.str(); });
  EXPECT_FALSE(PeakMemoryAnalysis(function).isValid());
  EXPECT_EQ(error, "'foreign.grow' op needs a dim to grow");
}

// An operation without a rule is counted by its result, and said to be
// inexact: nobody knows what it allocates inside.
TEST_F(ForeignTest, OperationsWithoutARuleAreInexact) {
  context.allowUnregisteredDialects();
  func::FuncOp function = parse(R"(func.func @f(%x: tensor<3xf32>) {
    %0 = "unknown.op"(%x) : (tensor<3xf32>) -> tensor<6xf32>
    return })");
  PeakReport report = PeakMemoryAnalysis(function).report();
  EXPECT_EQ(report.peakBytes, 24);
  EXPECT_FALSE(report.exact());
}

// The batch rule of another dialect says where the batch is.
TEST_F(PeakMemoryTest, BatchRulesOfAnotherDialectAreAsked) {
  context.loadDialect<foreign::ForeignDialect>();
  func::FuncOp function = parse(R"(func.func @f(
      %x: tensor<?xf32> {koila.dims = #koila.dims<[B]>}) {
    %0 = "foreign.grow"(%x) {name = "a"} : (tensor<?xf32>) -> tensor<?xf32>
    return })");
  DimAnalysis dims(function);
  EXPECT_EQ(dims.lookup(value("a")).tensor->dim(0).str(), "2*B");
  EXPECT_EQ(BatchAnalysis(function, dims, "B").lookup(value("a")),
            BatchFact::at(0, 2));
}

// Whether a loss may be tiled is asked of what its operations mean to autograd.
TEST_F(PeakMemoryTest, HeadsOfAnotherDialectAreTiledByTheirDifferentiation) {
  context.loadDialect<foreign::ForeignDialect>();
  auto tile = [&](StringRef attributes) {
    std::string body =
        R"(koila.param @w : tensor<5x6xf32> keys ["w"] strides [6, 1] requires_grad
      func.func @f(%x: tensor<?x6xf32> {koila.dims = #koila.dims<[B, 6]>}) {
      %w = koila.param.get @w : tensor<5x6xf32>
      %y = koila.linear %x, %w : (tensor<?x6xf32>, tensor<5x6xf32>) -> tensor<?x5xf32>
      %sum = koila.sum %y : (tensor<?x5xf32>) -> tensor<f32>
      %loss = "foreign.head"(%sum) )" +
        attributes.str() + R"( : (tensor<f32>) -> tensor<f32>
      koila.backward %loss {create_graph = false} : (tensor<f32>) -> ()
      return })";
    std::string error;
    ScopedDiagnosticHandler handler(&context, [&](Diagnostic &diagnostic) {
      error += diagnostic.str();
      return success();
    });
    bool done = succeeded(TiledFunction::create(parse(body), "B"));
    return done ? std::string("tiled") : error;
  };
  EXPECT_EQ(tile(""), "tiled");
  auto contains = [](const std::string &text, StringRef part) {
    return StringRef(text).contains(part);
  };
  EXPECT_TRUE(
      contains(tile("{reads = \"operand\"}"), "no sum over the samples"));
  EXPECT_TRUE(contains(tile("{reads = \"inner\"}"), "no sum over the samples"));
  EXPECT_TRUE(contains(tile("{reads = \"unknown\"}"), "is not known"));
}
