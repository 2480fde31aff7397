//===- KoilaDialect.td - The koila dialect -----------------*- tablegen -*-===//

#ifndef KOILA_DIALECT_KOILA_IR_KOILADIALECT_TD
#define KOILA_DIALECT_KOILA_IR_KOILADIALECT_TD

include "mlir/IR/OpBase.td"

def Koila_Dialect : Dialect {
  let name = "koila";
  let summary = "TorchScript programs with symbolic batch, memory and tiling facts";
  let description = [{
    The dialect holds TorchScript programs as functions over builtin tensors.
    Each operator family member of ATen is one operation, named as ATen names
    it, with its exact ATen schema recorded once. Three rules stand next to
    each operation: which shape its results have, how it treats the batch
    dimension, and what it allocates. Operators without an operation of their
    own are carried through by `koila.torch_op`.

    Tensors are builtin `tensor`s. Before shape inference a value is
    `tensor<*x!koila.any>`: rank and element type are unknown. Function
    arguments say what their dims are:

    ```mlir
    func.func @forward(%x: tensor<?x64xf32> {koila.name = "x",
                                             koila.dims = #koila.dims<[B, 64]>})
    ```
  }];
  let cppNamespace = "::koila";
  let useDefaultAttributePrinterParser = 1;
  let useDefaultTypePrinterParser = 1;
  let hasOperationAttrVerify = 1;
  let hasRegionArgAttrVerify = 1;
  let dependentDialects = [
    "::mlir::arith::ArithDialect", "::mlir::func::FuncDialect",
    "::mlir::scf::SCFDialect", "::mlir::tensor::TensorDialect"
  ];
  let extraClassDeclaration = [{
    /// Names of the attributes that `koila-opt` and the importer attach;
    /// passes read only these.
    static constexpr ::llvm::StringLiteral kNameAttr = "koila.name";
    static constexpr ::llvm::StringLiteral kDimsAttr = "koila.dims";
    /// What a literal or container argument is given as.
    static constexpr ::llvm::StringLiteral kValueAttr = "koila.value";
    static constexpr ::llvm::StringLiteral kRangeAttr = "koila.range";
    static constexpr ::llvm::StringLiteral kRequiresGradAttr =
        "koila.requires_grad";
    static constexpr ::llvm::StringLiteral kMemoryFormatAttr =
        "koila.memory_format";
    static constexpr ::llvm::StringLiteral kSymbolsAttr = "koila.symbols";
    static constexpr ::llvm::StringLiteral kTrainingAttr = "koila.training";
    static constexpr ::llvm::StringLiteral kArchiveAttr = "koila.archive";
    static constexpr ::llvm::StringLiteral kTiledAttr = "koila.tiled";
    static constexpr ::llvm::StringLiteral kReportAttr = "koila.report";
    static constexpr ::llvm::StringLiteral kTargetAttr = "koila.target";
    /// On a function whose branches were decided under its assumptions.
    static constexpr ::llvm::StringLiteral kSpecializedAttr =
        "koila.specialized";
    /// Beside it: facts about arguments decided some.
    static constexpr ::llvm::StringLiteral kDecidedAttr = "koila.decided";
    /// Marks of operations on tensors that are written in place; see
    /// Interfaces/MutableStorage.h.
    static constexpr ::llvm::StringLiteral kReadsAttr = "koila.reads";
    static constexpr ::llvm::StringLiteral kWritesAttr = "koila.writes";
    /// On an operation in which samples are mixed: those of each tile do so among
    /// themselves (`batchnorm=per-tile`).
    static constexpr ::llvm::StringLiteral kPerTileAttr = "koila.per_tile";

    /// The dialect version written to bytecode. Raise it when the meaning of
    /// an operation, attribute or type changes.
    static constexpr int64_t kBytecodeVersion = 1;

    void registerAttributes();
    void registerTypes();
    void registerOperations();
    // One per family, next to its classes.
    void registerAttentionOps();
    void registerBinaryOps();
    void registerConvolutionOps();
    void registerCopyOps();
    void registerFactoryOps();
    void registerIndexOps();
    void registerLossOps();
    void registerMatmulOps();
    void registerNormOps();
    void registerObjectOps();
    void registerPointwiseOps();
    void registerPoolOps();
    void registerReductionOps();
    void registerResampleOps();
    void registerSortOps();
    void registerSpectralOps();
    void registerViewOps();
  }];
}

#endif // KOILA_DIALECT_KOILA_IR_KOILADIALECT_TD
