//===- StoragePropertyTest.cpp - Ties and peaks of random programs --------===//
//
// Random programs are written twice: as MLIR, and as a list that a simulator
// of this file understands, which shares no code with the analyses. A second
// check runs the MLIR itself on numbers, once with every result in its own
// storage and once writing in place wherever tie resolution allows it; also
// after upstream passes moved and merged operations.
//
//===----------------------------------------------------------------------===//

#include "AnalysisFixture.h"
#include "koila/Analysis/PeakMemory.h"
#include "koila/Dialect/Koila/IR/MatmulOps.h"
#include "koila/Dialect/Koila/IR/NormOps.h"
#include "koila/Dialect/Koila/IR/ViewOps.h"
#include "koila/Dialect/Koila/Transforms/Passes.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Transforms/Passes.h"
#include <random>

using namespace mlir;
using namespace koila;

namespace {
constexpr unsigned kSeed = 20260101;
constexpr int kPrograms = 300;
constexpr int64_t kBatch = 3;

//===----------------------------------------------------------------------===//
// Programs
//===----------------------------------------------------------------------===//

enum class Kind { Unary, Binary, Linear, View };

struct Instruction {
  Kind kind;
  std::vector<int> operands;
  bool tied = false;
};

/// Values are numbered: first the arguments, then one per instruction.
struct Program {
  struct Value {
    int64_t features = 0;
    bool flat = false;
  };
  std::vector<Value> values;
  int arguments = 0;
  std::vector<Instruction> instructions;
  std::vector<int> results;
  std::string text;

  int64_t bytes(int value) const { return kBatch * values[value].features * 4; }
};

class Generator {
public:
  explicit Generator(unsigned seed) : random(seed) {}

  Program make(bool withLoops) {
    program = {};
    std::string arguments;
    for (int64_t features : {2, 3, 5}) {
      program.values.push_back({features, false});
      std::string number = std::to_string(features);
      arguments += (arguments.empty() ? "" : ", ") + std::string("%v") +
                   std::to_string(program.arguments++) + ": tensor<?x" +
                   number + "xf32> {koila.name = \"x" + number +
                   "\", koila.dims = #koila.dims<[B, " + number + "]>}";
    }
    body.clear();
    for (int from : {2, 3, 5})
      for (int to : {2, 3, 5})
        body += "  %w" + pair(to, from) + " = koila.param.get @w" +
                pair(to, from) + " : " + weightType(to, from) + "\n";
    int count = pick(3, 14);
    for (int step = 0; step < count; ++step)
      addInstruction();
    if (withLoops)
      for (int loops = pick(1, 2); loops > 0; --loops)
        addLoop();
    int results = pick(1, 2);
    std::string values, types;
    for (int index = 0; index < results; ++index) {
      program.results.push_back(pick(0, lastValue()));
      values +=
          (index ? ", %v" : "%v") + std::to_string(program.results.back());
      types += (index ? ", " : "") + type(program.results.back());
    }
    program.text = "func.func @f(" + arguments + ") -> (" + types + ") {\n" +
                   body + "  return " + values + " : " + types + "\n}\n";
    std::string params;
    for (int from : {2, 3, 5})
      for (int to : {2, 3, 5})
        params += "koila.param @w" + pair(to, from) + " : " +
                  weightType(to, from) + " keys [\"w\"] strides [" +
                  std::to_string(from) + ", 1]\n";
    program.text = params + program.text;
    return program;
  }

private:
  static std::string pair(int to, int from) {
    return std::to_string(to) + "_" + std::to_string(from);
  }
  static std::string weightType(int to, int from) {
    return "tensor<" + std::to_string(to) + "x" + std::to_string(from) +
           "xf32>";
  }
  int pick(int low, int high) {
    return std::uniform_int_distribution<int>(low, high)(random);
  }
  int lastValue() const { return static_cast<int>(program.values.size()) - 1; }
  std::string type(int value) const {
    if (value >= program.arguments)
      return "tensor<*x!koila.any>";
    return "tensor<?x" + std::to_string(program.values[value].features) +
           "xf32>";
  }
  bool sameShape(int lhs, int rhs) const {
    return program.values[lhs].features == program.values[rhs].features &&
           program.values[lhs].flat == program.values[rhs].flat;
  }
  std::string name(int value) const { return "%v" + std::to_string(value); }

