//===- EmitBuiltin.cpp - arith and tensor as TorchScript ------------------===//
//
// What tiling makes: arithmetic on extents, buffers and slices. A
// buffer is written in place, so `tensor.insert_slice` is a view of it and a
// copy into that view, and its result is the buffer.
//
//===----------------------------------------------------------------------===//

#include "../Boundary/DiagnosticJSON.h"
#include "../Import/ProgramDevice.h"
#include "Emit.h"
#include "koila/Analysis/HostResults.h"
#include "koila/Target/TorchScript/Types.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Tensor/IR/Tensor.h"
#include "mlir/Dialect/Utils/StaticValueUtils.h"
#include "llvm/ADT/TypeSwitch.h"

using namespace mlir;
using namespace koila;
using namespace koila::torchscript;
namespace tj = torch::jit;
namespace prim = c10::prim;
namespace aten = c10::aten;
using llvm::Twine;

tj::Value *GraphEmitter::ofr(OpFoldResult value, Operation *op) {
  if (auto constant = getConstantIntValue(value))
    return integer(*constant);
  return lookup(cast<Value>(value), op);
}

static const char *getComparison(arith::CmpIPredicate predicate) {
  switch (predicate) {
  case arith::CmpIPredicate::eq:
    return "aten::eq";
  case arith::CmpIPredicate::ne:
    return "aten::ne";
  case arith::CmpIPredicate::slt:
    return "aten::lt";
  case arith::CmpIPredicate::sle:
    return "aten::le";
  case arith::CmpIPredicate::sgt:
    return "aten::gt";
  case arith::CmpIPredicate::sge:
    return "aten::ge";
  default:
    return nullptr;
  }
}

bool GraphEmitter::emitArith(Operation *op) {
  if (auto constantOp = dyn_cast<arith::ConstantOp>(op)) {
    if (!isa<IntegerAttr, FloatAttr>(constantOp.getValue()))
      return false;
    values[constantOp.getResult()] =
        fromAttr(constantOp.getValue(), nullptr, op, {});
    return true;
  }
  if (isa<arith::IndexCastOp>(op)) {
    values[op->getResult(0)] = lookup(op->getOperand(0), op);
    return true;
  }
  if (auto select = dyn_cast<arith::SelectOp>(op)) {
    Node *node = insert(op, prim::If, {lookup(select.getCondition(), op)}, 1);
    for (Value value : {select.getTrueValue(), select.getFalseValue()})
      node->addBlock()->registerOutput(lookup(value, op));
    node->output()->setType(
        getResultType(op, 0, node->blocks()[0]->outputs()[0]));
    values[select.getResult()] = node->output();
    return true;
  }
  if (!op->getResults().empty() && op->getResultTypes()[0].isInteger(1) &&
      isa<arith::AndIOp, arith::OrIOp, arith::XOrIOp>(op)) {
    const char *logic = isa<arith::AndIOp>(op)  ? "aten::__and__"
                        : isa<arith::OrIOp>(op) ? "aten::__or__"
                                                : "aten::__xor__";
    values[op->getResult(0)] = call(
        logic, {lookup(op->getOperand(0), op), lookup(op->getOperand(1), op)});
    return true;
  }
  const char *name =
      llvm::TypeSwitch<Operation *, const char *>(op)
          .Case([](arith::AddIOp) { return "aten::add"; })
          .Case([](arith::SubIOp) { return "aten::sub"; })
          .Case([](arith::MulIOp) { return "aten::mul"; })
          .Case([](arith::FloorDivSIOp) { return "aten::floordiv"; })
          .Case([](arith::MinSIOp) { return "prim::min"; })
          .Case([](arith::MaxSIOp) { return "prim::max"; })
          .Case([](arith::CmpIOp cmp) {
            return getComparison(cmp.getPredicate());
          })
          .Default([](Operation *) { return nullptr; });
  if (!name)
    return false;
  values[op->getResult(0)] = call(
      name, {lookup(op->getOperand(0), op), lookup(op->getOperand(1), op)});
  return true;
}

