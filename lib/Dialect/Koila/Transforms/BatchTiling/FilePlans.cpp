//===- FilePlans.cpp - Several plans of one program -----------------------===//

#include "FilePlans.h"
#include "PlanSearch.h"
#include "koila/Dialect/Koila/IR/Koila.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/Remarks.h"
#include "llvm/ADT/DenseSet.h"
#include <cmath>

using namespace mlir;
using namespace koila;

//===----------------------------------------------------------------------===//
// Modules within a module
//===----------------------------------------------------------------------===//

int64_t koila::getPlan(ModuleOp module) {
  auto plan = module->getAttrOfType<IntegerAttr>(kPlanAttr);
  return plan ? plan.getInt() : 0;
}

SmallVector<ModuleOp> koila::getPlans(ModuleOp module) {
  SmallVector<ModuleOp> plans{module};
  for (auto other : module.getOps<ModuleOp>())
    if (other->hasAttr(kPlanAttr))
      plans.push_back(other);
  llvm::stable_sort(plans, [](ModuleOp lhs, ModuleOp rhs) {
    return getPlan(lhs) < getPlan(rhs);
  });
  return plans;
}

bool koila::selectPlan(OwningOpRef<ModuleOp> &module, int64_t plan) {
  SmallVector<ModuleOp> plans = getPlans(*module);
  if (plan < 0 || plan >= static_cast<int64_t>(plans.size()))
    return false;
  for (auto [place, other] : llvm::enumerate(plans))
    if (getPlan(other) != static_cast<int64_t>(place))
      return false;
  ModuleOp chosen = plans[plan];
  if (chosen == *module)
    return true;
  OwningOpRef<ModuleOp> before = std::move(module);
  for (ModuleOp other : plans)
    if (other != *before)
      other->remove();
  module = chosen;
  for (ModuleOp other : plans)
    if (other != chosen)
      chosen.push_back(other == *before ? before.release() : other);
  return true;
}

//===----------------------------------------------------------------------===//
// Which plans
//===----------------------------------------------------------------------===//

namespace {
/// A plan and what its report says of it.
struct Planned {
  Planned(int64_t budget, ModuleOp module) : budget(budget), module(module) {
    auto text = module->getAttrOfType<StringAttr>(KoilaDialect::kReportAttr);
    llvm::Expected<llvm::json::Value> json =
        llvm::json::parse(text ? text.getValue() : "{}");
    if (!json)
      llvm::consumeError(json.takeError());
    else if (const llvm::json::Object *object = json->getAsObject())
      report = *object;
    if (const llvm::json::Array *rows = report.getArray("by_tile"))
      for (const llvm::json::Value &row : *rows)
        if (auto bytes = row.getAsObject()
                             ? row.getAsObject()->getInteger("budget_bytes")
                             : std::nullopt)
          least = std::min(least.value_or(*bytes), *bytes);
    share = report.getNumber("recomputed_share").value_or(0);
  }

  int64_t budget;
  ModuleOp module;
  llvm::json::Object report;
  /// Of its tiles the one that takes least.
  std::optional<int64_t> least;
  /// Of the forward pass what runs again.
  double share;
};

class PlanAdder {
public:
  PlanAdder(ModuleOp module, ModuleOp original, const TilingOptions &options)
      : module(module), original(original), options(options),
        most(std::min(options.plans, kMostPlans)) {}

  void run();

private:
  bool isFull() const { return static_cast<int64_t>(plans.size()) >= most; }
  FunctionOpInterface getFunction(ModuleOp of) const {
    return findFunction(of, options.analysis.function);
  }
  bool isLike(ModuleOp other) const;
  OwningOpRef<ModuleOp> tile(int64_t budget, RecomputeMode recompute,
                             std::optional<int64_t> *smallest = nullptr);
  std::optional<int64_t> findSmallest(RecomputeMode recompute);
  bool add(int64_t budget);
  void addLarger();
  void fillGaps();
  void writeReports();

  ModuleOp module, original;
  const TilingOptions &options;
  int64_t most;
  /// In the order of their places.
  std::vector<Planned> plans;
};
} // namespace

/// Whether the guard of the program is also that of `other`.
bool PlanAdder::isLike(ModuleOp other) const {
  FunctionOpInterface own = getFunction(module), function = getFunction(other);
  if (!function)
    return false;
  auto getFacts = [](FunctionOpInterface of) {
    auto record = of->getAttrOfType<DictionaryAttr>(KoilaDialect::kTiledAttr);
    SmallVector<Attribute> facts;
    for (StringRef key : {"guard", "batch_symbol", "least_batch", "holds_to"})
      facts.push_back(record.get(key));
    for (auto fact : of.getFunctionBody().front().getOps<AssumeOp>()) {
      auto argument = fact->getNumOperands() == 0
                          ? BlockArgument()
                          : dyn_cast<BlockArgument>(fact->getOperand(0));
      facts.push_back(fact->getAttrDictionary());
      facts.push_back(
          Builder(of->getContext())
              .getI64IntegerAttr(argument ? argument.getArgNumber() : -1));
    }
    return facts;
  };
  return function->hasAttr(KoilaDialect::kTiledAttr) &&
         getFacts(own) == getFacts(function) &&
         getLargestTile(own) == getLargestTile(function);
}

