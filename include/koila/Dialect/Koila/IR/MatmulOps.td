//===- MatmulOps.td - Products with matrices ---------------*- tablegen -*-===//

#ifndef KOILA_DIALECT_KOILA_IR_MATMULOPS_TD
#define KOILA_DIALECT_KOILA_IR_MATMULOPS_TD

include "koila/Dialect/Koila/IR/KoilaBase.td"
include "koila/Interfaces/BackwardOperator.td"
include "koila/Interfaces/KernelWork.td"

def Koila_LinearOp : Koila_TorchOp<"linear",
  "aten::linear(Tensor input, Tensor weight, Tensor? bias=None) -> Tensor", "",
  [DeclareOpInterfaceMethods<Koila_BackwardOperatorInterface,
                             ["readsOperand"]>,
   Koila_KernelWorkInterface]> {
  let summary = "the last dim times a weight matrix, plus a bias";
  let description = [{
    `[..., in]` and `[out, in]` give `[..., out]`. Refused: a last extent that
    is known to differ from the weight's. A batch in any leading dim stays
    there; in the last dim it mixes samples. New storage.
  }];
  let arguments = (ins AnyTensor:$input, AnyTensor:$weight,
                       Koila_OptionalTensor:$bias);
  let results = (outs AnyTensor:$result);
  let extraClassDeclaration = baseDeclaration # [{
    ::koila::KernelWork describeWork(::koila::GetShape getShape);
  }];
  let assemblyFormat = [{
    $input `,` $weight (`,` $bias^)? attr-dict
    `:` functional-type(operands, results)
  }];
  let differentiationRule = "::koila::rules::describeFactors(rule, getInput(), getWeight());";
}

//===----------------------------------------------------------------------===//
// Products whose dims an equation names
//===----------------------------------------------------------------------===//

/// `product` is the initializer of a koila::rules::Product: the factors, the
/// equation, and what is added.
class Koila_ProductOp<string mnemonic, string schema, string inPlace,
                      dag operands, string product, dag extra = (ins)>
    : Koila_RuledOp<mnemonic, schema, inPlace, [Koila_KernelWorkInterface]> {
  let description = [{
    Extents that are multiplied and summed must agree, and so must the element
    types. The batch stays in a dim that the result keeps; a batch that is
    summed over mixes samples. New storage, or that of `self` where the tie is
    resolved.
  }];
  let arguments = !con(operands, extra,
                       !if(!empty(inPlace), (ins), (ins UnitAttr:$tied)));
  let shapeRule = "return ::koila::rules::inferProduct(rule, {" # product #
                  "});";
  let batchRule = "::koila::rules::inferProductBatch(rule, {" # product #
                  "});";
  let extraClassDeclaration = baseDeclaration # [{
    ::koila::KernelWork describeWork(::koila::GetShape getShape);
  }];
  let moreDefinitions = [{
    ::koila::KernelWork $cppClass::describeWork(::koila::GetShape getShape) {
      ::koila::rules::Product product{}] # product # [{};
      return ::koila::rules::describeProductWork(getShape, product.factors,
                                                 product.equation);
    }
  }];
}

defvar betaAlphaArgs = (ins Koila_ScalarAttr:$beta, Koila_ScalarAttr:$alpha);

def Koila_MmOp : Koila_ProductOp<"mm",
  "aten::mm(Tensor self, Tensor mat2) -> Tensor", "",
  (ins AnyTensor:$self, AnyTensor:$mat2),
  [{{getSelf(), getMat2()}, "nk,km->nm", {} }]>;
def Koila_BmmOp : Koila_ProductOp<"bmm",
  "aten::bmm(Tensor self, Tensor mat2) -> Tensor", "",
  (ins AnyTensor:$self, AnyTensor:$mat2),
  [{{getSelf(), getMat2()}, "bnk,bkm->bnm", {} }]>;
def Koila_MvOp : Koila_ProductOp<"mv",
  "aten::mv(Tensor self, Tensor vec) -> Tensor", "",
  (ins AnyTensor:$self, AnyTensor:$vec),
  [{{getSelf(), getVec()}, "nk,k->n", {} }]>;
