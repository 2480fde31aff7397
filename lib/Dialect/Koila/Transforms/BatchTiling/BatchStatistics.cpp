//===- BatchStatistics.cpp - Normalisations by statistics of each tile ----===//
//
// In training mode batch_norm normalises by the statistics of the batch, so
// that samples are mixed. With batchnorm=per-tile those of a tile do so among
// themselves, which gives other results: people who train on several cards, or
// accumulate gradients, know them. Tiles have two samples at least, since one
// alone may have no variance.
//
//===----------------------------------------------------------------------===//

#include "PhasePlan.h"
#include "koila/Dialect/Koila/IR/ObjectOps.h"
#include "koila/Interfaces/KoilaOpInterfaces.h"
#include "koila/Interfaces/MutableStorage.h"

using namespace mlir;
using namespace koila;

/// What weights that share storage have in common.
static Attribute getIdentity(ParamGetOp read, SymbolTableCollection &symbols) {
  auto param =
      symbols.lookupNearestSymbolFrom<ParamOp>(read, read.getParamAttr());
  return param && !param.getStorage().empty()
             ? Attribute(param.getStorageAttr())
             : Attribute(read.getParamAttr());
}

/// Import takes arguments for tensors that may be those of the module which are
/// written. Where all that is written are tensors of the module, arguments are
/// taken not to be (docs/user/Training.md): what touches neither these nor a
/// view of them need keep no order with the writes.
void koila::releaseReaders(FunctionOpInterface function) {
  DimAnalysis dims(function);
  StorageAnalysis storages(function, dims);
  SymbolTableCollection symbols;
  llvm::DenseSet<Attribute> written;
  llvm::DenseSet<const Storage *> touched;
  bool isKnown = true;
  auto note = [&](Value value) {
    // What a write gives is what it has written.
    while (Operation *op = value.getDefiningOp())
      if (isOrderedWrite(op))
        value = op->getOperand(0);
      else
        break;
    if (auto read = value.getDefiningOp<ParamGetOp>()) {
      written.insert(getIdentity(read, symbols));
      return;
    }
    // Of the program's own nothing else has the memory.
    const Storage *entry = storages.lookup(value);
    isKnown &= entry && !entry->external;
    touched.insert(entry);
  };
  function->walk([&](Operation *op) {
    if (isOrderedWrite(op))
      note(op->getOperand(0));
    for (OpOperand *updated : getUpdates(op))
      note(updated->get());
  });
  if (!isKnown)
    return;
  function->walk([&](ParamGetOp read) {
    if (written.contains(getIdentity(read, symbols)))
      touched.insert(storages.lookup(read.getResult()));
  });
  auto isApart = [&](Value value) {
    if (!isa<TensorType>(value.getType()))
      return !isMutable(value.getType());
    const Storage *entry = storages.lookup(value);
    return entry && !touched.contains(entry);
  };
  function->walk([&](Operation *op) {
    SmallVector<OpOperand *> updates = getUpdates(op);
    auto isReleased = [&](OpOperand &operand) {
      return isApart(operand.get()) || llvm::is_contained(updates, &operand);
    };
    // What an attribute holds is no operand.
    bool readsAttribute = accessesModuleState(op) ||
                          (isa<TorchOpaqueOp>(op) && op->getNumOperands() == 0);
    if (op->hasAttr(KoilaDialect::kReadsAttr) && !readsAttribute &&
        llvm::all_of(op->getOpOperands(), isReleased) &&
        llvm::all_of(op->getResults(), isApart))
      op->removeAttr(KoilaDialect::kReadsAttr);
  });
}

void koila::markStatistics(FunctionOpInterface function) {
  bool isAny = false;
  function->walk([&](BatchStatisticsInterface op) {
    if (!op.usesBatchStatistics())
      return;
    op->setAttr(KoilaDialect::kPerTileAttr, UnitAttr::get(op->getContext()));
    isAny = true;
  });
  if (isAny)
    releaseReaders(function);
}

void PhasePlan::collectParamUses() {
  function->walk([&](ParamGetOp read) {
    paramUses[getIdentity(read, symbols)] += llvm::range_size(read->getUses());
  });
}

bool PhasePlan::mayUpdateInTiles(Operation &op) const {
  return hasOwnStatistics(&op) && !isOrdered(&op) &&
         llvm::all_of(getUpdates(&op), [&](OpOperand *updated) {
           auto read = updated->get().getDefiningOp<ParamGetOp>();
           return read && paramUses.lookup(getIdentity(read, symbols)) == 1;
         });
}

void koila::reportStatistics(const PhasePlan &plan) {
  SmallVector<Operation *> found = plan.getStatistics();
  if (found.empty())
    return;
  InFlightDiagnostic warning = found.front()->emitWarning();
  warning << "statistics differ: '" << getCallee(*found.front()) << "'"
          << describePlace(found.front());
  if (found.size() > 1)
    warning << " and " << found.size() - 1 << " more normalise";
  else
    warning << " normalises";
  warning << " each tile by itself; results are not those of the untiled "
             "program, and running statistics are updated once a tile";
}