/// The part of `tensor` that a slice operation names, as views. A dim taken
/// whole needs no view.
tj::Value *GraphEmitter::slice(TorchValue *tensor, Operation *op, Type fullType,
                               Type sliceType) {
  auto range = cast<OffsetSizeAndStrideOpInterface>(op);
  auto full = cast<RankedTensorType>(fullType);
  if (full.getRank() != cast<RankedTensorType>(sliceType).getRank())
    refuse(op->getLoc(), "a slice that drops dims cannot be written as "
                         "TorchScript");
  for (int64_t dim = 0; dim < full.getRank(); ++dim) {
    OpFoldResult offset = range.getMixedOffsets()[dim];
    OpFoldResult size = range.getMixedSizes()[dim];
    if (getConstantIntValue(range.getMixedStrides()[dim]) != 1)
      refuse(op->getLoc(), "a slice with steps cannot be written as "
                           "TorchScript");
    if (getConstantIntValue(offset) == 0) {
      auto constantSize = getConstantIntValue(size);
      if (constantSize && *constantSize == full.getDimSize(dim))
        continue;
      if (auto value = dyn_cast<Value>(size)) {
        auto extent = value.getDefiningOp<tensor::DimOp>();
        Value whole = isa<tensor::ExtractSliceOp>(op)
                          ? op->getOperand(0)
                          : cast<tensor::InsertSliceOp>(op).getDest();
        if (extent && extent.getSource() == whole &&
            extent.getConstantIndex() == dim)
          continue;
      }
    }
    TorchValue *start = ofr(offset, op);
    TorchValue *end = getConstantIntValue(offset) == 0
                          ? ofr(size, op)
                          : call("aten::add", {start, ofr(size, op)});
    Node *node = insert(op, aten::slice,
                        {tensor, integer(dim), start, end, integer(1)}, 1);
    tensor = node->output();
    tensor->setType(c10::TensorType::get());
    checkOverload(node, op, "aten::slice.Tensor");
  }
  return tensor;
}

/// None: where the arguments are.
GraphEmitter::TorchValue *GraphEmitter::getDeviceOfBuffer(Operation *empty) {
  const auto *own = empty->getContext()
                        ->getLoadedDialect<KoilaDialect>()
                        ->getRegisteredInterface<ProgramDevice>();
  if (!own || !own->fromHost)
    return constant(c10::IValue());
  return constant(isHostResult(empty) ? c10::Device(c10::kCPU) : own->device);
}

bool GraphEmitter::emitTensor(Operation *op) {
  if (auto dim = dyn_cast<tensor::DimOp>(op)) {
    TorchValue *index = lookup(dim.getIndex(), op);
    values[dim.getResult()] =
        call("aten::size", {lookup(dim.getSource(), op), index});
    return true;
  }
  if (auto cast = dyn_cast<tensor::CastOp>(op)) {
    values[cast.getResult()] = lookup(cast.getSource(), op);
    return true;
  }
  if (auto empty = dyn_cast<tensor::EmptyOp>(op)) {
    std::optional<int64_t> code =
        getScalarTypeCode(empty.getType().getElementType());
    if (!code || !deviceOf)
      refuse(op->getLoc(), "a buffer needs an element type that PyTorch has, "
                           "and a tensor argument to take the device from");
    llvm::SmallVector<TorchValue *> sizes;
    for (OpFoldResult size : empty.getMixedSizes())
      sizes.push_back(ofr(size, op));
    TorchValue *none = constant(c10::IValue());
    Node *node = insert(op, aten::new_empty,
                        {deviceOf, list(sizes, c10::IntType::get()),
                         integer(*code), none, getDeviceOfBuffer(op), none},
                        1);
    node->output()->setType(c10::TensorType::get());
    checkOverload(node, op, "aten::new_empty");
    values[empty.getResult()] = node->output();
    return true;
  }
  if (auto extract = dyn_cast<tensor::ExtractSliceOp>(op)) {
    values[extract.getResult()] =
        slice(lookup(extract.getSource(), op), op, extract.getSourceType(),
              extract.getType());
    return true;
  }
  if (auto insertOp = dyn_cast<tensor::InsertSliceOp>(op)) {
    TorchValue *buffer = lookup(insertOp.getDest(), op);
    if (copied.contains(op)) {
      Node *clone =
          insert(op, aten::clone, {buffer, constant(c10::IValue())}, 1);
      clone->output()->setType(c10::TensorType::get());
      checkOverload(clone, op, "aten::clone");
      buffer = clone->output();
    }
    TorchValue *view =
        slice(buffer, op, insertOp.getDestType(), insertOp.getSourceType());
    Node *copy =
        insert(op, aten::copy_,
               {view, lookup(insertOp.getSource(), op), constant(false)}, 1);
    copy->output()->setType(c10::TensorType::get());
    // The buffer is written; its value from here on is the result.
    values[insertOp.getResult()] = buffer;
    return true;
  }
  return false;
}