def Koila_DotOp : Koila_ProductOp<"dot",
  "aten::dot(Tensor self, Tensor tensor) -> Tensor", "",
  (ins AnyTensor:$self, AnyTensor:$tensor),
  [{{getSelf(), getTensor()}, "k,k->", {} }]>;
def Koila_VdotOp : Koila_ProductOp<"vdot",
  "aten::vdot(Tensor self, Tensor other) -> Tensor", "",
  (ins AnyTensor:$self, AnyTensor:$other),
  [{{getSelf(), getOther()}, "k,k->", {} }]>;
def Koila_BilinearOp : Koila_ProductOp<"bilinear",
  "aten::bilinear(Tensor input1, Tensor input2, Tensor weight, Tensor? bias=None) -> Tensor", "",
  (ins AnyTensor:$input1, AnyTensor:$input2, AnyTensor:$weight,
       Koila_OptionalTensor:$bias),
  [{{getInput1(), getInput2(), getWeight()}, "...i,...j,oij->...o", getBias()}]> {
  let shapeRule = [{
    if (failed(::koila::rules::checkBilinear(rule, getInput1(), getInput2())))
      return ::mlir::failure();
    return ::koila::rules::inferProduct(
        rule, {{getInput1(), getInput2(), getWeight()}, "...i,...j,oij->...o",
               getBias()});
  }];
}

def Koila_AddmmOp : Koila_ProductOp<"addmm",
  "aten::addmm(Tensor self, Tensor mat1, Tensor mat2, *, Scalar beta=1, Scalar alpha=1) -> Tensor",
  "aten::addmm_(Tensor(a!) self, Tensor mat1, Tensor mat2, *, Scalar beta=1, Scalar alpha=1) -> Tensor(a!)",
  (ins AnyTensor:$self, AnyTensor:$mat1, AnyTensor:$mat2),
  [{{getMat1(), getMat2()}, "nk,km->nm", getSelf()}], betaAlphaArgs>;
def Koila_AddmvOp : Koila_ProductOp<"addmv",
  "aten::addmv(Tensor self, Tensor mat, Tensor vec, *, Scalar beta=1, Scalar alpha=1) -> Tensor",
  "aten::addmv_(Tensor(a!) self, Tensor mat, Tensor vec, *, Scalar beta=1, Scalar alpha=1) -> Tensor(a!)",
  (ins AnyTensor:$self, AnyTensor:$mat, AnyTensor:$vec),
  [{{getMat(), getVec()}, "nk,k->n", getSelf()}], betaAlphaArgs>;
def Koila_BaddbmmOp : Koila_ProductOp<"baddbmm",
  "aten::baddbmm(Tensor self, Tensor batch1, Tensor batch2, *, Scalar beta=1, Scalar alpha=1) -> Tensor",
  "aten::baddbmm_(Tensor(a!) self, Tensor batch1, Tensor batch2, *, Scalar beta=1, Scalar alpha=1) -> Tensor(a!)",
  (ins AnyTensor:$self, AnyTensor:$batch1, AnyTensor:$batch2),
  [{{getBatch1(), getBatch2()}, "bnk,bkm->bnm", getSelf()}], betaAlphaArgs>;
def Koila_AddbmmOp : Koila_ProductOp<"addbmm",
  "aten::addbmm(Tensor self, Tensor batch1, Tensor batch2, *, Scalar beta=1, Scalar alpha=1) -> Tensor",
  "aten::addbmm_(Tensor(a!) self, Tensor batch1, Tensor batch2, *, Scalar beta=1, Scalar alpha=1) -> Tensor(a!)",
  (ins AnyTensor:$self, AnyTensor:$batch1, AnyTensor:$batch2),
  [{{getBatch1(), getBatch2()}, "bnk,bkm->nm", getSelf()}], betaAlphaArgs>;

