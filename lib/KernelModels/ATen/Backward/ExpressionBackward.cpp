//===- ExpressionBackward.cpp - Gradients of recorded expressions ---------===//
//
// What autograd's engine does with the records of one expression: the last is
// run first, its gradients are summed to the extents of their operands, the
// gradient that arrived is dropped, and what only this record has saved is
// freed. Sources: torch/csrc/autograd/engine.cpp, and derivatives.yaml for the
// formulas.
//
//===----------------------------------------------------------------------===//

#include "../Reduction.h"
#include "../Sum.h"
#include "AutogradReplay.h"
#include "BackwardReplay.h"
#include "koila/Interfaces/KoilaOpInterfaces.h"
#include "mlir/IR/BuiltinTypes.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/SmallPtrSet.h"
#include "llvm/ADT/StringMap.h"

using namespace mlir;
using namespace koila;
using namespace koila::kernels;
using Node = AutogradReplay::Node;
using Number = OpReplay::Number;
using Result = OpReplay::Result;

namespace {
/// A gradient on its way: the buffer that it reads, and how.
struct Gradient {
  ConcreteTensor shape;
  size_t buffer = 0;
  /// Whether it is another tensor than that of the buffer.
  bool isView = false;
};

class Engine {
public:
  /// With `addsEarly` gradients of weights go when they are complete: then
  /// their blocks are not those of results.
  Engine(BackwardRule &rule, const AutogradReplay &of, bool addsEarly)
      : rule(rule), steps(rule), of(of), savers(countSavers()),
        addsEarly(addsEarly) {}

  void run(AutogradReplay::Terms made);
  /// Whether there was more after a gradient of a weight was complete.
  bool risesLate() const { return before && steps.getPeak() > *before; }
  void finish();

  const Node &getNode() const { return *node; }
  bool wants(unsigned operand) const { return node->wanted[operand]; }
  const ConcreteTensor &getOperand(unsigned operand) const {
    return node->operands[operand];
  }
  const ConcreteTensor &getResult() const { return node->result; }
  const ConcreteTensor &getGradient() const { return arrived.shape; }
  /// A new tensor that a step made.
  void give(unsigned operand, const MadeTensor &made);
  /// The gradient that arrived, or a view of it.
  void pass(unsigned operand) { given.push_back({operand, hold(arrived)}); }
  void passView(unsigned operand, ConcreteTensor view) {
    Gradient gradient = hold(arrived);
    gradient.shape = std::move(view);
    gradient.isView = true;
    given.push_back({operand, std::move(gradient)});
  }
  void fail() { koila::detail::describeUnknownBackward(rule); }

  BackwardRule &rule;
  BackwardReplay steps;

private:
  struct Buffer {
    AllocationTrace::Block block = {};
    unsigned holders = 1;
    /// That of a gradient of a result of the operation, and what goes with it.
    std::optional<unsigned> result = std::nullopt;
    int64_t releasable = 0;
  };
  /// A new tensor.
  Gradient hold(const MadeTensor &made, bool isView = false) {
    buffers.push_back({made.block});
    return {made, buffers.size() - 1, isView};
  }
  SmallVector<unsigned> countSavers() const;
  Gradient hold(const Gradient &gradient) {
    ++buffers[gradient.buffer].holders;
    return gradient;
  }
  void drop(const Gradient &gradient);
  void fit(Gradient &gradient, const ConcreteTensor &wanted);
  void sumTo(Gradient &gradient, const ConcreteTensor &wanted);
  void deliver(size_t storage, const Gradient &gradient);
  /// Whether the forward pass has kept a block of it inside.
  bool isKeptInside(size_t storage) const;
  /// What is kept of `storage` goes.
  void release(size_t storage);
  void runNode(const Node &next);
  unsigned getOperandNumber(Value operand) const;
  /// The operands that records which have not run have saved.
  SmallVector<unsigned> listSaved() const;
  bool isComplete(const OpOperand &operand, ArrayRef<Node> rest) const;
  void addToWeights(ArrayRef<Node> rest);

  const AutogradReplay &of;
  /// How many records that have not run have saved a storage.
  SmallVector<unsigned> savers;
  const Node *node = nullptr;
  Gradient arrived;
  SmallVector<std::pair<unsigned, Gradient>, 2> given;
  /// Those of this node that were added to others.
  SmallVector<Gradient, 2> added;
  std::vector<Buffer> buffers;
  /// The storages of the results.
  SmallVector<size_t, 1> results;
  /// By storage.
  llvm::MapVector<size_t, Gradient> waiting;
  bool addsEarly;
  /// The operands whose gradients are gone.
  SmallVector<unsigned, 2> early;
  /// The most that there was until a gradient of a weight was complete.
  std::optional<int64_t> before;
};
} // namespace

