//===- KernelModel.h - What kernels allocate, by target ---------*- C++ -*-===//
//
// Which bytes the kernels of an operation allocate depends on what it runs on.
// A target has a library of models, one for each operation, which may build on
// the library of another target: formulas of ATen that hold on every device are
// in `aten`, on which `cpu` is built. Libraries are registered with a dialect
// registry (Registration.h), and found by the name of the target.
//
//===----------------------------------------------------------------------===//

#ifndef KOILA_KERNELMODELS_KERNELMODEL_H
#define KOILA_KERNELMODELS_KERNELMODEL_H

#include "koila/Interfaces/BackwardRule.h"
#include "koila/KernelModels/DeviceProfile.h"
#include "koila/KernelModels/LeafKernels.h"
#include "mlir/IR/DialectInterface.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/StringMap.h"
#include "llvm/ADT/StringSet.h"
#include <memory>
#include <string>

namespace koila {

/// What the kernels of an operation allocate. A null member is not known;
/// without `saved` autograd keeps the tensors that DifferentiationInterface
/// names.
struct KernelModel {
  /// The call itself.
  void (*forward)(WorkspaceRule &) = nullptr;
  /// What it keeps for the gradient; `forward` has been asked before.
  void (*saved)(SavedRule &) = nullptr;
  /// The backward pass.
  void (*backward)(BackwardRule &) = nullptr;
};

/// The models of one target.
class KernelLibrary {
public:
  KernelLibrary(llvm::StringRef name, const KernelLibrary *base)
      : name(name), base(base) {}

  llvm::StringRef getName() const { return name; }
  const KernelLibrary *getBase() const { return base; }
  /// Whether it has no models but those of its base: the same kernels on a
  /// device of its own.
  bool isEmpty() const { return models.empty(); }

  /// Rows of one operation are joined; a member that is given twice is an error
  /// of the program. Members that are null are those of the base.
  template <typename... OpTs>
  void add(const KernelModel &model) {
    (insert(mlir::TypeID::get<OpTs>(), OpTs::getOperationName(), model), ...);
  }
  void insert(mlir::TypeID id, llvm::StringRef operation,
              const KernelModel &model);

  /// The row of an operation, completed by those of the bases; empty if there
  /// is none.
  KernelModel find(mlir::TypeID id) const;

  /// Those of `operations` that are operators of PyTorch, and of which neither
  /// the library nor the operation itself says what they allocate, by name.
  llvm::SmallVector<llvm::StringRef>
  findMissing(llvm::ArrayRef<mlir::RegisteredOperationName> operations) const;

  /// The kernels that formulas and the autograd engine call without an
  /// operation: the own ones or those of the base; null if there are none.
  const LeafKernels *getLeaves() const {
    return leaves || !base ? leaves.get() : base->getLeaves();
  }
  void setLeaves(std::unique_ptr<LeafKernels> kernels) {
    leaves = std::move(kernels);
  }
  /// What was measured on one device; null where nothing has to be.
  const DeviceProfile *getProfile() const {
    return profile || !base ? profile.get() : base->getProfile();
  }
  void setProfile(std::unique_ptr<DeviceProfile> measured) {
    profile = std::move(measured);
  }

  // The figures of an operation: its row here, else what it says itself on all
  // targets alike (AllocationInterface), else `Unknown`, with the target's
  // name.
  void describeForward(WorkspaceRule &rule) const;
  void describeSaved(SavedRule &rule) const;
  void describeBackward(BackwardRule &rule) const;

private:
  /// The first member of that kind of the rows of an operation; null if none
  /// has one.
  template <auto Member>
  auto findMember(mlir::TypeID id) const
      -> std::remove_reference_t<decltype(KernelModel().*Member)> {
    for (const KernelLibrary *library = this; library; library = library->base)
      if (auto found = library->models.find(id);
          found != library->models.end() && found->second.*Member)
        return found->second.*Member;
    return nullptr;
  }

  std::string name;
  const KernelLibrary *base;
  llvm::DenseMap<mlir::TypeID, KernelModel> models;
  std::unique_ptr<LeafKernels> leaves;
  std::unique_ptr<DeviceProfile> profile;
};

/// The libraries of a context, by target; owned by koila's dialect.
class KernelLibraries : public mlir::DialectInterface::Base<KernelLibraries> {
public:
  KernelLibraries(mlir::Dialect *dialect) : Base(dialect) {}

  /// A new library, to which the caller adds rows; null if the target has one,
  /// since a registry may be applied to a context more than once. `base` is of
  /// these libraries as well.
  KernelLibrary *add(llvm::StringRef target,
                     const KernelLibrary *base = nullptr);
  /// A library on which targets are built, and which is none.
  KernelLibrary *addBase(llvm::StringRef name);
  const KernelLibrary *lookup(llvm::StringRef target) const;
  /// In the order of their names.
  llvm::SmallVector<llvm::StringRef> getTargets() const;

  /// Those of koila's dialect in `context`; made if there are none.
  static KernelLibraries &getOrAdd(mlir::Dialect &dialect);
  /// Null, after an error at `where` that says which ones there are, if none is
  /// registered for `target`. Where there are none at all, an empty one if each
  /// operation in `where` says itself what it allocates.
  static const KernelLibrary *find(llvm::StringRef target,
                                   mlir::Operation *where);

  MLIR_DEFINE_EXPLICIT_INTERNAL_INLINE_TYPE_ID(KernelLibraries)

private:
  llvm::StringMap<std::unique_ptr<KernelLibrary>> libraries;
  llvm::StringSet<> bases;
};

} // namespace koila

#endif // KOILA_KERNELMODELS_KERNELMODEL_H