/// The product of two vectors. Types are promoted.
class Koila_OuterFamilyOp<string mnemonic, string schema>
    : Koila_ProductOp<mnemonic, schema, "",
                      (ins AnyTensor:$self, AnyTensor:$vec2),
                      [{{getSelf(), getVec2()}, "n,m->nm", {} }]> {
  let shapeRule = "return ::koila::rules::inferOuter(rule, getSelf(), getVec2());";
  let differentiationRule = "::koila::rules::describeDerivativeAs(rule, \"mul.Tensor\");";
}
def Koila_OuterOp : Koila_OuterFamilyOp<"outer",
  "aten::outer(Tensor self, Tensor vec2) -> Tensor">;
def Koila_GerOp : Koila_OuterFamilyOp<"ger",
  "aten::ger(Tensor self, Tensor vec2) -> Tensor">;
def Koila_AddrOp : Koila_ProductOp<"addr",
  "aten::addr(Tensor self, Tensor vec1, Tensor vec2, *, Scalar beta=1, Scalar alpha=1) -> Tensor",
  "aten::addr_(Tensor(a!) self, Tensor vec1, Tensor vec2, *, Scalar beta=1, Scalar alpha=1) -> Tensor(a!)",
  (ins AnyTensor:$self, AnyTensor:$vec1, AnyTensor:$vec2),
  [{{getVec1(), getVec2()}, "n,m->nm", getSelf()}], betaAlphaArgs> {
  let shapeRule = [{
    return ::koila::rules::inferOuter(rule, getVec1(), getVec2(), getSelf());
  }];
}

//===----------------------------------------------------------------------===//
// Products whose dims depend on the ranks
//===----------------------------------------------------------------------===//

/// `rule` is the name of the rules, `arguments` what they get.
class Koila_RankedProductOp<string mnemonic, string schema, dag operands,
                            string rule, string given, list<Trait> traits = []>
    : Koila_RuledOp<mnemonic, schema, "", traits> {
  let arguments = operands;
  let shapeRule = "return ::koila::rules::infer" # rule # "(rule, " # given #
                  ");";
  let batchRule = "::koila::rules::infer" # rule # "Batch(rule, " # given #
                  ");";
}
defvar selfAndOther = (ins AnyTensor:$self, AnyTensor:$other);

/// What `matmul` does, by its names.
class Koila_MatmulFamilyOp<string mnemonic, string schema>
    : Koila_RankedProductOp<mnemonic, schema, selfAndOther, "Matmul",
                            "getSelf(), getOther()",
                            [Koila_KernelWorkInterface]> {
  let differentiationRule = "::koila::rules::describeFactors(rule, getSelf(), getOther());";
  let extraClassDeclaration = baseDeclaration # [{
    ::koila::KernelWork describeWork(::koila::GetShape getShape);
  }];
  let moreDefinitions = [{
    ::koila::KernelWork $cppClass::describeWork(::koila::GetShape getShape) {
      return ::koila::rules::describeMatrixWork(getShape, getSelf(),
                                                getResult());
    }
  }];
}
def Koila_MatmulOp : Koila_MatmulFamilyOp<"matmul",
  "aten::matmul(Tensor self, Tensor other) -> Tensor"> {
  let description = [{
    By the ranks a product of vectors, of a matrix and a vector, or of
    matrices, where leading dims broadcast. The batch stays in a leading dim or
    in the rows of the left operand. New storage, dense row-major.
  }];
}
def Koila_LinalgMatmulOp : Koila_MatmulFamilyOp<"linalg_matmul",
  "aten::linalg_matmul(Tensor self, Tensor other) -> Tensor">;
def Koila_InnerOp : Koila_RankedProductOp<"inner",
  "aten::inner(Tensor self, Tensor other) -> Tensor", selfAndOther,
  "Inner", "getSelf(), getOther()">;
def Koila_KronOp : Koila_RankedProductOp<"kron",
  "aten::kron(Tensor self, Tensor other) -> Tensor", selfAndOther,
  "Kron", "getSelf(), getOther()">;
