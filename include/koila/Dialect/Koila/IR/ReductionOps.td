//===- ReductionOps.td - Reductions ------------------------*- tablegen -*-===//

#ifndef KOILA_DIALECT_KOILA_IR_REDUCTIONOPS_TD
#define KOILA_DIALECT_KOILA_IR_REDUCTIONOPS_TD

include "koila/Dialect/Koila/IR/KoilaBase.td"

/// Drops dims of `self`, or makes them one with `keepdim`. `types` are those
/// of the results, as rules::ResultType. `needsElements` is the C++ condition
/// under which an empty dim cannot be reduced. Results are packed whatever the
/// strides of `self` (resize_reduction in aten/src/ATen/native/ReduceOpsUtils.h;
/// measured for all). `combine` says how tiles of the batch add up.
class Koila_ReductionOp<string mnemonic, string schema, dag extra,
                        list<string> types, string needsElements = "false",
                        string emptyIsAll = "true", string combine = "None">
    : Koila_RuledOp<mnemonic, schema> {
  let description = [{
    The extents of `dim` are dropped, or become one with `keepdim`; no `dim`
    means all. Refused are dims out of range or given twice, types that the
    operator has not, and empty dims where no elements have no value. Over the
    batch dim it mixes samples. New storage.
  }];
  let arguments = !con((ins AnyTensor:$self), extra);
  let shapeRule = "using Type = ::koila::rules::ResultType;"
      "return ::koila::rules::inferReduction(rule, {{" #
      !interleave(!foreach(type, types, "Type::" # type), ", ") # "}, " #
      needsElements # ", " # emptyIsAll # "});";
  let batchRule = "::koila::rules::inferReductionBatch(rule, " # emptyIsAll #
                  ", ::koila::Combine::" # combine # ");";
}

class Koila_TwoReductionsOp<string mnemonic, string schema, dag extra,
                            list<string> types, string needsElements = "false",
                            string combine = "None">
    : Koila_ReductionOp<mnemonic, schema, extra, types, needsElements, "true",
                        combine> {
  let results = (outs AnyTensor:$first, AnyTensor:$second);
}

defvar keepdimArg = (ins DefaultValuedAttr<BoolAttr, "false">:$keepdim);
defvar dtypeArg = (ins OptionalAttr<I64Attr>:$dtype);
defvar dimArgs = !con((ins I64Attr:$dim), keepdimArg);
defvar maybeDimArgs = !con((ins OptionalAttr<I64Attr>:$dim), keepdimArg);
defvar dimsArgs = !con((ins DenseI64ArrayAttr:$dim), keepdimArg);
defvar maybeDimsArgs = !con((ins OptionalAttr<DenseI64ArrayAttr>:$dim), keepdimArg);

// Sums and means.
def Koila_SumOp : Koila_ReductionOp<"sum",
  "aten::sum(Tensor self, *, ScalarType? dtype=None) -> Tensor",
  dtypeArg, ["Sum"], "false", "true",
  "Sum">;
def Koila_SumDimOp : Koila_ReductionOp<"sum_dim_IntList",
  "aten::sum.dim_IntList(Tensor self, int[1]? dim, bool keepdim=False, *, ScalarType? dtype=None) -> Tensor",
  !con(maybeDimsArgs, dtypeArg), ["Sum"], "false", "true",
  "Sum">;
def Koila_NansumOp : Koila_ReductionOp<"nansum",
  "aten::nansum(Tensor self, int[1]? dim=None, bool keepdim=False, *, ScalarType? dtype=None) -> Tensor",
  !con(maybeDimsArgs, dtypeArg), ["Sum"], "false", "true",
  "Sum">;
def Koila_MeanOp : Koila_ReductionOp<"mean",
  "aten::mean(Tensor self, *, ScalarType? dtype=None) -> Tensor",
  dtypeArg, ["Mean"], "false", "true",
  "Mean">;
def Koila_MeanDimOp : Koila_ReductionOp<"mean_dim",
  "aten::mean.dim(Tensor self, int[1]? dim, bool keepdim=False, *, ScalarType? dtype=None) -> Tensor",
  !con(maybeDimsArgs, dtypeArg), ["Mean"], "false", "true",
  "Mean">;
def Koila_NanmeanOp : Koila_ReductionOp<"nanmean",
  "aten::nanmean(Tensor self, int[1]? dim=None, bool keepdim=False, *, ScalarType? dtype=None) -> Tensor",
  !con(maybeDimsArgs, dtypeArg), ["Mean"]>;
def Koila_ProdOp : Koila_ReductionOp<"prod",
  "aten::prod(Tensor self, *, ScalarType? dtype=None) -> Tensor",
  dtypeArg, ["Sum"]>;
def Koila_ProdDimOp : Koila_ReductionOp<"prod_dim_int",
  "aten::prod.dim_int(Tensor self, int dim, bool keepdim=False, *, ScalarType? dtype=None) -> Tensor",
  !con(dimArgs, dtypeArg), ["Sum"]>;
def Koila_CountNonzeroOp : Koila_ReductionOp<"count_nonzero",
  "aten::count_nonzero(Tensor self, int? dim=None) -> Tensor",
  (ins OptionalAttr<I64Attr>:$dim), ["Index"], "false", "true",
  "Sum">;
def Koila_CountNonzeroDimOp : Koila_ReductionOp<"count_nonzero_dim_IntList",
  "aten::count_nonzero.dim_IntList(Tensor self, int[] dim) -> Tensor",
  (ins DenseI64ArrayAttr:$dim), ["Index"], "false", "true",
  "Sum">;
def Koila_LogsumexpOp : Koila_ReductionOp<"logsumexp",
  "aten::logsumexp(Tensor self, int[1] dim, bool keepdim=False) -> Tensor",
  dimsArgs, ["Float"], "false", "true", "LogSumExp"> {
  let shapeRule = "return ::koila::rules::inferLogSumExp(rule);";
}
def Koila_TraceOp : Koila_ReductionOp<"trace",
  "aten::trace(Tensor self) -> Tensor", (ins), ["Sum"]> {
  let shapeRule = "return ::koila::rules::inferTrace(rule);";
}

// Extrema.
foreach name = ["Max", "Min"] in {
  defvar lower = !tolower(name);
  def Koila_#name#Op : Koila_ReductionOp<lower,
    "aten::" # lower # "(Tensor self) -> Tensor", (ins), ["Same"], "true", "true",
    name>;
  def Koila_#name#DimOp : Koila_TwoReductionsOp<lower # "_dim",
    "aten::" # lower # ".dim(Tensor self, int dim, bool keepdim=False) -> (Tensor values, Tensor indices)",
    dimArgs, ["Same", "Index"], "true", name>;
  def Koila_A#lower#Op : Koila_ReductionOp<"a" # lower,
    "aten::a" # lower # "(Tensor self, int[1] dim=[], bool keepdim=False) -> Tensor",
    dimsArgs, ["Same"], "true", "true", name>;
  def Koila_Arg#lower#Op : Koila_ReductionOp<"arg" # lower,
    "aten::arg" # lower # "(Tensor self, int? dim=None, bool keepdim=False) -> Tensor",
    maybeDimArgs, ["Index"], "true">;
}
def Koila_AminmaxOp : Koila_TwoReductionsOp<"aminmax",
  "aten::aminmax(Tensor self, *, int? dim=None, bool keepdim=False) -> (Tensor min, Tensor max)",
  maybeDimArgs, ["Same", "Same"], "true">;

// Truth.
foreach name = ["All", "Any"] in {
  defvar lower = !tolower(name);
  def Koila_#name#Op : Koila_ReductionOp<lower,
    "aten::" # lower # "(Tensor self) -> Tensor", (ins), ["Truth"], "false", "true",
    name>;
  def Koila_#name#DimOp : Koila_ReductionOp<lower # "_dim",
    "aten::" # lower # ".dim(Tensor self, int dim, bool keepdim=False) -> Tensor",
    dimArgs, ["Truth"], "false", "true", name>;
  def Koila_#name#DimsOp : Koila_ReductionOp<lower # "_dims",
    "aten::" # lower # ".dims(Tensor self, int[]? dim=None, bool keepdim=False) -> Tensor",
    maybeDimsArgs, ["Truth"], "false", "false", name>;
}

// Norms: with an order of 1, 2 or infinity, tiles add up.
class Koila_NormOp<string mnemonic, string schema, dag extra, string order>
    : Koila_ReductionOp<mnemonic, schema, extra, ["Norm"],
                        "::koila::rules::isNormOfElements(" # order # ")"> {
  let batchRule = "::koila::rules::inferReductionBatch(rule, true, "
                  "::koila::rules::getNormCombine(" # order # "));";
}
def Koila_NormScalarOp : Koila_NormOp<"norm_Scalar",
  "aten::norm.Scalar(Tensor self, Scalar p=2) -> Tensor",
  (ins Koila_ScalarAttr:$p), "getPAttr()">;
def Koila_NormDimOp : Koila_NormOp<"norm_ScalarOpt_dim",
  "aten::norm.ScalarOpt_dim(Tensor self, Scalar? p, int[1] dim, bool keepdim=False) -> Tensor",
  !con((ins OptionalAttr<Koila_ScalarAttr>:$p), dimsArgs), "getPAttr()">;
def Koila_NormDimDtypeOp : Koila_NormOp<"norm_ScalarOpt_dim_dtype",
  "aten::norm.ScalarOpt_dim_dtype(Tensor self, Scalar? p, int[1] dim, bool keepdim, *, ScalarType dtype) -> Tensor",
  !con((ins OptionalAttr<Koila_ScalarAttr>:$p), dimsArgs, (ins I64Attr:$dtype)),
  "getPAttr()">;
def Koila_LinalgVectorNormOp : Koila_NormOp<"linalg_vector_norm",
  "aten::linalg_vector_norm(Tensor self, Scalar ord=2, int[1]? dim=None, bool keepdim=False, *, ScalarType? dtype=None) -> Tensor",
  !con((ins Koila_ScalarAttr:$ord), maybeDimsArgs, dtypeArg), "getOrdAttr()">;

// Moments.
defvar unbiasedArg = (ins DefaultValuedAttr<BoolAttr, "true">:$unbiased);
defvar correctionArgs = (ins OptionalAttr<DenseI64ArrayAttr>:$dim,
                             OptionalAttr<Koila_ScalarAttr>:$correction,
                             DefaultValuedAttr<BoolAttr, "false">:$keepdim);
foreach name = ["Std", "Var"] in {
  defvar lower = !tolower(name);
  defvar saved = "::koila::rules::describeDerivativeAs(rule, \"" # lower #
                 ".correction\");";
  defvar savedMeans = "::koila::rules::describeDerivativeAs(rule, \"" # lower #
                      "_mean.correction\");";
  defvar combine = !if(!eq(name, "Std"), "Deviation", "Variance");
  defvar overBatch = "::koila::rules::inferReductionBatch(rule, true, "
                     "::koila::rules::getMomentCombine(rule, "
                     "::koila::Combine::" # combine # "));";
  defvar dimSchema = "(Tensor self, int[1]? dim, bool unbiased=True, bool keepdim=False) -> ";
  defvar correctionSchema = "(Tensor self, int[1]? dim=None, *, Scalar? correction=None, bool keepdim=False) -> ";
  defvar momentArgs = !con((ins OptionalAttr<DenseI64ArrayAttr>:$dim),
                           unbiasedArg, keepdimArg);
  def Koila_#name#Op : Koila_ReductionOp<lower,
    "aten::" # lower # "(Tensor self, bool unbiased=True) -> Tensor",
    unbiasedArg, ["Real"]> {
    let batchRule = overBatch;
    let differentiationRule = saved;
  }
  def Koila_#name#DimOp : Koila_ReductionOp<lower # "_dim",
    "aten::" # lower # ".dim" # dimSchema # "Tensor", momentArgs, ["Real"]> {
    let batchRule = overBatch;
    let differentiationRule = saved;
  }
  def Koila_#name#CorrectionOp : Koila_ReductionOp<lower # "_correction",
    "aten::" # lower # ".correction" # correctionSchema # "Tensor",
    correctionArgs, ["Real"]> {
    let batchRule = overBatch;
  }
  def Koila_#name#MeanOp : Koila_TwoReductionsOp<lower # "_mean",
    "aten::" # lower # "_mean(Tensor self, bool unbiased=True) -> (Tensor, Tensor)",
    unbiasedArg, ["Real", "Mean"]> {
    let differentiationRule = savedMeans;
  }
  def Koila_#name#MeanDimOp : Koila_TwoReductionsOp<lower # "_mean_dim",
    "aten::" # lower # "_mean.dim" # dimSchema # "(Tensor, Tensor)",
    momentArgs, ["Real", "Mean"]> {
    let differentiationRule = savedMeans;
  }
  def Koila_#name#MeanCorrectionOp : Koila_TwoReductionsOp<lower # "_mean_correction",
    "aten::" # lower # "_mean.correction" # correctionSchema # "(Tensor, Tensor)",
    correctionArgs, ["Real", "Mean"]>;
}

