//===- CallSetting.cpp - What a program asks of its surroundings ----------===//

#include "CallSetting.h"
#include "koila/Dialect/Koila/IR/Koila.h"
#include "koila/Dialect/Koila/IR/ViewOps.h"
#include "mlir/IR/Builders.h"
#include "llvm/ADT/StringSwitch.h"

using namespace mlir;
using namespace koila;

/// The device that a literal names; empty for others.
static StringRef getDevice(Attribute literal) {
  auto dictionary = dyn_cast_or_null<DictionaryAttr>(literal);
  auto device =
      dictionary ? dictionary.getAs<StringAttr>("device") : StringAttr();
  return device ? device.getValue().split(':').first : StringRef();
}

bool koila::setsRecording(Operation *op) {
  auto opaque = dyn_cast<TorchOpaqueOp>(op);
  return opaque && opaque.getCallee() == "aten::set_grad_enabled" &&
         opaque.getArguments().size() == 1;
}

bool koila::delimitsNoGrad(Operation *op) {
  auto opaque = dyn_cast<TorchOpaqueOp>(op);
  if (!opaque || op->getNumOperands() == 0 ||
      (opaque.getCallee() != "prim::Enter" &&
       opaque.getCallee() != "prim::Exit"))
    return false;
  auto type = dyn_cast<TorchType>(op->getOperand(0).getType());
  return type &&
         type.getSpelling() == "__torch__.torch.autograd.grad_mode.no_grad";
}

Attribute koila::getSettingAnswer(Operation *op, const CallSetting &setting,
                                  function_ref<ValueInfo(Value)> lookup) {
  Builder builder(op->getContext());
  // Which one it is of several, nobody has said.
  if (isa<DeviceOp>(op))
    return setting.device == "cpu"
               ? builder.getDictionaryAttr(builder.getNamedAttr(
                     "device", builder.getStringAttr("cpu")))
               : Attribute();
  auto opaque = dyn_cast<TorchOpaqueOp>(op);
  if (!opaque || op->getNumResults() != 1)
    return {};
  if (op->getNumOperands() == 0)
    return llvm::StringSwitch<Attribute>(opaque.getCallee())
        .Case("aten::is_grad_enabled",
              setting.recordsGradients
                  ? builder.getBoolAttr(*setting.recordsGradients)
                  : BoolAttr())
        .Case("aten::is_autocast_enabled", builder.getBoolAttr(false))
        .Case("aten::is_autocast_cpu_enabled", builder.getBoolAttr(false))
        .Default({});
  ValueInfo info = lookup(op->getOperand(0));
  if (StringRef device = getDevice(info.literal);
      !device.empty() && opaque.getCallee() == "prim::type")
    return builder.getStringAttr(device);
  // Arguments are dense tensors, as their types say. What has no shape may be
  // nested or sparse.
  if (!info.tensor || !info.tensor->hasRank())
    return {};
  return llvm::StringSwitch<Attribute>(opaque.getCallee())
      .Cases({"prim::is_nested", "prim::is_sparse", "prim::is_sparse_csr",
              "prim::is_quantized", "prim::is_mkldnn"},
             builder.getBoolAttr(false))
      .Cases({"prim::is_cpu", "prim::is_cuda", "prim::is_xpu", "prim::is_mps",
              "prim::is_vulkan", "prim::is_ipu", "prim::is_meta"},
             builder.getBoolAttr(
                 opaque.getCallee().ends_with(("is_" + setting.device).str())))
      .Default({});
}