def Koila_TensordotOp : Koila_RankedProductOp<"tensordot",
  "aten::tensordot(Tensor self, Tensor other, int[] dims_self, int[] dims_other) -> Tensor",
  !con(selfAndOther, (ins DenseI64ArrayAttr:$dims_self,
                          DenseI64ArrayAttr:$dims_other)),
  "Tensordot", "getSelf(), getOther(), getDimsSelf(), getDimsOther()">;
def Koila_LinalgMultiDotOp : Koila_RankedProductOp<"linalg_multi_dot",
  "aten::linalg_multi_dot(Tensor[] tensors) -> Tensor",
  (ins Variadic<AnyTensor>:$tensors), "MultiDot", "getTensors()">;
def Koila_LinalgCrossOp : Koila_RankedProductOp<"linalg_cross",
  "aten::linalg_cross(Tensor self, Tensor other, *, int dim=-1) -> Tensor",
  !con(selfAndOther, (ins I64Attr:$dim)),
  "Cross", "getSelf(), getOther(), getDim()">;
def Koila_CrossOp : Koila_RankedProductOp<"cross",
  "aten::cross(Tensor self, Tensor other, int? dim=None) -> Tensor",
  !con(selfAndOther, (ins OptionalAttr<I64Attr>:$dim)),
  "Cross", "getSelf(), getOther(), getDim()"> {
  let differentiationRule = "::koila::rules::describeDerivativeAs(rule, \"linalg_cross\");";
}

def Koila_EinsumOp : Koila_RuledOp<"einsum",
  "aten::einsum(str equation, Tensor[] tensors, *, int[]? path=None) -> Tensor", "",
  [Koila_KernelWorkInterface]> {
  let description = [{
    Letters name dims; an extent of one broadcasts. The batch stays in the dim
    of its letter; if the result lacks the letter, samples mix. A view where
    one operand is only permuted or taken the diagonal of, else new storage.
  }];
  let arguments = (ins StrAttr:$equation, Variadic<AnyTensor>:$tensors,
                       OptionalAttr<DenseI64ArrayAttr>:$path);
  let shapeRule = [{
    return ::koila::rules::inferEinsum(rule, getEquation(), getTensors(),
                                       getPath());
  }];
  let batchRule =
      "::koila::rules::inferEinsumBatch(rule, getEquation(), getTensors());";
  let storageRule =
      "::koila::rules::describeEinsumStorage(rule, getEquation(), getTensors());";
  let differentiationRule = "::koila::rules::describeEinsumDerivative(rule);";
  let extraClassDeclaration = baseDeclaration # [{
    ::koila::KernelWork describeWork(::koila::GetShape getShape);
  }];
  let moreDefinitions = [{
    ::koila::KernelWork $cppClass::describeWork(::koila::GetShape getShape) {
      return ::koila::rules::describeProductWork(
          getShape, ::llvm::to_vector(getTensors()), getEquation());
    }
  }];
}

//===----------------------------------------------------------------------===//
// Functions of matrices
//===----------------------------------------------------------------------===//

/// `described` says what the results are; see inferMatrixFunction.
class Koila_MatrixFunctionOp<string mnemonic, string schema, dag operands,
                             string described, bit square = 1>
    : Koila_RuledOp<mnemonic, schema> {
  let description = [{
    For each of the matrices in the last two dims. The batch stays in a leading
    dim. New storage, mostly with the columns of a matrix first.
  }];
  let arguments = operands;
  defvar input = "getOperation()->getOperand(0)";
  let shapeRule = "return ::koila::rules::inferMatrixFunction(rule, " # input #
      ", " # !if(square, "true", "false") # ", " # described # ");";
  let batchRule = "::koila::rules::inferMatrixFunctionBatch(rule, " # input #
                  ");";
  let differentiationRule =
      "::koila::rules::describeMatrixFunctionDerivative(rule);";
}
defvar matrixA = (ins AnyTensor:$A);
defvar matrixSelf = (ins AnyTensor:$self);
defvar oneResult = (outs AnyTensor:$result);