  /// Prefers recent values, so that chains of ties arise.
  int pickValue() {
    int last = lastValue();
    return pick(0, 2) == 0 ? pick(0, last) : pick(std::max(0, last - 3), last);
  }

  void addInstruction() {
    Instruction instruction;
    int operand = pickValue();
    Program::Value result = program.values[operand];
    instruction.operands = {operand};
    instruction.tied = pick(0, 2) != 0;
    std::string line;
    std::string tied = instruction.tied ? "tied " : "";
    int choice = pick(0, 9);
    if (choice < 4) {
      instruction.kind = Kind::Unary;
      static const char *const kNames[] = {"relu", "neg", "exp", "tanh"};
      line = "koila." + std::string(kNames[pick(0, 3)]) + " " + tied +
             name(operand) + " : (" + type(operand) + ")";
    } else if (choice < 7) {
      instruction.kind = Kind::Binary;
      std::vector<int> fitting;
      for (int other = 0; other <= lastValue(); ++other)
        if (sameShape(operand, other))
          fitting.push_back(other);
      int other = fitting[pick(0, static_cast<int>(fitting.size()) - 1)];
      instruction.operands.push_back(other);
      line = "koila.mul_Tensor " + tied + name(operand) + ", " + name(other) +
             " : (" + type(operand) + ", " + type(other) + ")";
    } else if (choice < 8 && !result.flat) {
      instruction.kind = Kind::Linear;
      instruction.tied = false;
      static const int kFeatures[] = {2, 3, 5};
      int to = kFeatures[pick(0, 2)], from = static_cast<int>(result.features);
      result.features = to;
      line = "koila.linear " + name(operand) + ", %w" + pair(to, from) +
             " : (" + type(operand) + ", " + weightType(to, from) + ")";
    } else {
      instruction.kind = Kind::View;
      instruction.tied = false;
      if (pick(0, 1)) {
        result.flat = true;
        line = "koila.flatten_using_ints " + name(operand) + " : (" +
               type(operand) + ")";
      } else {
        line = "koila.dropout " + name(operand) +
               " {p = 5.0e-1 : f64, train = false} : (" + type(operand) + ")";
      }
    }
    program.values.push_back(result);
    body +=
        "  " + name(lastValue()) + " = " + line + " -> tensor<*x!koila.any>\n";
    program.instructions.push_back(std::move(instruction));
  }

  /// A loop of three iterations that carries one or two values.
  void addLoop() {
    std::vector<int> inits;
    for (int count = pick(1, 2); count > 0; --count) {
      if (lastValue() < program.arguments)
        return;
      inits.push_back(pick(program.arguments, lastValue()));
    }
    static int unique = 0;
    std::string tag = std::to_string(unique++);
    std::string carried, types;
    std::vector<int> inner;
    size_t outer = program.values.size();
    for (int init : inits) {
      program.values.push_back(program.values[init]);
      inner.push_back(lastValue());
      carried += (carried.empty() ? "" : ", ") + name(lastValue()) + " = " +
                 name(init);
      types +=
          (types.empty() ? "" : ", ") + std::string("tensor<*x!koila.any>");
    }
    std::string before;
    before.swap(body);
    for (int count = pick(1, 5); count > 0; --count)
      addInstruction();
    std::string yielded;
    for (int init : inner) {
      std::vector<int> fitting;
      for (int value = static_cast<int>(outer); value <= lastValue(); ++value)
        if (sameShape(init, value))
          fitting.push_back(value);
      yielded += (yielded.empty() ? "" : ", ") +
                 name(fitting[pick(0, static_cast<int>(fitting.size()) - 1)]);
    }
    std::vector<Program::Value> kept(program.values.begin(),
                                     program.values.begin() + outer);
    std::vector<Program::Value> shapes;
    for (int init : inner)
      shapes.push_back(program.values[init]);
    std::string loop = body;
    body = std::move(before);
    // Values of the body are not visible later: their numbers are spent, and
    // the results are copied to new ones.
    size_t spent = program.values.size();
    program.values = std::move(kept);
    // Names must stay unique; a view renames a result of the loop.
    body += "  %z" + tag + " = arith.constant 0 : index\n  %o" + tag +
            " = arith.constant 1 : index\n  %n" + tag +
            " = arith.constant 3 : index\n";
    body += "  %r" + tag + ":" + std::to_string(inits.size()) +
            " = scf.for %i" + tag + " = %z" + tag + " to %n" + tag +
            " step %o" + tag + " iter_args(" + carried + ") -> (" + types +
            ") {\n" + loop + "  scf.yield " + yielded + " : " + types +
            "\n  }\n";
    body = renameBody(body, outer, spent, tag);
    for (size_t index = 0; index < inits.size(); ++index) {
      program.values.push_back(shapes[index]);
      body += "  " + name(lastValue()) + " = koila.dropout %r" + tag + "#" +
              std::to_string(index) +
              " {p = 5.0e-1 : f64, train = false} : (tensor<*x!koila.any>) -> "
              "tensor<*x!koila.any>\n";
    }
  }