// Ranks.
foreach name = ["Median", "Nanmedian"] in {
  defvar lower = !tolower(name);
  def Koila_#name#Op : Koila_ReductionOp<lower,
    "aten::" # lower # "(Tensor self) -> Tensor", (ins), ["Same"]>;
  def Koila_#name#DimOp : Koila_TwoReductionsOp<lower # "_dim",
    "aten::" # lower # ".dim(Tensor self, int dim, bool keepdim=False) -> (Tensor values, Tensor indices)",
    dimArgs, ["Same", "Index"], "true">;
}
def Koila_ModeOp : Koila_TwoReductionsOp<"mode",
  "aten::mode(Tensor self, int dim=-1, bool keepdim=False) -> (Tensor values, Tensor indices)",
  dimArgs, ["Same", "Index"], "true">;

class Koila_QuantileOp<string mnemonic, string schema, dag q, string tensor>
    : Koila_RuledOp<mnemonic, schema> {
  let description = [{
    A reduction of float32 or float64 along `dim`, or of all elements. A list
    `q` of quantiles is a new leading dim. New storage.
  }];
  let arguments = !con((ins AnyTensor:$self), q, maybeDimArgs, (ins StrAttr:$interpolation));
  let shapeRule = "return ::koila::rules::inferQuantile(rule, " # tensor # ");";
  let batchRule = "::koila::rules::inferQuantileBatch(rule, " # tensor # ");";
}
foreach name = ["Quantile", "Nanquantile"] in {
  defvar lower = !tolower(name);
  defvar rest = ", int? dim=None, bool keepdim=False, *, str interpolation=\\\"linear\\\") -> Tensor";
  def Koila_#name#Op : Koila_QuantileOp<lower,
    "aten::" # lower # "(Tensor self, Tensor q" # rest, (ins AnyTensor:$q), "getQ()">;
  def Koila_#name#ScalarOp : Koila_QuantileOp<lower # "_scalar",
    "aten::" # lower # ".scalar(Tensor self, float q" # rest, (ins F64Attr:$q), "{}">;
}

#endif // KOILA_DIALECT_KOILA_IR_REDUCTIONOPS_TD