def Koila_LinalgInvOp : Koila_MatrixFunctionOp<"linalg_inv",
  "aten::linalg_inv(Tensor A) -> Tensor", matrixA, [{"Fs:nn"}]>;
def Koila_InverseOp : Koila_MatrixFunctionOp<"inverse",
  "aten::inverse(Tensor self) -> Tensor", matrixSelf, [{"Fs:nn"}]>;
def Koila_LinalgInvExOp : Koila_MatrixFunctionOp<"linalg_inv_ex",
  "aten::linalg_inv_ex(Tensor A, *, bool check_errors=False) -> (Tensor inverse, Tensor info)",
  !con(matrixA, (ins BoolAttr:$check_errors)), [{"Fs:nn,Ci:"}]> {
  let results = (outs AnyTensor:$inverse, AnyTensor:$info);
}
def Koila_LinalgDetOp : Koila_MatrixFunctionOp<"linalg_det",
  "aten::linalg_det(Tensor A) -> Tensor", matrixA, [{"Cs:"}]>;
def Koila_DetOp : Koila_MatrixFunctionOp<"det",
  "aten::det(Tensor self) -> Tensor", matrixSelf, [{"Cs:"}]>;
def Koila_LogdetOp : Koila_MatrixFunctionOp<"logdet",
  "aten::logdet(Tensor self) -> Tensor", matrixSelf, [{"Cs:"}]>;
def Koila_LinalgSlogdetOp : Koila_MatrixFunctionOp<"linalg_slogdet",
  "aten::linalg_slogdet(Tensor A) -> (Tensor sign, Tensor logabsdet)",
  matrixA, [{"Cs:,Cr:"}]> {
  let results = (outs AnyTensor:$sign, AnyTensor:$logabsdet);
}
def Koila_SlogdetOp : Koila_MatrixFunctionOp<"slogdet",
  "aten::slogdet(Tensor self) -> (Tensor sign, Tensor logabsdet)",
  matrixSelf, [{"Cs:,Cr:"}]> {
  let results = (outs AnyTensor:$sign, AnyTensor:$logabsdet);
}
def Koila_LinalgCholeskyOp : Koila_MatrixFunctionOp<"linalg_cholesky",
  "aten::linalg_cholesky(Tensor self, *, bool upper=False) -> Tensor",
  !con(matrixSelf, (ins BoolAttr:$upper)), [{"Fs:nn"}]>;
def Koila_CholeskyOp : Koila_MatrixFunctionOp<"cholesky",
  "aten::cholesky(Tensor self, bool upper=False) -> Tensor",
  !con(matrixSelf, (ins BoolAttr:$upper)), [{"Fs:nn"}]> {
  let shapeRule = "return ::koila::rules::inferCholesky(rule, getSelf());";
}
def Koila_LinalgCholeskyExOp : Koila_MatrixFunctionOp<"linalg_cholesky_ex",
  "aten::linalg_cholesky_ex(Tensor self, *, bool upper=False, bool check_errors=False) -> (Tensor L, Tensor info)",
  !con(matrixSelf, (ins BoolAttr:$upper, BoolAttr:$check_errors)),
  [{"Fs:nn,Ci:"}]> {
  let results = (outs AnyTensor:$L, AnyTensor:$info);
}
def Koila_LinalgEighOp : Koila_MatrixFunctionOp<"linalg_eigh",
  "aten::linalg_eigh(Tensor self, str UPLO='L') -> (Tensor eigenvalues, Tensor eigenvectors)",
  !con(matrixSelf, (ins StrAttr:$UPLO)), [{"Cr:n,Fs:nn"}]> {
  let results = (outs AnyTensor:$eigenvalues, AnyTensor:$eigenvectors);
}
def Koila_LinalgEigvalshOp : Koila_MatrixFunctionOp<"linalg_eigvalsh",
  "aten::linalg_eigvalsh(Tensor self, str UPLO='L') -> Tensor",
  !con(matrixSelf, (ins StrAttr:$UPLO)), [{"Cr:n"}]>;
