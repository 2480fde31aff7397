//===- KernelLibrary.cpp - What kernels allocate, by target ---------------===//

#include "koila/Dialect/Koila/IR/Koila.h"
#include "koila/KernelModels/KernelModel.h"
#include "llvm/ADT/StringExtras.h"

using namespace mlir;
using namespace koila;

/// Puts the members of `model` where `row` has none; false if both have one.
static bool complete(KernelModel &row, const KernelModel &model) {
  bool isTwice = (row.forward && model.forward) || (row.saved && model.saved) ||
                 (row.backward && model.backward);
  if (!row.forward)
    row.forward = model.forward;
  if (!row.saved)
    row.saved = model.saved;
  if (!row.backward)
    row.backward = model.backward;
  return !isTwice;
}

void KernelLibrary::insert(TypeID id, StringRef operation,
                           const KernelModel &model) {
  if (!complete(models[id], model))
    llvm::report_fatal_error("two kernel models of '" + operation + "' in '" +
                             name + "'");
}

KernelModel KernelLibrary::find(TypeID id) const {
  return {findMember<&KernelModel::forward>(id),
          findMember<&KernelModel::saved>(id),
          findMember<&KernelModel::backward>(id)};
}

SmallVector<StringRef>
KernelLibrary::findMissing(ArrayRef<RegisteredOperationName> operations) const {
  SmallVector<StringRef> missing;
  for (RegisteredOperationName operation : operations)
    if (operation.hasInterface<TorchOperatorInterface>() &&
        !operation.hasInterface<AllocationInterface>() &&
        !find(operation.getTypeID()).forward)
      missing.push_back(operation.getStringRef());
  llvm::sort(missing);
  return missing;
}

/// Of no operation that is registered for one that is not.
static TypeID getID(Operation *op) { return op->getName().getTypeID(); }

/// That nothing is known of `op`.
static std::string getMissing(const KernelLibrary &library, Operation *op) {
  return ("no kernel model of '" + op->getName().getStringRef() + "' on '" +
          library.getName() + "'")
      .str();
}

void KernelLibrary::describeForward(WorkspaceRule &rule) const {
  Operation *op = rule.getOp();
  if (auto forward = findMember<&KernelModel::forward>(getID(op)))
    forward(rule);
  else if (auto own = dyn_cast<AllocationInterface>(op))
    own.describeWorkspace(rule);
  else
    rule.setInexact(getMissing(*this, op));
}

void KernelLibrary::describeSaved(SavedRule &rule) const {
  Operation *op = rule.getOp();
  if (auto saved = findMember<&KernelModel::saved>(getID(op)))
    saved(rule);
  else if (auto own = dyn_cast<AllocationInterface>(op))
    own.describeSaved(rule);
  else
    detail::describeSaved(rule);
}

void KernelLibrary::describeBackward(BackwardRule &rule) const {
  Operation *op = rule.getOp();
  if (auto backward = findMember<&KernelModel::backward>(getID(op)))
    backward(rule);
  else if (auto own = dyn_cast<AllocationInterface>(op))
    own.describeBackward(rule);
  else
    rule.setInexact(getMissing(*this, op) + " for its backward pass");
}

//===----------------------------------------------------------------------===//
// Libraries
//===----------------------------------------------------------------------===//

KernelLibrary *KernelLibraries::add(StringRef target,
                                    const KernelLibrary *base) {
  std::unique_ptr<KernelLibrary> &library = libraries[target];
  if (library)
    return nullptr;
  library = std::make_unique<KernelLibrary>(target, base);
  return library.get();
}

KernelLibrary *KernelLibraries::addBase(StringRef name) {
  KernelLibrary *base = add(name);
  if (base)
    bases.insert(name);
  return base;
}

const KernelLibrary *KernelLibraries::lookup(StringRef target) const {
  auto found = libraries.find(target);
  return found == libraries.end() ? nullptr : found->second.get();
}

SmallVector<StringRef> KernelLibraries::getTargets() const {
  SmallVector<StringRef> targets;
  for (const auto &entry : libraries)
    if (!bases.contains(entry.getKey()))
      targets.push_back(entry.getKey());
  llvm::sort(targets);
  return targets;
}

KernelLibraries &KernelLibraries::getOrAdd(Dialect &dialect) {
  auto *all = dialect.getRegisteredInterface<KernelLibraries>();
  return all ? *all : dialect.addInterface<KernelLibraries>();
}

const KernelLibrary *KernelLibraries::find(StringRef target, Operation *where) {
  Dialect *dialect = where->getContext()->getOrLoadDialect<KoilaDialect>();
  auto *all = dialect->getRegisteredInterface<KernelLibraries>();
  if (!all) {
    // Operations that all tell themselves what they allocate need none.
    static const KernelLibrary none("any target", nullptr);
    auto needsModel = [](Operation *op) {
      return isa<TorchOperatorInterface>(op) && !isa<AllocationInterface>(op)
                 ? WalkResult::interrupt()
                 : WalkResult::advance();
    };
    if (!where->walk(needsModel).wasInterrupted())
      return &none;
    where->emitError() << "no kernel models are registered; a tool calls "
                          "koila::registerAllExtensions(registry)";
    return nullptr;
  }
  SmallVector<StringRef> targets = all->getTargets();
  if (llvm::is_contained(targets, target))
    return all->lookup(target);
  // A card has the models of its target.
  auto isCard = [&](StringRef name) { return all->lookup(name)->isEmpty(); };
  auto *firstCard =
      std::stable_partition(targets.begin(), targets.end(),
                            [&](StringRef name) { return !isCard(name); });
  InFlightDiagnostic error = where->emitError();
  error << "no kernel models are registered for device=" << target
        << "; there are those of "
        << llvm::join(targets.begin(), firstCard, ", ");
  if (firstCard != targets.end())
    error << ", and of the cards "
          << llvm::join(firstCard, targets.end(), ", ");
  return nullptr;
}
