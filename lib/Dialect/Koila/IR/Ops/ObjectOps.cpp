//===- ObjectOps.cpp - Attributes and methods of objects ------------------===//

#include "koila/Dialect/Koila/IR/ObjectOps.h"

using namespace mlir;
using namespace koila;

#define GET_OP_CLASSES
#include "koila/Dialect/Koila/IR/ObjectOps.cpp.inc"

void KoilaDialect::registerObjectOps() {
  addOperations<
#define GET_OP_LIST
#include "koila/Dialect/Koila/IR/ObjectOps.cpp.inc"
      >();
}

//===----------------------------------------------------------------------===//
// Effects
//===----------------------------------------------------------------------===//

/// Whether `op` has an effect of type `EffectT`, or of one of several, on
/// attributes.
template <typename... EffectT>
static bool affectsModuleState(Operation *op) {
  SmallVector<MemoryEffects::EffectInstance> effects;
  if (auto interface = dyn_cast<MemoryEffectOpInterface>(op))
    interface.getEffects(effects);
  return llvm::any_of(effects, [](const MemoryEffects::EffectInstance &effect) {
    return isa<EffectT...>(effect.getEffect()) &&
           effect.getResource() == ModuleStateResource::get();
  });
}

bool koila::accessesModuleState(Operation *op) {
  return affectsModuleState<MemoryEffects::Read, MemoryEffects::Write>(op);
}

bool koila::mayWriteModuleState(Operation *op) {
  return affectsModuleState<MemoryEffects::Write>(op);
}

void koila::detail::addUnknownEffects(EffectList &effects) {
  for (auto *resource : std::initializer_list<SideEffects::Resource *>{
           OpaqueResource::get(), SideEffects::DefaultResource::get(),
           ModuleStateResource::get(), RandomResource::get()}) {
    effects.emplace_back(MemoryEffects::Read::get(), resource);
    effects.emplace_back(MemoryEffects::Write::get(), resource);
  }
}

//===----------------------------------------------------------------------===//
// Attributes
//===----------------------------------------------------------------------===//

/// Of an object a path is one name: what it leads to is an object of its own.
static LogicalResult verifyPath(Operation *op, StringRef path, Value object) {
  SmallVector<StringRef> names;
  path.split(names, '.');
  if (llvm::is_contained(names, ""))
    return op->emitOpError() << "'" << path << "' is no path of names";
  if (object && names.size() > 1)
    return op->emitOpError()
           << "'" << path << "' is no name of one attribute of an object";
  return success();
}

LogicalResult AttrGetOp::verify() {
  if (getPath().empty() && !getObject())
    return success();
  return verifyPath(*this, getPath(), getObject());
}

LogicalResult AttrGetOp::inferShapes(ShapeRule &) { return success(); }

void AttrGetOp::getEffects(
    SmallVectorImpl<SideEffects::EffectInstance<MemoryEffects::Effect>>
        &effects) {
  koila::detail::addOrderedEffects(*this, effects);
  if (isOrdered(*this))
    effects.emplace_back(MemoryEffects::Read::get(),
                         ModuleStateResource::get());
}

LogicalResult AttrSetOp::verify() {
  return verifyPath(*this, getPath(), getObject());
}

void AttrSetOp::getEffects(
    SmallVectorImpl<SideEffects::EffectInstance<MemoryEffects::Effect>>
        &effects) {
  koila::detail::addOrderedEffects(*this, effects);
  effects.emplace_back(MemoryEffects::Write::get(), ModuleStateResource::get());
}

//===----------------------------------------------------------------------===//
// Methods
//===----------------------------------------------------------------------===//

LogicalResult CallMethodOp::verify() {
  if (getMethod().empty() || getMethod().contains('.'))
    return emitOpError() << "'" << getMethod() << "' is no name of a method";
  return success();
}

LogicalResult CallMethodOp::inferShapes(ShapeRule &) { return success(); }

void CallMethodOp::inferBatch(BatchRule &rule) {
  rule.mix("koila does not know how the method '" + getMethod() +
           "' treats samples");
}

void CallMethodOp::getEffects(
    SmallVectorImpl<SideEffects::EffectInstance<MemoryEffects::Effect>>
        &effects) {
  koila::detail::addOrderedEffects(*this, effects);
  koila::detail::addUnknownEffects(effects);
}