def Koila_LinalgQrOp : Koila_MatrixFunctionOp<"linalg_qr",
  "aten::linalg_qr(Tensor A, str mode='reduced') -> (Tensor Q, Tensor R)",
  !con(matrixA, (ins StrAttr:$mode)),
  [{getMode() == "complete" ? "Fs:nn,Fs:nm" : "Fs:nk,Fs:km"}], 0> {
  let results = (outs AnyTensor:$Q, AnyTensor:$R);
}
def Koila_LinalgSvdOp : Koila_MatrixFunctionOp<"linalg_svd",
  "aten::linalg_svd(Tensor A, bool full_matrices=True, *, str? driver=None) -> (Tensor U, Tensor S, Tensor Vh)",
  !con(matrixA, (ins BoolAttr:$full_matrices, OptionalAttr<StrAttr>:$driver)),
  [{getFullMatrices() ? "Fs:nn,Cr:k,Fs:mm" : "Fs:nk,Cr:k,Fs:km"}], 0> {
  let results = (outs AnyTensor:$U, AnyTensor:$S, AnyTensor:$Vh);
}
def Koila_LinalgSvdvalsOp : Koila_MatrixFunctionOp<"linalg_svdvals",
  "aten::linalg_svdvals(Tensor A, *, str? driver=None) -> Tensor",
  !con(matrixA, (ins OptionalAttr<StrAttr>:$driver)), [{"Cr:k"}], 0>;
def Koila_PinverseOp : Koila_MatrixFunctionOp<"pinverse",
  "aten::pinverse(Tensor self, float rcond=1.0000000000000001e-15) -> Tensor",
  !con(matrixSelf, (ins F64Attr:$rcond)), [{"Cs:mn"}], 0>;
def Koila_CholeskyInverseOp : Koila_MatrixFunctionOp<"cholesky_inverse",
  "aten::cholesky_inverse(Tensor self, bool upper=False) -> Tensor",
  !con(matrixSelf, (ins BoolAttr:$upper)), [{"Fs:nn"}]>;
def Koila_LinalgMatrixExpOp : Koila_MatrixFunctionOp<"linalg_matrix_exp",
  "aten::linalg_matrix_exp(Tensor self) -> Tensor", matrixSelf, [{"Cs:nn"}]>;
def Koila_MatrixExpOp : Koila_MatrixFunctionOp<"matrix_exp",
  "aten::matrix_exp(Tensor self) -> Tensor", matrixSelf, [{"Cs:nn"}]>;
def Koila_LinalgHouseholderProductOp
    : Koila_MatrixFunctionOp<"linalg_householder_product",
        "aten::linalg_householder_product(Tensor input, Tensor tau) -> Tensor",
        (ins AnyTensor:$input, AnyTensor:$tau), [{"Fs:nm"}], 0> {
  let batchRule = [{
    if (!(rule.fact(getInput()) == rule.fact(getTau())))
      return rule.mix("reflectors and their factors carry the batch in "
                      "different dims");
    ::koila::rules::inferMatrixFunctionBatch(rule, getInput());
  }];
}
/// Products of the matrix with itself; an inverse alone keeps its layout.
class Koila_MatrixPowerFamilyOp<string mnemonic, string schema>
    : Koila_MatrixFunctionOp<mnemonic, schema,
        !con(matrixSelf, (ins I64Attr:$n)),
        "getN() == -1 ? \"Fs:nn\" : \"Cs:nn\", getN() >= 0"> {
  let shapeRule = "return ::koila::rules::inferMatrixPower(rule, getSelf(), "
                  "getN());";
}
def Koila_LinalgMatrixPowerOp : Koila_MatrixPowerFamilyOp<"linalg_matrix_power",
  "aten::linalg_matrix_power(Tensor self, int n) -> Tensor">;
def Koila_MatrixPowerOp : Koila_MatrixPowerFamilyOp<"matrix_power",
  "aten::matrix_power(Tensor self, int n) -> Tensor">;

