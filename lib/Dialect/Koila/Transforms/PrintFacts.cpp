//===- PrintFacts.cpp - What the analyses know of each value --------------===//

#include "koila/Analysis/BatchAnalysis.h"
#include "koila/Analysis/ControlFlow.h"
#include "koila/Analysis/DimAnalysis.h"
#include "koila/Analysis/Storage.h"
#include "koila/Dialect/Koila/IR/Koila.h"
#include "koila/Dialect/Koila/Transforms/Passes.h"
#include "koila/Support/OutputFile.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include "llvm/Support/JSON.h"

namespace koila {
#define GEN_PASS_DEF_PRINTFACTSPASS
#include "koila/Dialect/Koila/Transforms/Passes.h.inc"
} // namespace koila

using namespace mlir;
using namespace koila;
namespace json = llvm::json;

/// The index of the TorchScript node that import left in a location.
static json::Value getNode(Location location) {
  if (auto fused = dyn_cast<FusedLoc>(location)) {
    if (auto data = dyn_cast_or_null<DictionaryAttr>(fused.getMetadata()))
      if (auto index = data.getAs<IntegerAttr>("koila.node"))
        return index.getInt();
    for (Location part : fused.getLocations())
      if (json::Value found = getNode(part); found != json::Value(nullptr))
        return found;
  }
  return nullptr;
}

/// The innermost place; the call stack around it would hide the facts.
static std::string spell(Location location) {
  while (true) {
    if (auto call = dyn_cast<CallSiteLoc>(location))
      location = call.getCallee();
    else if (auto name = dyn_cast<NameLoc>(location);
             name && !isa<UnknownLoc>(name.getChildLoc()))
      location = name.getChildLoc();
    else if (auto fused = dyn_cast<FusedLoc>(location);
             fused && !fused.getLocations().empty())
      location = fused.getLocations().front();
    else
      break;
  }
  std::string text;
  llvm::raw_string_ostream os(text);
  location.print(os);
  return text;
}

static std::string spell(Type type) {
  std::string text;
  llvm::raw_string_ostream os(text);
  type.print(os);
  return text;
}

static json::Value getExprs(const std::optional<SmallVector<DimExpr>> &exprs) {
  if (!exprs)
    return nullptr;
  json::Array array;
  for (DimExpr expr : *exprs)
    array.push_back(expr ? json::Value(expr.str()) : json::Value(nullptr));
  return array;
}

static std::string getBatch(const BatchFact &fact) {
  switch (fact.kind) {
  case BatchFact::Kind::Unset:
    return "unset";
  case BatchFact::Kind::Free:
    return "free";
  case BatchFact::Kind::At:
    return "at(" + std::to_string(fact.dim) + ", " +
           std::to_string(fact.factor) + ")";
  case BatchFact::Kind::Inner:
    if (fact.isSelected())
      return "selected(" + std::to_string(fact.dim) + ")";
    return "inner(" + std::to_string(fact.dim) + ", " +
           std::to_string(fact.factor) + ", " + fact.outer.str() + ")";
  case BatchFact::Kind::Mixed:
    return "mixed: " + fact.reason;
  }
  return "";
}

namespace {
struct PrintFactsPass : public koila::impl::PrintFactsPassBase<PrintFactsPass> {
  using Base::Base;

  json::Object describe(Value value, const DimAnalysis &dims,
                        const BatchAnalysis &batch,
                        const StorageAnalysis &storage) {
    const ValueInfo &info = dims.lookup(value);
    json::Object object{{"type", spell(value.getType())},
                        {"batch", getBatch(batch.lookup(value))}};
    if (info.tensor) {
      object["element"] = info.tensor->elementType
                              ? json::Value(spell(info.tensor->elementType))
                              : json::Value(nullptr);
      object["dims"] = getExprs(info.tensor->dims);
      object["strides"] = getExprs(info.tensor->strides);
    }
    if (info.integer)
      object["integer"] = info.integer.str();
    else if (auto flag = dyn_cast_or_null<BoolAttr>(info.literal))
      object["integer"] = flag.getValue() ? "1" : "0";
    if (const Storage *found = storage.lookup(value)) {
      bool allocated =
          llvm::is_contained(found->allocations, dyn_cast<OpResult>(value));
      object["storage"] = found->external ? "external"
                          : allocated     ? "new"
                                          : "shared";
    }
    return object;
  }

  LogicalResult run(llvm::raw_ostream &os) {
    ModuleOp module = getOperation();
    FunctionOpInterface found = findFunction(module, function);
    if (!found)
      return failure();
    if (Operation *branching = findSeveralBlocks(found))
      return branching->emitError()
             << "the storages of a region with several blocks are not known";
    auto &dims = getChildAnalysis<DimAnalysis>(found);
    if (!dims.isValid())
      return failure();
    BatchAnalysis batch(found, dims, getBatchSymbol(module));
    auto &storage = getChildAnalysis<StorageAnalysis>(found);
    llvm::DenseMap<Operation *, json::Array> guesses;
    for (auto &[op, reason] : storage.getGuesses())
      guesses[op].push_back(reason);
    found->walk<WalkOrder::PreOrder>([&](Operation *op) {
      if (op == found || op->getNumResults() == 0)
        return;
      json::Object line{{"op", op->getName().getStringRef()},
                        {"node", getNode(op->getLoc())},
                        {"location", spell(op->getLoc())}};
      if (auto torch = dyn_cast<TorchOperatorInterface>(op))
        line["schema"] = torch.getTorchSchema().split('(').first;
      else if (auto opaque = dyn_cast<TorchOpaqueOp>(op))
        line["schema"] = opaque.getCallee();
      if (auto it = guesses.find(op); it != guesses.end())
        line["guesses"] = std::move(it->second);
      json::Array results;
      for (Value result : op->getResults())
        results.push_back(describe(result, dims, batch, storage));
      line["results"] = std::move(results);
      os << json::Value(std::move(line)) << "\n";
    });
    return success();
  }

  void runOnOperation() override {
    markAllAnalysesPreserved();
    std::string text;
    llvm::raw_string_ostream os(text);
    if (failed(run(os)))
      return signalPassFailure();
    if (output.empty()) {
      llvm::errs() << text;
      return;
    }
    std::string problem;
    if (!writeOutputFile(
            output, [&](llvm::raw_ostream &file) { file << text; }, problem)) {
      getOperation().emitError() << problem;
      signalPassFailure();
    }
  }
};
} // namespace
