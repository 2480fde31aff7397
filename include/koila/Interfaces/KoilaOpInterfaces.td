//===- KoilaOpInterfaces.td - The questions passes ask ops -*- tablegen -*-===//
//
// Interfaces instead of traits, so that operations of other dialects can
// answer the same questions through external models.
//
//===----------------------------------------------------------------------===//

#ifndef KOILA_INTERFACES_KOILAOPINTERFACES_TD
#define KOILA_INTERFACES_KOILAOPINTERFACES_TD

include "mlir/IR/OpBase.td"

def Koila_TorchOperatorInterface : OpInterface<"TorchOperatorInterface"> {
  let cppNamespace = "::koila";
  let description = [{
    An operation with an ATen operator behind it. Import and emission build
    and print the operator from its schema alone: every schema argument is an
    operand or an attribute of the same name. Of a list of optional tensors
    the given ones are operands, and an attribute `<name>_mask` says where they
    stand. A list of tensors that the operator returns is as many results.
  }];
  let methods = [
    StaticInterfaceMethod<[{
      The exact ATen schema, for example
      `aten::relu(Tensor self) -> Tensor`.
    }], "::llvm::StringRef", "getTorchSchema">,
    StaticInterfaceMethod<[{
      The schema of the in-place twin, empty if there is none. A twin writes
      its first argument and returns it.
    }], "::llvm::StringRef", "getInPlaceSchema">,
    StaticInterfaceMethod<[{
      True if arguments that are no tensors may be computed: the last operand
      group, `dynamic`, then holds them (OperatorArguments in Rules.h).
    }], "bool", "takesDynamic", (ins),
    [{ return requires(ConcreteOp op) { op.getDynamic(); }; }]>,
    InterfaceMethod<[{
      False if these attribute values make the operator something that the
      operation does not describe, for example batch_norm in training mode,
      which writes its statistics. Import then carries the operator opaquely.
    }], "bool", "isFaithful">,
    InterfaceMethod<[{
      True if the operation may write its result into the storage of its
      first operand. A permission, never an order: tie resolution decides.
    }], "bool", "isTied">,
    InterfaceMethod<[{
      Withdraws or gives the permission.
    }], "void", "permitTie", (ins "bool":$tied)>
  ];
}

def Koila_CarriedOperatorInterface : OpInterface<"CarriedOperatorInterface"> {
  let cppNamespace = "::koila";
  let description = [{
    An operation that carries an operator of PyTorch by its name. The operator
    itself, run on shapes, says what shapes its results have.
  }];
  let methods = [
    InterfaceMethod<[{
      The qualified name with the overload, for example `aten::split.Tensor`.
    }], "::llvm::StringRef", "getCallee">,
    InterfaceMethod<[{
      One entry per argument of the operator: the index of an operand
      (`#koila.operand<i>`), or a constant (`unit` is None).
    }], "::mlir::ArrayAttr", "getArguments">
  ];
}

def Koila_ShapeRuleInterface : OpInterface<"ShapeRuleInterface"> {
  let cppNamespace = "::koila";
  let description = [{
    The shape rule: dims, element type and strides of the results from those
    of the operands, over symbols.
  }];
  let methods = [
    InterfaceMethod<[{
      Reads operand facts from `rule` and sets result facts there. Results
      left unset stay unknown. Fails, after an error through
      `rule.emitError()`, on operands that PyTorch would refuse.
    }], "::llvm::LogicalResult", "inferShapes",
    (ins "::koila::ShapeRule &":$rule)>
  ];
}

def Koila_BatchRuleInterface : OpInterface<"BatchRuleInterface"> {
  let cppNamespace = "::koila";
  let description = [{
    The batch rule: where the batch is in the results, from where it is in the
    operands. An operation without it mixes samples.
  }];
  let methods = [
    InterfaceMethod<[{
      Reads operand facts from `rule` and sets result facts there. Results
      left unset are taken as mixing samples.
    }], "void", "inferBatch", (ins "::koila::BatchRule &":$rule)>
  ];
}

def Koila_MemoryRuleInterface : OpInterface<"MemoryRuleInterface"> {
  let cppNamespace = "::koila";
  let description = [{
    The memory rule: which storage results live in, on every target alike. Which
    bytes kernels allocate is asked of the target's library of kernel models
    (KernelModels/KernelModel.h).
  }];
  let methods = [
    InterfaceMethod<[{
      Says for each result whether its storage is new, an alias of an
      operand, or may be tied to one. Results not mentioned are new.
    }], "void", "describeStorage", (ins "::koila::StorageRule &":$rule), [{}],
    [{ (void)rule; }]>
  ];
}

def Koila_AllocationInterface : OpInterface<"AllocationInterface"> {
  let cppNamespace = "::koila";
  let description = [{
    An operation that says itself which bytes it allocates, the same on every
    target: an operation of another dialect that has no kernel models, or one
    that runs no kernel. The models of a target come before it. By default
    nothing but the results is allocated.
  }];
  let methods = [
    InterfaceMethod<[{
      Tells what the operation allocates and frees for concrete extents.
    }], "void", "describeWorkspace", (ins "::koila::WorkspaceRule &":$rule),
    [{}], [{ (void)rule; }]>,
    InterfaceMethod<[{
      Says which operands, results and bytes of its own the operation keeps for
      the gradient. Asked only where a gradient flows to an operand. By default
      the tensors that DifferentiationInterface names.
    }], "void", "describeSaved", (ins "::koila::SavedRule &":$rule), [{}],
    [{ ::koila::detail::describeSaved(rule); }]>,
    InterfaceMethod<[{
      Says of the gradients of the operands, from those of the results, which
      are new and which share storage, and how many bytes the backward pass of
      the operation holds.
    }], "void", "describeBackward", (ins "::koila::BackwardRule &":$rule),
    [{}], [{ ::koila::detail::describeUnknownBackward(rule); }]>
  ];
}

def Koila_DifferentiationInterface : OpInterface<"DifferentiationInterface"> {
  let cppNamespace = "::koila";
  let description = [{
    What an operation means to autograd, on every target alike: whether a
    gradient passes it, and which tensors its gradient reads. What may be
    rewritten depends on this, and not on what kernels allocate. Of an operation
    without it nothing is known.
  }];
  let methods = [
    InterfaceMethod<[{
      Names the operands and results that the gradient reads, and says whether it
      reads what the operation makes inside.
    }], "void", "describeDifferentiation",
    (ins "::koila::DifferentiationRule &":$rule)>
  ];
}

def Koila_BatchStatisticsInterface : OpInterface<"BatchStatisticsInterface"> {
  let cppNamespace = "::koila";
  let description = [{
    An operation that may normalise by statistics of the whole batch. With the
    mark `koila.per_tile` its batch rule lets each tile take its own.
  }];
  let methods = [
    InterfaceMethod<"Whether it does.", "bool", "usesBatchStatistics">
  ];
}

#endif // KOILA_INTERFACES_KOILAOPINTERFACES_TD