  /// Gives the values `first` to `last` of a body names of their own.
  static std::string renameBody(const std::string &text, size_t first,
                                size_t last, const std::string &tag) {
    std::string result;
    for (size_t index = 0; index < text.size();) {
      if (text[index] == '%' && index + 2 < text.size() &&
          text[index + 1] == 'v' && isdigit(text[index + 2])) {
        size_t end = index + 2;
        size_t number = 0;
        while (end < text.size() && isdigit(text[end]))
          number = number * 10 + (text[end++] - '0');
        if (number >= first && number < last) {
          result += "%b" + tag + "_" + std::to_string(number);
          index = end;
          continue;
        }
      }
      result += text[index++];
    }
    return result;
  }

  std::mt19937 random;
  Program program;
  std::string body;
};

//===----------------------------------------------------------------------===//
// The simulator: straight-line programs, by the definition
//===----------------------------------------------------------------------===//

struct Simulation {
  std::vector<bool> reuses;
  int64_t peak = 0;
};

} // namespace

static Simulation simulate(const Program &program) {
  int values = static_cast<int>(program.values.size());
  int count = static_cast<int>(program.instructions.size());
  std::vector<int> storageOf(values, -1);
  std::vector<bool> external;
  std::vector<int64_t> size;
  std::vector<int> birth, death;
  for (int value = 0; value < program.arguments; ++value) {
    storageOf[value] = static_cast<int>(external.size());
    external.push_back(true);
    size.push_back(0);
    birth.push_back(0);
    death.push_back(0);
  }
  auto usedAfter = [&](int step, int storage) {
    auto is = [&](int value) {
      return value < program.arguments + step && storageOf[value] == storage;
    };
    for (int later = step + 1; later < count; ++later)
      for (int operand : program.instructions[later].operands)
        if (is(operand))
          return true;
    return llvm::any_of(program.results, is);
  };
  Simulation result;
  for (int step = 0; step < count; ++step) {
    const Instruction &instruction = program.instructions[step];
    int value = program.arguments + step;
    int storage = storageOf[instruction.operands[0]];
    bool twice = instruction.operands.size() == 2 &&
                 instruction.operands[0] == instruction.operands[1];
    bool reuse = instruction.tied && !twice && !external[storage] &&
                 !usedAfter(step, storage);
    result.reuses.push_back(reuse);
    if (!reuse && instruction.kind != Kind::View) {
      storage = static_cast<int>(external.size());
      external.push_back(false);
      size.push_back(program.bytes(value));
      birth.push_back(step);
      death.push_back(step);
    }
    storageOf[value] = storage;
  }
  for (int step = 0; step < count; ++step)
    for (int operand : program.instructions[step].operands)
      death[storageOf[operand]] = std::max(death[storageOf[operand]], step);
  for (int value : program.results)
    death[storageOf[value]] = count;
  for (int step = 0; step < count; ++step) {
    int64_t live = 0;
    for (size_t storage = 0; storage < external.size(); ++storage)
      if (!external[storage] && birth[storage] <= step &&
          step <= death[storage])
        live += size[storage];
    result.peak = std::max(result.peak, live);
  }
  return result;
}

namespace {

//===----------------------------------------------------------------------===//
// The machine: the MLIR itself on numbers
//===----------------------------------------------------------------------===//

struct Tensor {
  std::shared_ptr<std::vector<uint64_t>> data;
  std::vector<int64_t> shape;
};

class Machine {
public:
  /// With null `ties` every result has its own storage.
  Machine(func::FuncOp function, const TieResolution *ties)
      : function(function), ties(ties) {}