/// `system` are the matrices, the right sides and whether these stand on the
/// right, in C++.
class Koila_SystemOp<string mnemonic, string schema, dag operands,
                     string system, string kind>
    : Koila_RuledOp<mnemonic, schema> {
  let description = [{
    Solutions of systems of equations: the matrices are in the last two dims of
    one operand, the right sides in those of the other. The batch stays in a
    leading dim, or among the right sides of the same matrices. New storage with
    the columns of a matrix first.
  }];
  let arguments = operands;
  let shapeRule = "return ::koila::rules::inferSolve(rule, " # system #
                  ", ::koila::rules::System::" # kind # ");";
  let batchRule = "::koila::rules::inferSolveBatch(rule, " # system #
                  ", ::koila::rules::System::" # kind # ");";
  let differentiationRule =
      "::koila::rules::describeMatrixFunctionDerivative(rule);";
}
class Koila_SolveFamilyOp<string mnemonic, string schema, dag extra, bit info>
    : Koila_SystemOp<mnemonic, schema,
        !con((ins AnyTensor:$A, AnyTensor:$B, BoolAttr:$left), extra),
        "getA(), getB(), getLeft()", !if(info, "WithInfo", "General")> {
  let results = !con(oneResult, !if(info, (outs AnyTensor:$info), (outs)));
}
def Koila_LinalgSolveTriangularOp
    : Koila_SystemOp<"linalg_solve_triangular",
        "aten::linalg_solve_triangular(Tensor self, Tensor B, *, bool upper, bool left=True, bool unitriangular=False) -> Tensor",
        (ins AnyTensor:$self, AnyTensor:$B, BoolAttr:$upper, BoolAttr:$left,
             BoolAttr:$unitriangular),
        "getSelf(), getB(), getLeft()", "Triangular">;
def Koila_CholeskySolveOp : Koila_SystemOp<"cholesky_solve",
  "aten::cholesky_solve(Tensor self, Tensor input2, bool upper=False) -> Tensor",
  (ins AnyTensor:$self, AnyTensor:$input2, BoolAttr:$upper),
  "getInput2(), getSelf(), true", "Triangular">;
def Koila_LinalgSolveOp : Koila_SolveFamilyOp<"linalg_solve",
  "aten::linalg_solve(Tensor A, Tensor B, *, bool left=True) -> Tensor",
  (ins), 0>;
def Koila_LinalgSolveExOp : Koila_SolveFamilyOp<"linalg_solve_ex",
  "aten::linalg_solve_ex(Tensor A, Tensor B, *, bool left=True, bool check_errors=False) -> (Tensor result, Tensor info)",
  (ins BoolAttr:$check_errors), 1>;

//===----------------------------------------------------------------------===//
// Covariances
//===----------------------------------------------------------------------===//

class Koila_CovarianceFamilyOp<string mnemonic, string schema, dag weights,
                               string given, list<Trait> traits = []>
    : Koila_RuledOp<mnemonic, schema, "", traits> {
  let description = [{
    Rows are variables, columns are observations; the extents of one of the
    result are dropped. Mixes samples. New storage.
  }];
  let arguments = !con((ins AnyTensor:$self), weights);
  let shapeRule = "return ::koila::rules::inferCovariance(rule, getSelf(), " #
                  given # ");";
  let batchRule = "rule.mix(\"a covariance sums over all observations\");";
  let differentiationRule = "::koila::rules::describeExpressionDerivative(rule);";
}
def Koila_CovOp : Koila_CovarianceFamilyOp<"cov",
  "aten::cov(Tensor self, *, int correction=1, Tensor? fweights=None, Tensor? aweights=None) -> Tensor",
  (ins I64Attr:$correction, Koila_OptionalTensor:$fweights,
       Koila_OptionalTensor:$aweights),
  "getFweights(), getAweights()", [AttrSizedOperandSegments]>;
def Koila_CorrcoefOp : Koila_CovarianceFamilyOp<"corrcoef",
  "aten::corrcoef(Tensor self) -> Tensor", (ins), "{}, {}">;

#endif // KOILA_DIALECT_KOILA_IR_MATMULOPS_TD
