//===- RandomOp.td - Operations that draw random numbers ------*- tablegen -*-===//

#ifndef KOILA_INTERFACES_RANDOMOP_TD
#define KOILA_INTERFACES_RANDOMOP_TD

include "mlir/IR/OpBase.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

def Koila_RandomOpInterface : OpInterface<"RandomOpInterface"> {
  let cppNamespace = "::koila";
  let description = [{
    An operation that draws random numbers and reads no values of tensors for
    it: the shape of its first operand is enough, so that it can draw before
    that tensor is there. What draws by values (multinomial) has the effect on
    the generator alone.
  }];
  let methods = [
    InterfaceMethod<[{
      False if with these attributes it draws nothing, or cannot be given as a
      draw into new storage.
    }], "bool", "drawsByShape", (ins), [{}],
    [{ return $_op->getNumOperands() == 1 && !::koila::isOrdered($_op); }]>,
    InterfaceMethod<[{
      The tensor that is filled with draws. Each of its extents is one, or that
      of the first operand.
    }], "::koila::TensorInfo", "getDrawn",
    (ins "const ::koila::TensorInfo &":$self,
         "const ::koila::TensorInfo &":$result), [{}],
    [{ (void)self; return result; }]>,
    InterfaceMethod<[{
      Fills `storage`, a new tensor as `getDrawn` says, with exactly the draws
      that PyTorch makes. Returns what stands for the result.
    }], "::mlir::Value", "drawInto",
    (ins "::mlir::OpBuilder &":$builder, "::mlir::Value":$storage)>
  ];
}

/// Draws if the member `draws()` says so; else effects are those of
/// MutableStorageEffects.
def Koila_ConditionalRNGEffects : NativeOpTrait<"ConditionalRNGEffects"> { let cppNamespace = "::koila"; }
defvar Koila_DrawsSometimes = [MemoryEffectsOpInterface,
                               ConditionallySpeculatable, Koila_ConditionalRNGEffects,
                               Koila_RandomOpInterface];

#endif // KOILA_INTERFACES_RANDOMOP_TD