  std::vector<std::vector<uint64_t>> run() {
    uint64_t next = 1;
    auto fresh = [&](Type type) {
      Tensor tensor;
      int64_t count = 1;
      for (int64_t extent : cast<RankedTensorType>(type).getShape()) {
        tensor.shape.push_back(ShapedType::isDynamic(extent) ? kBatch : extent);
        count *= tensor.shape.back();
      }
      tensor.data = std::make_shared<std::vector<uint64_t>>(count);
      for (uint64_t &element : *tensor.data)
        element = next += 0x9e3779b97f4a7c15;
      return tensor;
    };
    for (BlockArgument argument : function.getArguments())
      tensors[argument] = fresh(argument.getType());
    for (auto param : function->getParentOfType<ModuleOp>().getOps<ParamOp>())
      weights[param.getSymName()] = fresh(param.getType());
    Operation *end = run(function.getBody().front());
    std::vector<std::vector<uint64_t>> results;
    for (Value result : end->getOperands())
      results.push_back(*tensors.at(result).data);
    // What the caller owns must be as it was.
    for (BlockArgument argument : function.getArguments())
      results.push_back(*tensors.at(argument).data);
    for (auto param : function->getParentOfType<ModuleOp>().getOps<ParamOp>())
      results.push_back(*weights[param.getSymName()].data);
    return results;
  }

private:
  Operation *run(Block &block) {
    for (Operation &op : block.without_terminator())
      run(op);
    return block.getTerminator();
  }

  void run(Operation &op) {
    if (auto get = dyn_cast<ParamGetOp>(op)) {
      tensors[get] = weights.at(get.getParam());
    } else if (auto constant = dyn_cast<arith::ConstantIndexOp>(op)) {
      integers[constant] = constant.value();
    } else if (auto loop = dyn_cast<scf::ForOp>(op)) {
      for (auto [argument, init] :
           llvm::zip_equal(loop.getRegionIterArgs(), loop.getInitArgs()))
        tensors[argument] = tensors.at(init);
      for (int64_t index = integers.at(loop.getLowerBound());
           index < integers.at(loop.getUpperBound());
           index += integers.at(loop.getStep())) {
        Operation *yield = run(*loop.getBody());
        std::vector<Tensor> next;
        for (Value value : yield->getOperands())
          next.push_back(tensors.at(value));
        for (auto [argument, tensor] :
             llvm::zip_equal(loop.getRegionIterArgs(), next))
          tensors[argument] = tensor;
      }
      for (auto [result, argument] :
           llvm::zip_equal(loop.getResults(), loop.getRegionIterArgs()))
        tensors[result] = tensors.at(argument);
    } else if (isa<FlattenOp>(op)) {
      Tensor tensor = tensors.at(op.getOperand(0));
      tensor.shape = {static_cast<int64_t>(tensor.data->size())};
      tensors[op.getResult(0)] = tensor;
    } else if (isa<DropoutOp, tensor::CastOp, RefineOp>(op)) {
      tensors[op.getResult(0)] = tensors.at(op.getOperand(0));
    } else if (isa<LinearOp>(op)) {
      runLinear(op);
    } else if (isa<TorchOperatorInterface>(op)) {
      runPointwise(op);
    } else {
      ASSERT_TRUE(isa<AssumeOp>(op)) << op.getName().getStringRef().str();
    }
  }

  void runLinear(Operation &op) {
    const Tensor &input = tensors.at(op.getOperand(0));
    const Tensor &weight = tensors.at(op.getOperand(1));
    int64_t rows = input.shape[0], from = weight.shape[1], to = weight.shape[0];
    Tensor result;
    result.shape = {rows, to};
    result.data = std::make_shared<std::vector<uint64_t>>(rows * to);
    for (int64_t row = 0; row < rows; ++row)
      for (int64_t column = 0; column < to; ++column)
        for (int64_t index = 0; index < from; ++index)
          (*result.data)[row * to + column] +=
              (*input.data)[row * from + index] *
              (*weight.data)[column * from + index];
    tensors[op.getResult(0)] = result;
  }

