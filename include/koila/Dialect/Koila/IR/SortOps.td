//===- SortOps.td - Sorting, searching, scans --------------*- tablegen -*-===//

#ifndef KOILA_DIALECT_KOILA_IR_SORTOPS_TD
#define KOILA_DIALECT_KOILA_IR_SORTOPS_TD

include "koila/Dialect/Koila/IR/KoilaBase.td"

/// Works along one dim and keeps the shape; `dim` is its C++ expression.
class Koila_AlongDimOp<string mnemonic, string schema, dag extra,
                       list<string> types, string keepsStrides = "false",
                       string inPlace = "", string dim = "getDim()">
    : Koila_RuledOp<mnemonic, schema, inPlace> {
  let description = [{
    Results of the shape of `self`. Over the batch dim it mixes samples. New
    storage, or that of `self` where the tie is resolved.
  }];
  let arguments = !con((ins AnyTensor:$self), extra,
                       !if(!empty(inPlace), (ins), (ins UnitAttr:$tied)));
  let results = !if(!eq(!size(types), 1), (outs AnyTensor:$result),
                    (outs AnyTensor:$values, AnyTensor:$indices));
  let shapeRule = "using Type = ::koila::rules::ResultType;"
      "return ::koila::rules::inferAlongDim(rule, " # dim # ", {" #
      !interleave(!foreach(type, types, "Type::" # type), ", ") # "}, " #
      keepsStrides # ");";
  let batchRule = "::koila::rules::inferAlongDimBatch(rule, getSelf(), " # dim #
      ", ::koila::rules::getOperatorName(*this));"
      "rule.setAll(rule.getResults()[0]);";
}

/// Sorting keeps the order of strides (empty_like in Sorting.cpp).
class Koila_SortFamilyOp<string mnemonic, string schema, dag extra, list<string> types>
    : Koila_AlongDimOp<mnemonic, schema, extra, types, "true">;
defvar sortArgs = (ins I64Attr:$dim, BoolAttr:$descending);
def Koila_SortOp : Koila_SortFamilyOp<"sort",
  "aten::sort(Tensor self, int dim=-1, bool descending=False) -> (Tensor values, Tensor indices)",
  sortArgs, ["Same", "Index"]>;
def Koila_SortStableOp : Koila_SortFamilyOp<"sort_stable",
  "aten::sort.stable(Tensor self, *, bool? stable, int dim=-1, bool descending=False) -> (Tensor values, Tensor indices)",
  !con((ins OptionalAttr<BoolAttr>:$stable), sortArgs), ["Same", "Index"]>;
def Koila_ArgsortOp : Koila_SortFamilyOp<"argsort",
  "aten::argsort(Tensor self, int dim=-1, bool descending=False) -> Tensor",
  sortArgs, ["Index"]>;
def Koila_ArgsortStableOp : Koila_SortFamilyOp<"argsort_stable",
  "aten::argsort.stable(Tensor self, *, bool stable, int dim=-1, bool descending=False) -> Tensor",
  !con((ins BoolAttr:$stable), sortArgs), ["Index"]>;
def Koila_MsortOp : Koila_AlongDimOp<"msort",
  "aten::msort(Tensor self) -> Tensor", (ins), ["Same"], "true", "", "0">;

foreach name = ["Cumsum", "Cumprod"] in {
  defvar lower = !tolower(name);
  def Koila_#name#Op : Koila_AlongDimOp<lower,
    "aten::" # lower # "(Tensor self, int dim, *, ScalarType? dtype=None) -> Tensor",
    (ins I64Attr:$dim, OptionalAttr<I64Attr>:$dtype), ["Sum"], "false",
    "aten::" # lower # "_(Tensor(a!) self, int dim, *, ScalarType? dtype=None) -> Tensor(a!)">;
}
foreach name = ["Cummax", "Cummin"] in {
  defvar lower = !tolower(name);
  def Koila_#name#Op : Koila_AlongDimOp<lower,
    "aten::" # lower # "(Tensor self, int dim) -> (Tensor values, Tensor indices)",
    (ins I64Attr:$dim), ["Same", "Index"]>;
}
def Koila_LogcumsumexpOp : Koila_AlongDimOp<"logcumsumexp",
  "aten::logcumsumexp(Tensor self, int dim) -> Tensor", (ins I64Attr:$dim), ["Same"]>;

class Koila_SelectionOp<string mnemonic, string schema, dag extra, string shape,
                        string dropsDim> : Koila_RuledOp<mnemonic, schema> {
  let description = [{
    Picks of each row along `dim` the elements that `k` says, and where they
    are. Refused is a `k` that is known to be more than there are. Over the
    batch dim it mixes samples. New storage.
  }];
  let arguments = !con((ins AnyTensor:$self, I64Attr:$k, I64Attr:$dim), extra,
                       (ins Variadic<AnyType>:$dynamic));
  let results = (outs AnyTensor:$values, AnyTensor:$indices);
  let shapeRule = "return ::koila::rules::" # shape # "(rule, getDim());";
  let batchRule = "::koila::rules::inferSelectionBatch(rule, getDim(), " # dropsDim # ");";
}
def Koila_TopkOp : Koila_SelectionOp<"topk",
  "aten::topk(Tensor self, SymInt k, int dim=-1, bool largest=True, bool sorted=True) -> (Tensor values, Tensor indices)",
  (ins BoolAttr:$largest, BoolAttr:$sorted), "inferTopk", "false">;
def Koila_KthvalueOp : Koila_SelectionOp<"kthvalue",
  "aten::kthvalue(Tensor self, SymInt k, int dim=-1, bool keepdim=False) -> (Tensor values, Tensor indices)",
  (ins BoolAttr:$keepdim), "inferKthvalue", "!getKeepdim()">;

def Koila_DiffOp : Koila_RuledOp<"diff",
  "aten::diff(Tensor self, int n=1, int dim=-1, Tensor? prepend=None, Tensor? append=None) -> Tensor",
  "", [AttrSizedOperandSegments]> {
  let description = [{
    Differences of neighbours along `dim`, `n` times, after `prepend` and
    `append` are put before and after. New storage.
  }];
  let arguments = (ins AnyTensor:$self, I64Attr:$n, I64Attr:$dim,
    Koila_OptionalTensor:$prepend, Koila_OptionalTensor:$append);
  let shapeRule = "return ::koila::rules::inferDiff(rule, getN(), getDim(), getPrepend(), getAppend());";
  let batchRule = "::koila::rules::inferDiffBatch(rule, getDim(), getPrepend(), getAppend());";
  let differentiationRule = "";
}

/// How many elements differ is data: that extent is a symbol of its own.
class Koila_UniqueOp<string mnemonic, string schema, dag extra, string arguments_>
    : Koila_RuledOp<mnemonic, schema> {
  let description = [{
    Elements, or slices along `dim`, that differ; the place of each, and how
    often each is there. How many there are is data. Mixes samples.
  }];
  let arguments = !con((ins AnyTensor:$self), extra);
  let results = (outs AnyTensor:$values, AnyTensor:$inverse, AnyTensor:$counts);
  let shapeRule = "return ::koila::rules::inferUnique(rule, " # arguments_ # ");";
  let batchRule = "::koila::rules::mixAll(rule);";
}
def Koila_UniqueDimOp : Koila_UniqueOp<"unique_dim",
  "aten::unique_dim(Tensor self, int dim, bool sorted=True, bool return_inverse=False, bool return_counts=False) -> (Tensor, Tensor, Tensor)",
  (ins I64Attr:$dim, BoolAttr:$sorted, BoolAttr:$return_inverse, BoolAttr:$return_counts),
  "getDim(), getReturnInverse(), getReturnCounts()">;
def Koila_Unique2Op : Koila_UniqueOp<"_unique2",
  "aten::_unique2(Tensor self, bool sorted=True, bool return_inverse=False, bool return_counts=False) -> (Tensor, Tensor, Tensor)",
  (ins BoolAttr:$sorted, BoolAttr:$return_inverse, BoolAttr:$return_counts),
  "{}, getReturnInverse(), getReturnCounts()">;
def Koila_UniqueConsecutiveOp : Koila_UniqueOp<"unique_consecutive",
  "aten::unique_consecutive(Tensor self, bool return_inverse=False, bool return_counts=False, int? dim=None) -> (Tensor, Tensor, Tensor)",
  (ins BoolAttr:$return_inverse, BoolAttr:$return_counts, OptionalAttr<I64Attr>:$dim),
  "getDim(), getReturnInverse(), getReturnCounts()">;

def Koila_HistcOp : Koila_RuledOp<"histc",
  "aten::histc(Tensor self, int bins=100, Scalar min=0, Scalar max=0) -> Tensor"> {
  let description = "Counts of the elements in `bins` equal ranges. Mixes samples.";
  let arguments = (ins AnyTensor:$self, I64Attr:$bins, Koila_ScalarAttr:$min,
                       Koila_ScalarAttr:$max);
  let shapeRule = "return ::koila::rules::inferHistogram(rule, getBins());";
  let batchRule = "::koila::rules::mixAll(rule);";
}

/// `search` are the boundaries, the values and the sorter in C++, and whether
/// the boundaries may have rows.
class Koila_SearchOp<string mnemonic, string schema, dag args,
                     string boundaries, string values, string sorter,
                     string manyRows, list<Trait> traits = []>
    : Koila_RuledOp<mnemonic, schema, "", traits> {
  let description = [{
    Where each value belongs among sorted boundaries: int64, or int32 with
    `out_int32`, of the shape of the values. The boundaries are one row for
    all values, or one for each row of them. New storage.
  }];
  let arguments = args;
  let shapeRule = "return ::koila::rules::inferSearch(rule, " # boundaries #
      ", " # values # ", " # sorter # ", " # manyRows # ");";
  let batchRule = "::koila::rules::inferSearchBatch(rule, " # boundaries #
      ", " # values # ", " # sorter # ");";
}
defvar searchArgs = (ins BoolAttr:$out_int32, BoolAttr:$right,
                         OptionalAttr<StrAttr>:$side, Koila_OptionalTensor:$sorter);
def Koila_SearchsortedTensorOp : Koila_SearchOp<"searchsorted_Tensor",
  "aten::searchsorted.Tensor(Tensor sorted_sequence, Tensor self, *, bool out_int32=False, bool right=False, str? side=None, Tensor? sorter=None) -> Tensor",
  !con((ins AnyTensor:$sorted_sequence, AnyTensor:$self), searchArgs),
  "getSortedSequence()", "getSelf()", "getSorter()", "true">;
def Koila_SearchsortedScalarOp : Koila_SearchOp<"searchsorted_Scalar",
  "aten::searchsorted.Scalar(Tensor sorted_sequence, Scalar self, *, bool out_int32=False, bool right=False, str? side=None, Tensor? sorter=None) -> Tensor",
  !con((ins AnyTensor:$sorted_sequence, Koila_ScalarAttr:$self), searchArgs),
  "getSortedSequence()", "{}", "getSorter()", "true">;
def Koila_BucketizeTensorOp : Koila_SearchOp<"bucketize_Tensor",
  "aten::bucketize.Tensor(Tensor self, Tensor boundaries, *, bool out_int32=False, bool right=False) -> Tensor",
  (ins AnyTensor:$self, AnyTensor:$boundaries, BoolAttr:$out_int32, BoolAttr:$right),
  "getBoundaries()", "getSelf()", "{}", "false">;
def Koila_BucketizeScalarOp : Koila_SearchOp<"bucketize_Scalar",
  "aten::bucketize.Scalar(Scalar self, Tensor boundaries, *, bool out_int32=False, bool right=False) -> Tensor",
  (ins Koila_ScalarAttr:$self, AnyTensor:$boundaries, BoolAttr:$out_int32, BoolAttr:$right),
  "getBoundaries()", "{}", "{}", "false">;

#endif // KOILA_DIALECT_KOILA_IR_SORTOPS_TD