//===----------------------------------------------------------------------===//
// Formulas
//===----------------------------------------------------------------------===//

static void runScaled(Engine &of, const ConcreteTensor &factor) {
  of.give(0, of.steps.compute({of.getGradient(), factor}));
}

static void runMul(Engine &of) {
  // In the order of their names.
  if (of.wants(1))
    of.give(1, of.steps.compute({of.getGradient(), of.getOperand(0)}));
  if (of.wants(0))
    of.give(0, of.steps.compute({of.getGradient(), of.getOperand(1)}));
}

/// -grad * ((self / other) / other), and grad / other
static void runDiv(Engine &of) {
  if (of.wants(1)) {
    MadeTensor quotient =
        of.steps.compute({of.getOperand(0), of.getOperand(1)});
    MadeTensor again = of.steps.compute({quotient, of.getOperand(1)});
    MadeTensor negated = of.steps.compute(of.getGradient());
    of.give(1, of.steps.compute({negated, again}));
    of.steps.free({quotient, again, negated});
  }
  if (of.wants(0))
    of.give(0, of.steps.compute({of.getGradient(), of.getOperand(1)}));
}

static void runAdd(Engine &of) {
  for (unsigned operand = 0; operand < of.getNode().operands.size(); ++operand)
    if (of.wants(operand))
      of.pass(operand);
}

static void runSub(Engine &of) {
  if (of.wants(0))
    of.pass(0);
  if (of.getNode().operands.size() > 1 && of.wants(1))
    of.give(1, of.steps.compute(of.getGradient()));
}

/// grad * self.sgn()
static void runAbs(Engine &of) {
  MadeTensor sign = of.steps.compute(of.getOperand(0));
  runScaled(of, sign);
  of.steps.free(sign);
}

/// grad / (2 * result)
static void runSqrt(Engine &of) {
  MadeTensor twice = of.steps.compute(of.getResult(), Number::Integer);
  runScaled(of, twice);
  of.steps.free(twice);
}

/// -0.5 * grad * result.pow(3)
static void runRsqrt(Engine &of) {
  MadeTensor cube = of.steps.compute(of.getResult());
  MadeTensor half = of.steps.compute(of.getGradient(), Number::Float);
  of.give(0, of.steps.compute({half, cube}));
  of.steps.free({cube, half});
}

/// grad * (exponent * self.pow(exponent - 1)), an exponent other than zero.
static void runPower(Engine &of) {
  MadeTensor power = of.steps.compute(of.getOperand(0));
  MadeTensor scaled = of.steps.compute(power, Number::Float);
  of.give(0, of.steps.compute({of.getGradient(), scaled}));
  of.steps.free({power, scaled});
}

/// where(self >= min, grad, 0)
static void runClampMin(Engine &of) {
  MadeTensor zero = of.steps.makeNumber(of.getGradient());
  MadeTensor mask =
      of.steps.compute(of.getOperand(0), Number::Integer, Result::Bool);
  of.give(0, of.steps.mask(mask, of.getGradient()));
  of.steps.free({zero, mask});
}

static void runWhere(Engine &of) {
  for (unsigned operand : {2u, 1u}) {
    if (!of.wants(operand))
      continue;
    MadeTensor zero = of.steps.makeNumber(of.getGradient());
    of.give(operand, of.steps.mask(of.getOperand(0), of.getGradient()));
    of.steps.free(zero);
  }
}

/// As that of maximum.
static void runMinimum(Engine &of) {
  for (unsigned operand : {1u, 0u}) {
    if (!of.wants(operand))
      continue;
    ConcreteTensor both[] = {of.getOperand(0), of.getOperand(1)};
    MadeTensor half = of.steps.compute(of.getGradient(), Number::Integer);
    MadeTensor equal = of.steps.compute(both, Number::None, Result::Bool);
    MadeTensor taken = of.steps.mask(equal, of.getGradient());
    MadeTensor less = of.steps.compute(both, Number::None, Result::Bool);
    of.give(operand, taken);
    of.steps.free({half, equal, less});
  }
}

