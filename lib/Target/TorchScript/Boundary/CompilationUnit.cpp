//===- CompilationUnit.cpp - Copies of modules that are freed with them ---===//

#include "CompilationUnit.h"
#include <set>
#include <torch/csrc/jit/api/compilation_unit.h>

using namespace koila;
namespace tj = torch::jit;

namespace {
/// A unit whose functions may call those of others, which it keeps: pointers to
/// functions own nothing.
struct OwnUnit {
  std::set<std::shared_ptr<tj::CompilationUnit>> origins;
  tj::CompilationUnit unit;
};
} // namespace

/// The same tensors and types under objects that belong to `own`.
static c10::intrusive_ptr<c10::ivalue::Object>
moveObjects(const c10::intrusive_ptr<c10::ivalue::Object> &object,
            const std::shared_ptr<OwnUnit> &own) {
  own->origins.insert(object->compilation_unit());
  std::shared_ptr<tj::CompilationUnit> unit(own, &own->unit);
  size_t size = object->type()->numAttributes();
  auto moved = c10::ivalue::Object::create(
      c10::StrongTypePtr(unit, object->type()), size);
  for (size_t index = 0; index < size; ++index) {
    c10::IValue value = object->getSlot(index);
    if (object->type()->getAttribute(index)->is_module())
      value = moveObjects(value.toObject(), own);
    moved->setSlot(index, std::move(value));
  }
  return moved;
}

tj::Module torchscript::cloneIntoOwnUnit(const tj::Module &module) {
  auto own = std::make_shared<OwnUnit>();
  // A clone's types are made in the unit of the object.
  return tj::Module(moveObjects(module._ivalue(), own)).clone(/*inplace=*/true);
}