/// The original in tiles within `budget`; null where it cannot be. `smallest`
/// is then the smallest budget that works, if that is why.
OwningOpRef<ModuleOp> PlanAdder::tile(int64_t budget, RecomputeMode recompute,
                                      std::optional<int64_t> *smallest) {
  TilingOptions other = options;
  other.budget = budget;
  other.plans = 1;
  other.recompute = recompute;
  OwningOpRef<ModuleOp> copy(original.clone());
  FunctionOpInterface function = getFunction(module);
  remark::analysis(function.getLoc(), getTilingRemark(function))
      << remark::add("another plan, for another budget")
      << remark::metric("BudgetBytes", budget);
  auto readSmallest = [&](const DiagnosticArgument &argument) {
    using Kind = DiagnosticArgument::DiagnosticArgumentKind;
    if (argument.getKind() != Kind::Attribute || !smallest)
      return;
    auto field = dyn_cast<DictionaryAttr>(argument.getAsAttribute());
    if (auto bytes =
            field ? field.getAs<IntegerAttr>(kSmallestBudget) : IntegerAttr())
      *smallest = bytes.getInt();
  };
  ScopedDiagnosticHandler quiet(
      module.getContext(), [&](Diagnostic &diagnostic) {
        llvm::for_each(diagnostic.getMetadata(), readSmallest);
        return success();
      });
  if (failed(tileBatch(*copy, other)))
    return nullptr;
  return copy;
}

/// The least that any plan needs.
std::optional<int64_t> PlanAdder::findSmallest(RecomputeMode recompute) {
  std::optional<int64_t> smallest;
  tile(/*budget=*/1, recompute, &smallest);
  return smallest;
}

/// Adds the plan for `budget`. False if that is none of tiles, or there
/// already.
bool PlanAdder::add(int64_t budget) {
  OwningOpRef<ModuleOp> copy = tile(budget, options.recompute);
  if (!copy || !isLike(*copy))
    return false;
  Planned planned(budget, *copy);
  auto isSame = [&](const Planned &plan) {
    return plan.least == planned.least && plan.share == planned.share;
  };
  if (!planned.least || llvm::any_of(plans, isSame))
    return false;
  // Where its weights are the module itself says.
  (*copy)->removeAttr(KoilaDialect::kArchiveAttr);
  module.push_back(copy.release());
  plans.push_back(std::move(planned));
  return true;
}

/// The plan that runs nothing again, or where samples are mixed, so that there
/// is none, one that runs less.
void PlanAdder::addLarger() {
  int64_t budget = plans.front().budget;
  auto replan = plans.front().report.getInteger("replan_bytes");
  if (auto whole = findSmallest(RecomputeMode::Never); whole && *whole > budget)
    add(*whole);
  else if (!add(2 * budget) && replan && *replan > budget)
    add(*replan);
}

/// Budgets between which there is no plan yet get one, from where the most is
/// missing.
void PlanAdder::fillGaps() {
  llvm::SmallDenseSet<int64_t> tried;
  while (!isFull()) {
    SmallVector<const Planned *> sorted;
    for (const Planned &plan : plans)
      sorted.push_back(&plan);
    llvm::sort(sorted, [](const Planned *lhs, const Planned *rhs) {
      return *lhs->least < *rhs->least;
    });
    double widest = 1;
    std::optional<int64_t> budget;
    for (auto [below, above] :
         llvm::zip(sorted, ArrayRef(sorted).drop_front())) {
      double least = *below->least, next = *above->least;
      auto between = static_cast<int64_t>(std::sqrt(least * next));
      if (below->share > above->share && next / least > widest &&
          !tried.contains(between)) {
        widest = next / least;
        budget = between;
      }
    }
    if (!budget)
      return;
    tried.insert(*budget);
    add(*budget);
  }
}

/// Beside the plan that there is: the one that takes least, one for larger
/// budgets, and others between them.
void PlanAdder::run() {
  plans.emplace_back(*options.budget, module);
  if (!plans.front().least)
    return;
  if (auto smallest = findSmallest(options.recompute);
      smallest && *smallest < *plans.front().least)
    add(*smallest);
  if (!isFull() && plans.front().share > 0)
    addLarger();
  fillGaps();
  if (plans.size() > 1)
    writeReports();
}

void PlanAdder::writeReports() {
  llvm::json::Array list;
  for (const Planned &plan : plans) {
    llvm::json::Object entry{{"budget_bytes", plan.budget}};
    for (StringRef key :
         {"by_tile", "replan_bytes", "recompute", "recomputed_share"})
      if (const llvm::json::Value *value = plan.report.get(key))
        entry[key] = *value;
    list.push_back(std::move(entry));
  }
  Builder builder(module.getContext());
  for (auto [place, plan] : llvm::enumerate(plans)) {
    plan.report["plans"] = llvm::json::Value(llvm::json::Array(list));
    std::string text;
    llvm::raw_string_ostream os(text);
    os << llvm::json::Value(std::move(plan.report));
    plan.module->setAttr(KoilaDialect::kReportAttr,
                         builder.getStringAttr(text));
    plan.module->setAttr(kPlanAttr, builder.getI64IntegerAttr(place));
  }
}

void koila::addPlans(ModuleOp module, ModuleOp original,
                     const TilingOptions &options) {
  FunctionOpInterface function =
      findFunction(module, options.analysis.function);
  if (function && function->hasAttr(KoilaDialect::kTiledAttr))
    PlanAdder(module, original, options).run();
}