/// grad * self / other, and xlogy(grad, other), which is filled with zeros
/// where (self == 0) & (other <= 0).
static void runXlogy(Engine &of) {
  const ConcreteTensor &self = of.getOperand(0), &other = of.getOperand(1);
  if (of.wants(1)) {
    MadeTensor product = of.steps.compute({of.getGradient(), self});
    of.give(1, of.steps.compute({product, other}));
    of.steps.free(product);
  }
  if (of.wants(0)) {
    MadeTensor logs = of.steps.compute({of.getGradient(), other});
    MadeTensor isLess = of.steps.compute(other, Number::Float, Result::Bool);
    MadeTensor isZero = of.steps.compute(self, Number::Float, Result::Bool);
    MadeTensor isBoth = of.steps.compute({isZero, isLess});
    of.give(0, of.steps.allocate(logs));
    of.steps.free({logs, isLess, isZero, isBoth});
  }
}

/// The gradient with the dim that was reduced, of one element.
static ConcreteTensor restoreDim(Engine &of) {
  ConcreteTensor whole = of.getGradient();
  int64_t rank = of.getOperand(0).dims.size();
  if (!of.getNode().dim || whole.dims.size() == of.getOperand(0).dims.size())
    return whole;
  int64_t dim = *of.getNode().dim;
  whole = unsqueeze(std::move(whole), dim < 0 ? dim + rank : dim);
  return withStrides(whole, whole.strides);
}

static void runSum(Engine &of) {
  of.passView(0, expandTo(restoreDim(of), of.getOperand(0).dims));
}

/// A view of what is contiguous; of the whole.
static void runView(Engine &of) {
  if (!of.getGradient().contiguous)
    return of.fail();
  ConcreteTensor whole{of.getOperand(0).dims, of.getGradient().elementType};
  of.passView(0, whole);
}

static void runMean(Engine &of) {
  of.give(0, of.steps.compute(expandTo(restoreDim(of), of.getOperand(0).dims),
                              Number::Integer));
}

/// grad * (self / norm), which is filled with zeros where the norm is zero.
static void runNorm(Engine &of) {
  auto order = of.rule.getOp()->getAttrOfType<FloatAttr>("p");
  if (order && order.getValueAsDouble() != 2)
    return of.fail();
  MadeTensor quotient = of.steps.compute(of.getOperand(0));
  MadeTensor isZero =
      of.steps.compute(of.getResult(), Number::Integer, Result::Bool);
  of.give(0, of.steps.compute(quotient));
  of.steps.free({quotient, isZero});
}

using Run = void (*)(Engine &);

static const llvm::StringMap<Run> &getFormulas() {
  static const llvm::StringMap<Run> formulas = [] {
    llvm::StringMap<Run> table;
    table["mul.Tensor"] = runMul;
    table["div.Tensor"] = runDiv;
    table["mul.Scalar"] = [](Engine &of) {
      of.give(0, of.steps.compute(of.getGradient(), Number::Float));
    };
    for (StringRef name :
         {"add.Tensor", "add_.Tensor", "add.Scalar", "add_.Scalar", "clone"})
      table[name] = runAdd;
    for (StringRef name : {"sub.Tensor", "sub_.Tensor", "sub.Scalar"})
      table[name] = runSub;
    table["view"] = runView;
    table["rsqrt"] = runRsqrt;
    table["pow.Tensor_Scalar"] = runPower;
    table["_to_copy"] = [](Engine &of) {
      ConcreteTensor cast = of.getGradient();
      cast.elementType = of.getOperand(0).elementType;
      of.give(0, of.steps.makeLike(cast));
    };
    table["neg"] = [](Engine &of) {
      of.give(0, of.steps.compute(of.getGradient()));
    };
    table["abs"] = runAbs;
    table["exp"] = [](Engine &of) { runScaled(of, of.getResult()); };
    table["log"] = [](Engine &of) { runScaled(of, of.getOperand(0)); };
    table["sqrt_"] = runSqrt;
    table["clamp_min"] = table["clamp_min_"] = runClampMin;
    table["where.self"] = runWhere;
    table["minimum"] = runMinimum;
    table["xlogy.Tensor"] = runXlogy;
    table["masked_fill.Scalar"] = [](Engine &of) {
      of.give(0, of.steps.allocate(of.getGradient()));
    };
    table["sum"] = runSum;
    table["mean"] = table["mean.dim"] = runMean;
    table["norm.ScalarOpt_dim"] = table["linalg_vector_norm"] = runNorm;
    return table;
  }();
  return formulas;
}

//===----------------------------------------------------------------------===//
// The engine
//===----------------------------------------------------------------------===//

SmallVector<unsigned> Engine::countSavers() const {
  SmallVector<unsigned> counts;
  for (const Node &each : of.getNodes())
    for (size_t storage : each.saved) {
      counts.resize(std::max(counts.size(), storage + 1), 0);
      ++counts[storage];
    }
  return counts;
}

