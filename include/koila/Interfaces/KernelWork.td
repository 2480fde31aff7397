//===- KernelWork.td - Work of kernels ---------------------*- tablegen -*-===//

#ifndef KOILA_INTERFACES_KERNELWORK_TD
#define KOILA_INTERFACES_KERNELWORK_TD

include "mlir/IR/OpBase.td"

def Koila_KernelWorkInterface : OpInterface<"KernelWorkInterface"> {
  let cppNamespace = "::koila";
  let description = [{
    An operation whose time is that of its arithmetic, and not only of the bytes
    that it reads and writes. Plans go by it; it promises nothing.
  }];
  let methods = [
    InterfaceMethod<[{
      How many operations one run does, in kernels of which family.
      `getShape` gives the extents of a tensor, none of one of unknown rank.
    }], "::koila::KernelWork", "describeWork",
    (ins "::koila::GetShape":$getShape)>
  ];
}

#endif // KOILA_INTERFACES_KERNELWORK_TD