  void runPointwise(Operation &op) {
    Tensor result = tensors.at(op.getOperand(0));
    bool inPlace = ties && cast<TorchOperatorInterface>(op).isTied() &&
                   ties->mayReuse(&op);
    if (!inPlace)
      result.data = std::make_shared<std::vector<uint64_t>>(*result.data);
    uint64_t salt = llvm::hash_value(op.getName().getStringRef());
    // The second operand may be another name of the storage that is written.
    for (size_t index = 0; index < result.data->size(); ++index) {
      uint64_t value = (*result.data)[index];
      if (op.getNumOperands() == 2)
        value = value * 31 + (*tensors.at(op.getOperand(1)).data)[index];
      (*result.data)[index] = (value ^ salt) * 0x100000001b3 + 1;
    }
    tensors[op.getResult(0)] = result;
  }

  func::FuncOp function;
  const TieResolution *ties;
  llvm::DenseMap<Value, Tensor> tensors;
  llvm::DenseMap<Value, int64_t> integers;
  llvm::StringMap<Tensor> weights;
};

class StoragePropertyTest : public AnalysisTest {
protected:
  /// A pass manager over the module: shape inference, then upstream's.
  LogicalResult runPasses(bool upstream) {
    PassManager manager(&context);
    manager.addPass(createInferShapesPass());
    if (upstream) {
      manager.addPass(createCanonicalizerPass());
      manager.addPass(createCSEPass());
      manager.addPass(createLoopInvariantCodeMotionPass());
      manager.addPass(createInferShapesPass());
    }
    return manager.run(*module);
  }
  func::FuncOp function() { return *module->getOps<func::FuncOp>().begin(); }
};
} // namespace

TEST_F(StoragePropertyTest, StraightLineProgramsFollowTheDefinition) {
  int reused = 0, kept = 0;
  for (int index = 0; index < kPrograms; ++index) {
    unsigned seed = kSeed + index;
    Program program = Generator(seed).make(/*withLoops=*/false);
    SCOPED_TRACE("seed " + std::to_string(seed) + "\n" + program.text);
    ASSERT_TRUE(parse(program.text, kBatch));
    ASSERT_TRUE(succeeded(runPasses(/*upstream=*/false)));
    Simulation expected = simulate(program);
    TieResolution ties(function());
    size_t step = 0;
    for (Operation &op : function().getBody().front()) {
      auto torch = dyn_cast<TorchOperatorInterface>(op);
      if (!torch)
        continue;
      ASSERT_EQ(torch.isTied(), program.instructions[step].tied);
      ASSERT_EQ(torch.isTied() && ties.mayReuse(&op), expected.reuses[step])
          << "instruction " << step;
      reused += expected.reuses[step];
      kept += torch.isTied() && !expected.reuses[step];
      ++step;
    }
    ASSERT_EQ(step, program.instructions.size());
    PeakMemoryAnalysis peak(function());
    ASSERT_EQ(peak.evaluate(), expected.peak);
    // Where a tie is not resolved, the program itself may need less.
    PeakReport report = peak.report();
    for (const Inexactness &doubt : report.inexact)
      ASSERT_TRUE(doubt.isBound) << doubt.reason;
  }
  // The programs are worth running only if both answers occur often.
  EXPECT_GT(reused, kPrograms / 4);
  EXPECT_GT(kept, kPrograms / 4);
}

TEST_F(StoragePropertyTest, WritingInPlaceChangesNoResult) {
  int written = 0;
  for (int index = 0; index < kPrograms; ++index) {
    unsigned seed = kSeed + kPrograms + index;
    Program program = Generator(seed).make(/*withLoops=*/index % 2);
    SCOPED_TRACE("seed " + std::to_string(seed) + "\n" + program.text);
    ASSERT_TRUE(parse(program.text, kBatch));
    ASSERT_TRUE(succeeded(runPasses(/*upstream=*/false)));
    auto expected = Machine(function(), nullptr).run();
    {
      TieResolution ties(function());
      ASSERT_TRUE(Machine(function(), &ties).run() == expected) << "as it is";
    }
    ASSERT_TRUE(succeeded(runPasses(/*upstream=*/true)));
    TieResolution ties(function());
    function().walk([&](TorchOperatorInterface op) {
      written += op.isTied() && ties.mayReuse(op);
    });
    ASSERT_TRUE(Machine(function(), &ties).run() == expected)
        << "after canonicalize, cse and loop-invariant-code-motion";
  }
  EXPECT_GT(written, kPrograms / 4);
}
