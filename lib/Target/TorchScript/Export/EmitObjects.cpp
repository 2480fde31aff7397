//===- EmitObjects.cpp - Attributes and methods as TorchScript ------------===//

#include "../Boundary/DiagnosticJSON.h"
#include "Emit.h"
#include "koila/Dialect/Koila/IR/ObjectOps.h"
#include "koila/Target/TorchScript/Types.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace koila;
using namespace koila::torchscript;
namespace tj = torch::jit;
namespace prim = c10::prim;
using llvm::Twine;

std::pair<tj::Value *, std::string>
GraphEmitter::emitOwner(Operation *op, llvm::StringRef path, Value object) {
  TorchValue *owner = object ? lookup(object, op) : self;
  llvm::SmallVector<llvm::StringRef> names;
  path.split(names, '.');
  for (auto [index, name] : llvm::enumerate(names)) {
    auto type = owner->type()->cast<c10::ClassType>();
    if (!type || !type->findAttribute(name.str()))
      refuse(op->getLoc(), Twine("'") + op->getName().getStringRef() + "': '" +
                               getTypeName(owner->type()) +
                               "' has no attribute '" + name + "'");
    if (index + 1 < names.size())
      owner = graph.insertGetAttr(owner, name.str());
  }
  return {owner, names.back().str()};
}

bool GraphEmitter::emitObject(Operation *op) {
  return llvm::TypeSwitch<Operation *, bool>(op)
      .Case([&](AttrGetOp get) {
        if (get.getPath().empty()) {
          values[get.getResult()] = self;
          return true;
        }
        auto [owner, name] = emitOwner(op, get.getPath(), get.getObject());
        values[get.getResult()] = graph.insertGetAttr(owner, name);
        return true;
      })
      .Case([&](AttrSetOp set) {
        auto [owner, name] = emitOwner(op, set.getPath(), set.getObject());
        insert(op, prim::SetAttr, {owner, lookup(set.getValue(), op)}, 0)
            ->s_(c10::attr::name, name);
        return true;
      })
      .Case([&](CallMethodOp call) {
        llvm::SmallVector<TorchValue *> inputs;
        for (Value operand : call->getOperands())
          inputs.push_back(lookup(operand, op));
        Node *from = getOriginal(op);
        if (from && from->kind() != prim::CallMethod)
          from = nullptr;
        c10::TypePtr type =
            from ? from->output()->type() : getType(call.getType());
        if (!type)
          refuse(op->getLoc(), Twine("the type of the result of method '") +
                                   call.getMethod() +
                                   "' is known in its own archive only");
        Node *node = insert(op, prim::CallMethod, inputs, 1);
        node->s_(c10::attr::name, call.getMethod().str());
        node->output()->setType(type);
        values[call.getResult()] = node->output();
        return true;
      })
      .Default(false);
}