void Engine::give(unsigned operand, const MadeTensor &made) {
  given.push_back({operand, hold(made)});
}

void Engine::drop(const Gradient &gradient) {
  Buffer &buffer = buffers[gradient.buffer];
  if (--buffer.holders > 0)
    return;
  steps.AllocationTrace::free(buffer.block);
  steps.freeOutside(buffer.releasable);
}

/// The sum over dims that were broadcast, then a cast. Source: validate_grad.
void Engine::fit(Gradient &gradient, const ConcreteTensor &wanted) {
  sumTo(gradient, wanted);
  if (gradient.shape.elementType == wanted.elementType)
    return;
  ConcreteTensor cast = gradient.shape;
  cast.elementType = wanted.elementType;
  Gradient made = hold(steps.makeLike(cast));
  drop(gradient);
  gradient = made;
}

void Engine::sumTo(Gradient &gradient, const ConcreteTensor &wanted) {
  if (gradient.shape.dims == wanted.dims)
    return;
  MadeTensor sum = steps.allocate({wanted.dims, gradient.shape.elementType});
  // Dims in front, and those that were one.
  size_t added = gradient.shape.dims.size() - wanted.dims.size();
  SmallVector<bool> isReduced(added, true);
  for (auto [own, given] : llvm::zip_equal(
           wanted.dims, ArrayRef(gradient.shape.dims).drop_front(added)))
    isReduced.push_back(own != given);
  allocateSum(rule, steps, gradient.shape, sum, isReduced);
  bool isView =
      !wanted.dims.empty() && gradient.shape.dims.size() > wanted.dims.size();
  drop(gradient);
  gradient = hold(sum, isView);
}

/// What arrives first is written if nobody else has it. What is added to it
/// goes when its node ends.
void Engine::deliver(size_t storage, const Gradient &gradient) {
  auto [place, isFirst] = waiting.insert({storage, gradient});
  if (isFirst)
    return;
  added.push_back(gradient);
  Gradient &first = place->second;
  const Buffer &buffer = buffers[first.buffer];
  if (buffer.holders == 1 && !buffer.result && !first.isView &&
      isDense(first.shape))
    return;
  MadeTensor sum = steps.allocate(addStrides(first.shape, gradient.shape));
  auto strides = addStrides(first.shape, gradient.shape).getStrides();
  drop(first);
  first = hold({withStrides(sum, strides), sum.block});
}

unsigned Engine::getOperandNumber(Value operand) const {
  auto values = rule.getOp()->getOperands();
  return llvm::find(values, operand) - values.begin();
}

SmallVector<unsigned> Engine::listSaved() const {
  SmallVector<unsigned> numbers;
  for (auto [storage, count] : llvm::enumerate(savers))
    if (Value operand = of.getStorage(storage).operand; count > 0 && operand)
      if (unsigned number = getOperandNumber(operand);
          number < rule.getOp()->getNumOperands())
        numbers.push_back(number);
  return numbers;
}

bool Engine::isKeptInside(size_t storage) const {
  const AutogradReplay::Storage &entry = of.getStorage(storage);
  return entry.isSaved && !entry.operand && entry.bytes > 0 &&
         !llvm::is_contained(results, storage);
}

void Engine::release(size_t storage) {
  const AutogradReplay::Storage &entry = of.getStorage(storage);
  if (entry.operand) {
    unsigned operand = getOperandNumber(entry.operand);
    if (operand < rule.getOp()->getNumOperands())
      rule.freeSaved(steps, operand, listSaved());
    return;
  }
  if (auto *result = llvm::find(results, storage); result != results.end())
    return rule.freeSaved(
        steps, rule.getOp()->getNumOperands() + (result - results.begin()),
        listSaved());
  // Storages that are made inside have their numbers in the order of blocks.
  size_t number = 0;
  for (size_t other = 0; other < storage; ++other)
    number += isKeptInside(other);
  steps.freeKept(number, entry.bytes);
}

void Engine::runNode(const Node &next) {
  auto found = waiting.find(next.result.storage);
  if (found == waiting.end()) {
    // No gradient comes this way: its record goes as it is.
    for (size_t storage : next.saved)
      --savers[storage];
    return;
  }
  node = &next;
  arrived = found->second;
  waiting.erase(found);
  given.clear();
  if (arrived.shape.dims != next.result.dims ||
      arrived.shape.elementType != next.result.elementType)
    return fail();
  auto formula = getFormulas().find(next.name);
  if (formula == getFormulas().end())
    return fail();
  formula->second(*this);
  // Whatever is computed first, they are summed in the order of the operands.
  llvm::sort(given, llvm::less_first());
  for (auto &[operand, gradient] : given)
    fit(gradient, next.operands[operand]);
  drop(arrived);
  for (size_t storage : next.saved)
    if (--savers[storage] == 0)
      release(storage);
  for (auto &[operand, gradient] : given)
    deliver(next.operands[operand].storage, gradient);
  for (const Gradient &gradient : std::exchange(added, {}))
    drop(gradient);
}

bool Engine::isComplete(const OpOperand &operand, ArrayRef<Node> rest) const {
  return llvm::none_of(rest, [&](const Node &next) {
    return llvm::any_of(next.operands, [&](const Term &term) {
      return of.getStorage(term.storage).operand == operand.get();
    });
  });
}

/// Gradients that are added to those of weights when no node of `rest` adds to
/// them, and then go: those nodes do not wait for them.
void Engine::addToWeights(ArrayRef<Node> rest) {
  for (OpOperand &operand : rule.getOp()->getOpOperands()) {
    unsigned index = operand.getOperandNumber();
    if (!rule.isAccumulated(index) || llvm::is_contained(early, index) ||
        !isComplete(operand, rest))
      continue;
    for (auto &[storage, gradient] : waiting) {
      const Buffer &buffer = buffers[gradient.buffer];
      if (of.getStorage(storage).operand != operand.get() || buffer.result ||
          buffer.holders > 1)
        continue;
      if (!before)
        before = steps.getPeak();
      if (!addsEarly)
        continue;
      early.push_back(index);
      drop(gradient);
    }
  }
}

void Engine::finish() {
  Operation *op = rule.getOp();
  // Each has to have found its way, and an operand is one tensor.
  llvm::SmallPtrSet<Value, 4> operands;
  for (OpOperand &operand : op->getOpOperands())
    if (!operands.insert(operand.get()).second)
      return fail();
  for (auto &[storage, gradient] : waiting)
    if (!of.getStorage(storage).operand ||
        !operands.contains(of.getStorage(storage).operand))
      return fail();
  SmallVector<size_t> taken;
  for (OpOperand &operand : op->getOpOperands()) {
    unsigned index = operand.getOperandNumber();
    if (!rule.wantsOperand(index))
      continue;
    if (!early.empty() && !llvm::is_contained(early, index))
      rule.splitIntoOwnNode(index);
    for (auto &[storage, gradient] : waiting) {
      if (of.getStorage(storage).operand != operand.get())
        continue;
      const Buffer &buffer = buffers[gradient.buffer];
      if (buffer.result && !gradient.isView) {
        rule.forwardGrad(index, *buffer.result);
      } else if (buffer.result) {
        rule.setView(index, gradient.shape, *buffer.result);
      } else {
        if (llvm::is_contained(taken, gradient.buffer))
          rule.setBound("one gradient of two operands");
        taken.push_back(gradient.buffer);
        rule.setNew(index, gradient.shape, gradient.isView,
                    /*storageBytes=*/0, buffer.block);
      }
    }
  }
  steps.finish();
}

void Engine::run(AutogradReplay::Terms made) {
  for (auto [index, result] : llvm::enumerate(made)) {
    results.push_back(result.storage);
    const ConcreteTensor *gradient = rule.getGradient(index);
    if (!gradient)
      continue;
    // What the caller has of it is not freed here.
    int64_t bytes = index == 0 ? rule.getReleasableBytes() : 0;
    buffers.push_back({{}, 1, index, bytes});
    waiting.insert(
        {result.storage, {*gradient, buffers.size() - 1, /*isView=*/false}});
  }
  for (ArrayRef<Node> rest = of.getNodes(); !rest.empty();) {
    runNode(rest.back());
    if (!rule.isBounded())
      return;
    rest = rest.drop_back();
    addToWeights(rest);
  }
}

void kernels::describeExpressionBackward(BackwardRule &rule,
                                         const AutogradReplay &of,
                                         AutogradReplay::Terms results) {
  if (!rule.isBounded())
    return;
  // The blocks of all gradients are known where the figure does not tell
  // when they go.
  for (bool addsEarly : {false, true}) {
    rule.restart();
    Engine engine(rule, of, addsEarly);
    engine.run(results);
    if (rule.isBounded() && (addsEarly || !engine.risesLate()))
      return engine.finish();
  }
  rule.restart();
}
