//===- IndexOps.td - Indexing, joining, padding, embedding -*- tablegen -*-===//
//
// The bodies of the rules are in lib/Dialect/Koila/IR/Rules{Index,Join,Scatter,
// AdvancedIndex,Mask,Rearrange,Pad,Fold,Embedding}.cpp.
//
//===----------------------------------------------------------------------===//

#ifndef KOILA_DIALECT_KOILA_IR_INDEXOPS_TD
#define KOILA_DIALECT_KOILA_IR_INDEXOPS_TD

include "koila/Dialect/Koila/IR/KoilaBase.td"

/// An operator whose shape and batch rule are one call each into
/// koila::indexing; the calls come without `rule`.
class Koila_IndexingOp<string mnemonic, string schema, string inPlace = "",
                       list<Trait> traits = []>
    : Koila_RuledOp<mnemonic, schema, inPlace, traits> {
  string shape = "";
  string batch = "";
  let shapeRule = "return ::koila::indexing::" # shape # ";";
  let batchRule = !if(!empty(batch), "",
                      "::koila::indexing::" # batch # ";");
}

/// Samples meet whatever the arguments are.
class Koila_MixingOp<string mnemonic, string schema, string why,
                     string inPlace = "", list<Trait> traits = []>
    : Koila_IndexingOp<mnemonic, schema, inPlace, traits> {
  let batchRule = "::koila::indexing::mixSamples(rule, \"" # why # "\");";
}

//===----------------------------------------------------------------------===//
// Joining
//===----------------------------------------------------------------------===//

class Koila_JoinOp<string mnemonic, string schema, string kind,
                   string joinDim = "getDim()">
    : Koila_IndexingOp<mnemonic, schema> {
  let description = [{
    One new tensor of the common element type. Extents outside the joined dim
    must agree. The batch stays if every operand carries it in the same dim,
    which is not the joined one.
  }];
  let arguments = !con((ins Variadic<AnyTensor>:$tensors),
                       !if(!eq(joinDim, "getDim()"), (ins I64Attr:$dim),
                           (ins)));
  defvar call = "getTensors(), ::koila::indexing::Join::" # kind # ", " #
                joinDim # ")";
  let shape = "inferJoin(rule, " # call;
  let batch = "inferJoinBatch(rule, " # call;
  let differentiationRule = "";
}

def Koila_CatOp : Koila_JoinOp<"cat",
  "aten::cat(Tensor[] tensors, int dim=0) -> Tensor", "Cat">;
def Koila_ConcatOp : Koila_JoinOp<"concat",
  "aten::concat(Tensor[] tensors, int dim=0) -> Tensor", "Cat">;
def Koila_ConcatenateOp : Koila_JoinOp<"concatenate",
  "aten::concatenate(Tensor[] tensors, int dim=0) -> Tensor", "Cat">;
def Koila_StackOp : Koila_JoinOp<"stack",
  "aten::stack(Tensor[] tensors, int dim=0) -> Tensor", "Stack">;
def Koila_HstackOp : Koila_JoinOp<"hstack",
  "aten::hstack(Tensor[] tensors) -> Tensor", "Horizontal", "0">;
def Koila_VstackOp : Koila_JoinOp<"vstack",
  "aten::vstack(Tensor[] tensors) -> Tensor", "Vertical", "0">;
def Koila_RowStackOp : Koila_JoinOp<"row_stack",
  "aten::row_stack(Tensor[] tensors) -> Tensor", "Vertical", "0">;
def Koila_DstackOp : Koila_JoinOp<"dstack",
  "aten::dstack(Tensor[] tensors) -> Tensor", "Depth", "2">;
def Koila_ColumnStackOp : Koila_JoinOp<"column_stack",
  "aten::column_stack(Tensor[] tensors) -> Tensor", "Column", "1">;

def Koila_BlockDiagOp : Koila_MixingOp<"block_diag",
  "aten::block_diag(Tensor[] tensors) -> Tensor",
  "block_diag gives every tensor rows and columns of its own"> {
  let description = [{
    A matrix of zeros with the operands, as matrices, along its diagonal.
    Refused are operands of more than two dims. New storage.
  }];
  let arguments = (ins Variadic<AnyTensor>:$tensors);
  let shape = "inferBlockDiag(rule, getTensors())";
}

class Koila_MeshgridFamilyOp<string mnemonic, string schema, dag extra,
                             string indexing>
    : Koila_IndexingOp<mnemonic, schema> {
  let description = [{
    A view of each operand, expanded to the extents of all of them. With
    `indexing` "xy" the first two dims change places.
  }];
  let arguments = !con((ins Variadic<AnyTensor>:$tensors), extra);
  let results = (outs Variadic<AnyTensor>:$results);
  let shape = "inferMeshgrid(rule, getTensors(), " # indexing # ")";
  let batch = "inferMeshgridBatch(rule, getTensors(), " # indexing # ")";
  let storageRule = [{
    for (auto [index, tensor] : ::llvm::enumerate(getTensors()))
      if (index < getNumResults())
        rule.setAlias(index, tensor);
  }];
  let differentiationRule = "";
}

def Koila_MeshgridOp : Koila_MeshgridFamilyOp<"meshgrid",
  "aten::meshgrid(Tensor[] tensors) -> Tensor[]", (ins), "\"ij\"">;
def Koila_MeshgridIndexingOp : Koila_MeshgridFamilyOp<"meshgrid_indexing",
  "aten::meshgrid.indexing(Tensor[] tensors, *, str indexing) -> Tensor[]",
  (ins StrAttr:$indexing), "getIndexing()">;

def Koila_CartesianProdOp : Koila_MixingOp<"cartesian_prod",
  "aten::cartesian_prod(Tensor[] tensors) -> Tensor",
  "cartesian_prod combines every element with every other"> {
  let description = [{
    One row for each combination of elements of the 1-D operands. One operand
    is returned itself.
  }];
  let arguments = (ins Variadic<AnyTensor>:$tensors);
  let shape = "inferCartesianProduct(rule, getTensors())";
  let storageRule = [{
    if (getTensors().size() == 1)
      rule.setAlias(0, getTensors().front());
  }];
}

//===----------------------------------------------------------------------===//
// Reading rows by indices
//===----------------------------------------------------------------------===//

def Koila_IndexSelectOp : Koila_IndexingOp<"index_select",
  "aten::index_select(Tensor self, int dim, Tensor index) -> Tensor"> {
  let description = [{
    The rows of dim `dim` that `index`, a vector, names. The batch stays in
    another dim of `self`, or is where the index dim is if only `index` has
    it. New storage, row-major.
  }];
  let arguments = (ins AnyTensor:$self, I64Attr:$dim, AnyTensor:$index);
  let shape = "inferIndexSelect(rule, getSelf(), getDim(), getIndex())";
  let batch = "inferIndexSelectBatch(rule, getSelf(), getDim(), getIndex())";
}

def Koila_GatherOp : Koila_IndexingOp<"gather",
  "aten::gather(Tensor self, int dim, Tensor index, *, bool sparse_grad=False) -> Tensor"> {
  let description = [{
    A tensor of the shape of `index`, whose elements are positions in dim `dim`
    of `self`. The batch stays if both have it in the same other dim, or if
    only `index` has it, in `dim`.
  }];
  let arguments = (ins AnyTensor:$self, I64Attr:$dim, AnyTensor:$index,
                       BoolAttr:$sparse_grad);
  let shape = "inferGather(rule, getSelf(), getDim(), getIndex())";
  let batch = "inferTakeAlongDimBatch(rule, getSelf(), getIndex(), getDim())";
}

def Koila_TakeAlongDimOp : Koila_IndexingOp<"take_along_dim",
  "aten::take_along_dim(Tensor self, Tensor indices, int? dim=None) -> Tensor"> {
  let description = [{
    As gather, with broadcasting outside `dim`; without `dim` over all elements
    as one vector.
  }];
  let arguments = (ins AnyTensor:$self, AnyTensor:$indices,
                       OptionalAttr<I64Attr>:$dim);
  let shape = "inferTakeAlongDim(rule, getSelf(), getIndices(), getDim())";
  let batch = "inferTakeAlongDimBatch(rule, getSelf(), getIndices(), getDim())";
  // gather keeps the tensor and the indices modulo the extent, which are new.
  let differentiationRule = [{
    rule.save(getSelf());
    if (getDim())
      rule.saveInner();
    else
      rule.save(getIndices());
  }];
}

def Koila_TakeOp : Koila_IndexingOp<"take",
  "aten::take(Tensor self, Tensor index) -> Tensor"> {
  let description = "Elements of `self` as a vector, in the shape of `index`.";
  let arguments = (ins AnyTensor:$self, AnyTensor:$index);
  let shape = "inferTake(rule, getSelf(), getIndex())";
  let batch = "inferLookupBatch(rule, getIndex(), getSelf())";
}

/// A `Tensor?[]` whose members that are None have no operand.
class Koila_AdvancedIndexOp<string mnemonic, string schema, dag more,
                            string inPlace = "", string mask = "getIndicesMask()">
    : Koila_IndexingOp<mnemonic, schema, inPlace> {
  let arguments = !con((ins AnyTensor:$self, Variadic<AnyTensor>:$indices),
                       more);
  string values = "";
  defvar call = "rule, getSelf(), getIndices(), " # mask;
  let shape = !if(!empty(values), "inferIndex(" # call # ")",
                  "inferIndexPut(" # call # ", " # values # ")");
  let batch = !if(!empty(values), "inferIndexBatch(" # call # ")",
                  "inferIndexPutBatch(" # call # ", " # values # ")");
}

def Koila_IndexTensorOp : Koila_AdvancedIndexOp<"index_Tensor",
  "aten::index.Tensor(Tensor self, Tensor?[] indices) -> Tensor",
  (ins DenseBoolArrayAttr:$indices_mask)> {
  let description = [{
    The indexed dims are replaced by the broadcast extents of the indices,
    where they stand if they are neighbours, else in front. A mask stands for
    as many dims as it has; how many elements it selects is decided by data.
    The batch stays in a dim that is not indexed, or comes from the indices.
  }];
}
def Koila_IndexHackedTwinOp : Koila_AdvancedIndexOp<"index_Tensor_hacked_twin",
  "aten::index.Tensor_hacked_twin(Tensor self, Tensor[] indices) -> Tensor",
  (ins), "", "{}"> {
  let differentiationRule = "::koila::rules::describeDerivativeAs(rule, \"index.Tensor\");";
}

def Koila_IndexPutOp : Koila_AdvancedIndexOp<"index_put",
  "aten::index_put(Tensor self, Tensor?[] indices, Tensor values, bool accumulate=False) -> Tensor",
  (ins AnyTensor:$values, DenseBoolArrayAttr:$indices_mask,
       BoolAttr:$accumulate, UnitAttr:$tied),
  "aten::index_put_(Tensor(a!) self, Tensor?[] indices, Tensor values, bool accumulate=False) -> Tensor(a!)"> {
  let description = [{
    A copy of `self`, into which `values` is written where index_Tensor reads.
    The batch stays in a dim that is not indexed, and where a mask that carries
    it selects what one number is written to.
  }];
  let values = "getValues()";
}
def Koila_IndexPutHackedTwinOp : Koila_AdvancedIndexOp<"index_put_hacked_twin",
  "aten::index_put.hacked_twin(Tensor self, Tensor[] indices, Tensor values, bool accumulate=False) -> Tensor",
  (ins AnyTensor:$values, BoolAttr:$accumulate, UnitAttr:$tied),
  "aten::index_put_.hacked_twin(Tensor(a!) self, Tensor[] indices, Tensor values, bool accumulate=False) -> Tensor(a!)",
  "{}"> {
  let values = "getValues()";
  let differentiationRule = "::koila::rules::describeDerivativeAs(rule, \"index_put\");";
}

//===----------------------------------------------------------------------===//
// Writing along a dim
//===----------------------------------------------------------------------===//

/// `source` is empty where a number is written.
class Koila_ScatterFamilyOp<string mnemonic, string schema, string inPlace,
                            string source, dag more, string check = "">
    : Koila_IndexingOp<mnemonic, schema, inPlace> {
  let description = [{
    A copy of `self`, or `self`, into which rows are written along `dim`. The
    batch stays if all operands have it in the same other dim.
  }];
  defvar isNumber = !eq(source, "value");
  let arguments = !con((ins AnyTensor:$self, I64Attr:$dim, AnyTensor:$index),
                       !if(isNumber, (ins Koila_ScalarAttr:$value),
                           (ins AnyTensor:$src)), more,
                       !if(!empty(inPlace), (ins), (ins UnitAttr:$tied)),
                       !if(isNumber, (ins Variadic<AnyType>:$dynamic), (ins)));
  let shape = "inferScatter(rule, getSelf(), getDim(), getIndex(), " #
              !if(isNumber, "{}", "getSrc()") # check # ")";
  let batch = "inferWriteBatch(rule, getSelf(), getDim(), {getIndex()" #
              !if(isNumber, "", ", getSrc()") # "}, {})";
}

defvar scatterModes = ", getReduce(), {\"add\", \"multiply\"}";
def Koila_ScatterSrcOp : Koila_ScatterFamilyOp<"scatter_src",
  "aten::scatter.src(Tensor self, int dim, Tensor index, Tensor src) -> Tensor",
  "aten::scatter_.src(Tensor(a!) self, int dim, Tensor index, Tensor src) -> Tensor(a!)",
  "src", (ins)>;
def Koila_ScatterValueOp : Koila_ScatterFamilyOp<"scatter_value",
  "aten::scatter.value(Tensor self, int dim, Tensor index, Scalar value) -> Tensor",
  "aten::scatter_.value(Tensor(a!) self, int dim, Tensor index, Scalar value) -> Tensor(a!)",
  "value", (ins)>;
def Koila_ScatterReduceOp : Koila_ScatterFamilyOp<"scatter_reduce",
  "aten::scatter.reduce(Tensor self, int dim, Tensor index, Tensor src, *, str reduce) -> Tensor",
  "aten::scatter_.reduce(Tensor(a!) self, int dim, Tensor index, Tensor src, *, str reduce) -> Tensor(a!)",
  "src", (ins StrAttr:$reduce), scatterModes>;
def Koila_ScatterValueReduceOp : Koila_ScatterFamilyOp<"scatter_value_reduce",
  "aten::scatter.value_reduce(Tensor self, int dim, Tensor index, Scalar value, *, str reduce) -> Tensor",
  "aten::scatter_.value_reduce(Tensor(a!) self, int dim, Tensor index, Scalar value, *, str reduce) -> Tensor(a!)",
  "value", (ins StrAttr:$reduce), scatterModes>;
def Koila_ScatterAddOp : Koila_ScatterFamilyOp<"scatter_add",
  "aten::scatter_add(Tensor self, int dim, Tensor index, Tensor src) -> Tensor",
  "aten::scatter_add_(Tensor(a!) self, int dim, Tensor index, Tensor src) -> Tensor(a!)",
  "src", (ins)>;
def Koila_ScatterReduceTwoOp : Koila_ScatterFamilyOp<"scatter_reduce_two",
  "aten::scatter_reduce.two(Tensor self, int dim, Tensor index, Tensor src, str reduce, *, bool include_self=True) -> Tensor",
  "aten::scatter_reduce_.two(Tensor(a!) self, int dim, Tensor index, Tensor src, str reduce, *, bool include_self=True) -> Tensor(a!)",
  "src", (ins StrAttr:$reduce, BoolAttr:$include_self),
  ", getReduce(), {\"sum\", \"prod\", \"mean\", \"amax\", \"amin\", \"max\", \"min\"}">;

/// Rows of `self` along `dim`, which a vector `index` names, are written.
class Koila_IndexWriteOp<string mnemonic, string schema, string inPlace,
                         string written>
    : Koila_IndexingOp<mnemonic, schema, inPlace> {
  let description = [{
    A copy of `self`, or `self`, of which the rows that `index` names are
    written. The batch stays in another dim than `dim` if what is written has
    it there too.
  }];
  defvar call = "rule, getSelf(), getDim(), ";
  let shape = written # "(" # call # "getIndex(), getSource())";
  let batch = "inferWriteBatch(" # call # "{getSource()}, {getIndex()})";
}

def Koila_IndexAddOp : Koila_IndexWriteOp<"index_add",
  "aten::index_add(Tensor self, int dim, Tensor index, Tensor source, *, Scalar alpha=1) -> Tensor",
  "aten::index_add_(Tensor(a!) self, int dim, Tensor index, Tensor source, *, Scalar alpha=1) -> Tensor(a!)",
  "inferIndexAdd"> {
  let arguments = (ins AnyTensor:$self, I64Attr:$dim, AnyTensor:$index,
                       AnyTensor:$source, Koila_ScalarAttr:$alpha,
                       UnitAttr:$tied, Variadic<AnyType>:$dynamic);
}
def Koila_IndexCopyOp : Koila_IndexWriteOp<"index_copy",
  "aten::index_copy(Tensor self, int dim, Tensor index, Tensor source) -> Tensor",
  "aten::index_copy_(Tensor(a!) self, int dim, Tensor index, Tensor source) -> Tensor(a!)",
  "inferIndexCopy"> {
  let arguments = (ins AnyTensor:$self, I64Attr:$dim, AnyTensor:$index,
                       AnyTensor:$source, UnitAttr:$tied);
}
def Koila_IndexFillScalarOp : Koila_IndexWriteOp<"index_fill_int_Scalar",
  "aten::index_fill.int_Scalar(Tensor self, int dim, Tensor index, Scalar value) -> Tensor",
  "aten::index_fill_.int_Scalar(Tensor(a!) self, int dim, Tensor index, Scalar value) -> Tensor(a!)",
  ""> {
  let arguments = (ins AnyTensor:$self, I64Attr:$dim, AnyTensor:$index,
                       Koila_ScalarAttr:$value, UnitAttr:$tied,
                       Variadic<AnyType>:$dynamic);
  let shape = "inferIndexFill(rule, getSelf(), getDim(), getIndex(), {})";
  let batch = "inferWriteBatch(rule, getSelf(), getDim(), {}, {getIndex()})";
}
def Koila_IndexFillTensorOp : Koila_IndexWriteOp<"index_fill_int_Tensor",
  "aten::index_fill.int_Tensor(Tensor self, int dim, Tensor index, Tensor value) -> Tensor",
  "aten::index_fill_.int_Tensor(Tensor(a!) self, int dim, Tensor index, Tensor value) -> Tensor(a!)",
  ""> {
  let arguments = (ins AnyTensor:$self, I64Attr:$dim, AnyTensor:$index,
                       AnyTensor:$value, UnitAttr:$tied);
  let shape = "inferIndexFill(rule, getSelf(), getDim(), getIndex(), getValue())";
  let batch = "inferWriteBatch(rule, getSelf(), getDim(), {}, {getIndex(), getValue()})";
}

//===----------------------------------------------------------------------===//
// Masks and counts: data decides extents
//===----------------------------------------------------------------------===//

def Koila_MaskedSelectOp : Koila_MixingOp<"masked_select",
  "aten::masked_select(Tensor self, Tensor mask) -> Tensor",
  "how many elements masked_select keeps of a sample is decided by data"> {
  let description = "The elements where `mask` is true, as a vector.";
  let arguments = (ins AnyTensor:$self, AnyTensor:$mask);
  let shape = "inferMaskedSelect(rule, getSelf(), getMask())";
}
def Koila_MaskedScatterOp : Koila_MixingOp<"masked_scatter",
  "aten::masked_scatter(Tensor self, Tensor mask, Tensor source) -> Tensor",
  "masked_scatter uses up the elements of source sample after sample",
  "aten::masked_scatter_(Tensor(a!) self, Tensor mask, Tensor source) -> Tensor(a!)"> {
  let description = [{
    A copy of `self`, or `self`; where `mask` is true, the next element of
    `source`.
  }];
  let arguments = (ins AnyTensor:$self, AnyTensor:$mask, AnyTensor:$source,
                       UnitAttr:$tied);
  let shape = "inferMaskedScatter(rule, getSelf(), getMask(), getSource())";
}

class Koila_NonzeroFamilyOp<string mnemonic, string schema>
    : Koila_MixingOp<mnemonic, schema,
        "how many elements of a sample are not zero is decided by data"> {
  let description = "The positions of the elements that are not zero.";
  let arguments = (ins AnyTensor:$self);
  let shape = "inferNonzero(rule, getSelf())";
}
def Koila_NonzeroOp : Koila_NonzeroFamilyOp<"nonzero",
  "aten::nonzero(Tensor self) -> Tensor">;
def Koila_ArgwhereOp : Koila_NonzeroFamilyOp<"argwhere",
  "aten::argwhere(Tensor self) -> Tensor">;
def Koila_NonzeroNumpyOp : Koila_NonzeroFamilyOp<"nonzero_numpy",
  "aten::nonzero_numpy(Tensor self) -> Tensor[]"> {
  let results = (outs Variadic<AnyTensor>:$results);
  let shape = "inferNonzeroNumpy(rule, getSelf())";
  // Views of one new tensor, which has a column for each.
  let storageRule = [{
    for (unsigned index = 1; index < getNumResults(); ++index)
      rule.setAlias(index, getResult(0));
  }];
}
def Koila_WhereConditionOp : Koila_NonzeroFamilyOp<"where",
  "aten::where(Tensor condition) -> Tensor[]"> {
  let arguments = (ins AnyTensor:$condition);
  let results = (outs Variadic<AnyTensor>:$results);
  let shape = "inferNonzeroNumpy(rule, getCondition())";
  // Views of one new tensor, which has a column for each.
  let storageRule = [{
    for (unsigned index = 1; index < getNumResults(); ++index)
      rule.setAlias(index, getResult(0));
  }];
}
def Koila_BincountOp : Koila_MixingOp<"bincount",
  "aten::bincount(Tensor self, Tensor? weights=None, SymInt minlength=0) -> Tensor",
  "bincount counts over all samples", "", [AttrSizedOperandSegments]> {
  let description = "How often each number occurs, or the sum of its weights.";
  let arguments = (ins AnyTensor:$self, Koila_OptionalTensor:$weights,
                       I64Attr:$minlength, Variadic<AnyType>:$dynamic);
  let shape = "inferBincount(rule, getSelf(), getWeights())";
}

//===----------------------------------------------------------------------===//
// Other orders of rows
//===----------------------------------------------------------------------===//

class Koila_FlipFamilyOp<string mnemonic, string schema, dag extra, string dims,
                         string minRank>
    : Koila_IndexingOp<mnemonic, schema> {
  let description = "A copy with the rows of some dims in reverse.";
  let arguments = !con((ins AnyTensor:$self), extra);
  let shape = "inferFlip(rule, getSelf(), " # dims # ", " # minRank # ")";
  let batch = "keepBatchOutside(rule, getSelf(), " # dims #
              ", \"flip reverses the samples\")";
  let differentiationRule = "";
}
def Koila_FlipOp : Koila_FlipFamilyOp<"flip",
  "aten::flip(Tensor self, int[] dims) -> Tensor",
  (ins DenseI64ArrayAttr:$dims), "getDims()", "0">;
def Koila_FliplrOp : Koila_FlipFamilyOp<"fliplr",
  "aten::fliplr(Tensor self) -> Tensor", (ins), "{1}", "2">;
def Koila_FlipudOp : Koila_FlipFamilyOp<"flipud",
  "aten::flipud(Tensor self) -> Tensor", (ins), "{0}", "1">;

def Koila_RollOp : Koila_IndexingOp<"roll",
  "aten::roll(Tensor self, SymInt[1] shifts, int[1] dims=[]) -> Tensor"> {
  let description = [{
    A copy with the rows of some dims moved round; without `dims` all elements
    as one vector.
  }];
  let arguments = (ins AnyTensor:$self, DenseI64ArrayAttr:$shifts,
                       DenseI64ArrayAttr:$dims, Variadic<AnyType>:$dynamic);
  let shape = "inferRoll(rule, getSelf(), getDims())";
  let batchRule = [{
    if (getDims().empty())
      return ::koila::indexing::mixSamples(
          rule, "roll without dims moves elements between samples");
    ::koila::indexing::keepBatchOutside(rule, getSelf(), getDims(),
                                        "roll moves samples");
  }];
}
def Koila_Rot90Op : Koila_IndexingOp<"rot90",
  "aten::rot90(Tensor self, int k=1, int[] dims=[0, 1]) -> Tensor"> {
  let description = "A copy turned `k` times by 90 degrees in two dims.";
  let arguments = (ins AnyTensor:$self, I64Attr:$k, DenseI64ArrayAttr:$dims);
  let shape = "inferRot90(rule, getSelf(), getK(), getDims())";
  let batch = "inferRot90Batch(rule, getSelf(), getK(), getDims())";
}

class Koila_RepeatFamilyOp<string mnemonic, string schema, dag lists,
                           string listName, string get, string padded>
    : Koila_IndexingOp<mnemonic, schema> {
  let description = [{
    `self` that many times along each dim. The batch stays in a dim that is
    repeated once; what has one row per repetition gets it from a number of
    repetitions that is the number of samples.
  }];
  let arguments = !con((ins AnyTensor:$self), lists,
                       (ins Variadic<AnyType>:$dynamic));
  let shape = "inferRepeat(rule, getSelf(), \"" # listName # "\", " # padded # ")";
  let batch = "inferRepeatBatch(rule, getSelf(), \"" # listName # "\", " # get # ")";
  let differentiationRule = "";
}
def Koila_RepeatOp : Koila_RepeatFamilyOp<"repeat",
  "aten::repeat(Tensor self, SymInt[] repeats) -> Tensor",
  (ins DenseI64ArrayAttr:$repeats), "repeats", "getRepeats()", "false">;
def Koila_TileOp : Koila_RepeatFamilyOp<"tile",
  "aten::tile(Tensor self, SymInt[] dims) -> Tensor",
  (ins DenseI64ArrayAttr:$dims), "dims", "getDims()", "true">;

def Koila_RepeatInterleaveIntOp : Koila_IndexingOp<"repeat_interleave_self_int",
  "aten::repeat_interleave.self_int(Tensor self, SymInt repeats, int? dim=None, *, SymInt? output_size=None) -> Tensor"> {
  let description = [{
    Each row of `dim` that many times, one after the other: the batch stays
    with as many rows per sample more.
  }];
  let arguments = (ins AnyTensor:$self, I64Attr:$repeats,
                       OptionalAttr<I64Attr>:$dim,
                       OptionalAttr<I64Attr>:$output_size,
                       Variadic<AnyType>:$dynamic);
  let shape = "inferRepeatInterleave(rule, getSelf(), getDim())";
  let batch = "inferRepeatInterleaveBatch(rule, getSelf(), getRepeats(), getDim())";
  let differentiationRule = "";
}
def Koila_RepeatInterleaveSelfTensorOp
    : Koila_IndexingOp<"repeat_interleave_self_Tensor",
  "aten::repeat_interleave.self_Tensor(Tensor self, Tensor repeats, int? dim=None, *, SymInt? output_size=None) -> Tensor"> {
  let description = [{
    Each row of `dim` as often as `repeats` says, which data decides. The batch
    stays in another dim.
  }];
  let arguments = (ins AnyTensor:$self, AnyTensor:$repeats,
                       OptionalAttr<I64Attr>:$dim,
                       OptionalAttr<I64Attr>:$output_size,
                       Variadic<AnyType>:$dynamic);
  let shape = "inferRepeatRows(rule, getSelf(), getRepeats(), getDim())";
  let batchRule = [{
    if (!getDim() || !rule.fact(getRepeats()).isFree())
      return ::koila::indexing::mixSamples(
          rule, "how often a sample is repeated is decided by data");
    ::koila::indexing::keepBatchOutside(
        rule, getSelf(), {static_cast<int64_t>(*getDim())},
        "how often repeat_interleave repeats samples is decided by data");
  }];
}
def Koila_RepeatInterleaveTensorOp : Koila_MixingOp<"repeat_interleave_Tensor",
  "aten::repeat_interleave.Tensor(Tensor repeats, *, SymInt? output_size=None) -> Tensor",
  "how often a sample is repeated is decided by data"> {
  let description = "The position of each element as often as it says.";
  let arguments = (ins AnyTensor:$repeats, OptionalAttr<I64Attr>:$output_size,
                       Variadic<AnyType>:$dynamic);
  let shape = "inferRepeatRows(rule, {}, getRepeats(), {})";
}

//===----------------------------------------------------------------------===//
// Padding
//===----------------------------------------------------------------------===//

/// The list pairs begin and end of dims, the last dim first.
class Koila_PadFamilyOp<string mnemonic, string schema, string listName, string get,
                        dag more>
    : Koila_IndexingOp<mnemonic, schema> {
  let description = [{
    A copy with more rows at the begin and end of some dims, or fewer. The
    batch stays in a dim that is not padded.
  }];
  let arguments = !con((ins AnyTensor:$self),
                       !if(!eq(listName, "pad"), (ins DenseI64ArrayAttr:$pad),
                           (ins DenseI64ArrayAttr:$padding)), more,
                       (ins Variadic<AnyType>:$dynamic));
  let batch = "inferPadBatch(rule, getSelf(), " # get # ")";
}
class Koila_PadListOp<string mnemonic, string schema, dag more = (ins)>
    : Koila_PadFamilyOp<mnemonic, schema, "pad", "getPad()", more>;
class Koila_WindowPadOp<string mnemonic, string schema, string mode,
                        string spatial>
    : Koila_PadFamilyOp<mnemonic, schema, "padding", "getPadding()", (ins)> {
  let shape = "inferWindowPad(rule, getSelf(), \"padding\", " #
              "::koila::indexing::Padding::" # mode # ", " # spatial # ")";
}

def Koila_PadOp : Koila_PadListOp<"pad",
  "aten::pad(Tensor self, SymInt[] pad, str mode='constant', float? value=None) -> Tensor",
  (ins StrAttr:$mode, OptionalAttr<F64Attr>:$value)> {
  let shape = "inferPad(rule, getSelf(), getMode(), getValue())";
  let differentiationRule = [{
    if (getMode() != "constant" && getMode() != "circular")
      rule.save(getSelf());
  }];
}
def Koila_ConstantPadNdOp : Koila_PadListOp<"constant_pad_nd",
  "aten::constant_pad_nd(Tensor self, SymInt[] pad, Scalar value=0) -> Tensor",
  (ins Koila_ScalarAttr:$value)> {
  let shape = "inferConstantPad(rule, getSelf())";
}
def Koila_PadCircularOp : Koila_PadListOp<"_pad_circular",
  "aten::_pad_circular(Tensor self, SymInt[] pad) -> Tensor"> {
  let shape = "inferCircularPad(rule, getSelf())";
  let differentiationRule = "";
}
def Koila_ReflectionPad1dOp : Koila_WindowPadOp<"reflection_pad1d",
  "aten::reflection_pad1d(Tensor self, SymInt[2] padding) -> Tensor", "Reflect", "1">;
def Koila_ReflectionPad2dOp : Koila_WindowPadOp<"reflection_pad2d",
  "aten::reflection_pad2d(Tensor self, SymInt[4] padding) -> Tensor", "Reflect", "2">;
def Koila_ReflectionPad3dOp : Koila_WindowPadOp<"reflection_pad3d",
  "aten::reflection_pad3d(Tensor self, SymInt[6] padding) -> Tensor", "Reflect", "3">;
def Koila_ReplicationPad1dOp : Koila_WindowPadOp<"replication_pad1d",
  "aten::replication_pad1d(Tensor self, SymInt[2] padding) -> Tensor", "Replicate", "1">;
def Koila_ReplicationPad2dOp : Koila_WindowPadOp<"replication_pad2d",
  "aten::replication_pad2d(Tensor self, SymInt[4] padding) -> Tensor", "Replicate", "2">;
def Koila_ReplicationPad3dOp : Koila_WindowPadOp<"replication_pad3d",
  "aten::replication_pad3d(Tensor self, SymInt[6] padding) -> Tensor", "Replicate", "3">;

//===----------------------------------------------------------------------===//
// Blocks and bands
//===----------------------------------------------------------------------===//

class Koila_ShuffleOp<string mnemonic, string schema, string function,
                      dag factor, string get, string dims>
    : Koila_IndexingOp<mnemonic, schema> {
  let description = "A copy with elements moved between channels and space.";
  let arguments = !con((ins AnyTensor:$self), factor);
  let shape = function # "(rule, getSelf(), " # get # ")";
  let batch = "keepBatchOutside(rule, getSelf(), " # dims # ", \"" # mnemonic #
              " moves elements between samples\")";
}
def Koila_PixelShuffleOp : Koila_ShuffleOp<"pixel_shuffle",
  "aten::pixel_shuffle(Tensor self, int upscale_factor) -> Tensor",
  "inferPixelShuffle", (ins I64Attr:$upscale_factor), "getUpscaleFactor()",
  "{-3, -2, -1}">;
def Koila_PixelUnshuffleOp : Koila_ShuffleOp<"pixel_unshuffle",
  "aten::pixel_unshuffle(Tensor self, int downscale_factor) -> Tensor",
  "inferPixelUnshuffle", (ins I64Attr:$downscale_factor),
  "getDownscaleFactor()", "{-3, -2, -1}">;
class Koila_ChannelShuffleFamilyOp<string mnemonic, string schema>
    : Koila_ShuffleOp<mnemonic, schema, "inferChannelShuffle",
                      (ins I64Attr:$groups), "getGroups()", "{1}"> {
}
def Koila_ChannelShuffleOp : Koila_ChannelShuffleFamilyOp<"channel_shuffle",
  "aten::channel_shuffle(Tensor self, SymInt groups) -> Tensor"> {
  // An empty tensor is returned itself.
  let storageRule = [{
    ::koila::TensorInfo info = rule.tensor(getSelf());
    if (info.hasRank() &&
        ::koila::product(getContext(), *info.dims).isConstant(0))
      rule.setAlias(0, getSelf());
  }];
}
def Koila_NativeChannelShuffleOp
    : Koila_ChannelShuffleFamilyOp<"native_channel_shuffle",
  "aten::native_channel_shuffle(Tensor self, SymInt groups) -> Tensor"> {
  let differentiationRule = "";
}

class Koila_FoldOp<string mnemonic, string schema, string function, dag before,
                   dag after, string rank>
    : Koila_IndexingOp<mnemonic, schema> {
  let description = [{
    Sliding blocks of an image as columns, or their sum as an image. The batch
    stays in dim 0 of an input with one.
  }];
  let arguments = !con((ins AnyTensor:$self), before,
                       (ins DenseI64ArrayAttr:$kernel_size,
                            DenseI64ArrayAttr:$dilation,
                            DenseI64ArrayAttr:$padding,
                            DenseI64ArrayAttr:$stride), after);
  let shape = function # "(rule, getSelf(), {getKernelSize(), getDilation(), " #
              "getPadding(), getStride()})";
  let batch = "inferFoldBatch(rule, getSelf(), " # rank # ")";
}
def Koila_Im2colOp : Koila_FoldOp<"im2col",
  "aten::im2col(Tensor self, int[2] kernel_size, int[2] dilation, int[2] padding, int[2] stride) -> Tensor",
  "inferIm2col", (ins), (ins), "4">;
def Koila_Col2imOp : Koila_FoldOp<"col2im",
  "aten::col2im(Tensor self, SymInt[2] output_size, int[2] kernel_size, int[2] dilation, int[2] padding, int[2] stride) -> Tensor",
  "inferCol2im", (ins DenseI64ArrayAttr:$output_size),
  (ins Variadic<AnyType>:$dynamic), "3">;

class Koila_TriangleOp<string mnemonic, string schema, string inPlace>
    : Koila_IndexingOp<mnemonic, schema, inPlace> {
  let description = [{
    A copy of `self`, or `self`, with zeros on one side of a diagonal of the
    last two dims.
  }];
  let arguments = (ins AnyTensor:$self, I64Attr:$diagonal, UnitAttr:$tied,
                       Variadic<AnyType>:$dynamic);
  let shape = "inferTriangle(rule, getSelf())";
  let batch = "keepBatchOutside(rule, getSelf(), {-2, -1}, \"" # mnemonic #
              " treats every row or column differently\")";
}
def Koila_TrilOp : Koila_TriangleOp<"tril",
  "aten::tril(Tensor self, SymInt diagonal=0) -> Tensor",
  "aten::tril_(Tensor(a!) self, SymInt diagonal=0) -> Tensor(a!)">;
def Koila_TriuOp : Koila_TriangleOp<"triu",
  "aten::triu(Tensor self, SymInt diagonal=0) -> Tensor",
  "aten::triu_(Tensor(a!) self, SymInt diagonal=0) -> Tensor(a!)">;

def Koila_DiagEmbedOp : Koila_IndexingOp<"diag_embed",
  "aten::diag_embed(Tensor self, int offset=0, int dim1=-2, int dim2=-1) -> Tensor"> {
  let description = "The last dim as a diagonal of two dims of a new tensor.";
  let arguments = (ins AnyTensor:$self, I64Attr:$offset, I64Attr:$dim1,
                       I64Attr:$dim2);
  let shape = "inferDiagEmbed(rule, getSelf(), getOffset(), getDim1(), getDim2())";
  let batch = "inferDiagEmbedBatch(rule, getSelf(), getDim1(), getDim2())";
}
def Koila_DiagOp : Koila_MixingOp<"diag",
  "aten::diag(Tensor self, int diagonal=0) -> Tensor",
  "diag relates rows to columns"> {
  let description = "A vector as a diagonal matrix, or a diagonal as a vector.";
  let arguments = (ins AnyTensor:$self, I64Attr:$diagonal);
  let shape = "inferDiag(rule, getSelf(), getDiagonal())";
  let differentiationRule = "";
}

//===----------------------------------------------------------------------===//
// Tables
//===----------------------------------------------------------------------===//

def Koila_EmbeddingOp : Koila_IndexingOp<"embedding",
  "aten::embedding(Tensor weight, Tensor indices, SymInt padding_idx=-1, bool scale_grad_by_freq=False, bool sparse=False) -> Tensor"> {
  let description = [{
    A row of `weight` for each element of `indices`, as a last dim. The batch
    is that of the indices. New storage, row-major.
  }];
  let arguments = (ins AnyTensor:$weight, AnyTensor:$indices,
                       I64Attr:$padding_idx, BoolAttr:$scale_grad_by_freq,
                       BoolAttr:$sparse);
  let shape = "inferEmbedding(rule, getWeight(), getIndices())";
  let batch = "inferLookupBatch(rule, getIndices(), getWeight())";
}
def Koila_OneHotOp : Koila_IndexingOp<"one_hot",
  "aten::one_hot(Tensor self, int num_classes=-1) -> Tensor"> {
  let description = [{
    A new last dim with a one where the element says. With `num_classes` -1
    data decides its extent, over all samples.
  }];
  let arguments = (ins AnyTensor:$self, I64Attr:$num_classes);
  let shape = "inferOneHot(rule, getSelf(), getNumClasses())";
  let batchRule = [{
    if (static_cast<int64_t>(getNumClasses()) < 0)
      return rule.mix("one_hot without num_classes looks for the largest "
                      "number over all samples");
    rule.setResult(0, rule.fact(getSelf()));
  }];
}

class Koila_EmbeddingBagFamilyOp<string mnemonic, string schema, dag more,
                                 string padding>
    : Koila_IndexingOp<mnemonic, schema> {
  let description = [{
    Sums, means or maxima of rows of `weight`, one for each bag of indices that
    begins at an element of `offsets`; and what the gradient needs. The batch is
    that of the indices where all bags are of the same size, as those of indices
    in two dims are; else data decides.
  }];
  let arguments = !con((ins AnyTensor:$weight, AnyTensor:$indices,
                            AnyTensor:$offsets,
                            Koila_OptionalTensor:$per_sample_weights,
                            BoolAttr:$scale_grad_by_freq, I64Attr:$mode,
                            BoolAttr:$sparse, BoolAttr:$include_last_offset),
                       more);
  let results = (outs AnyTensor:$output, AnyTensor:$offset2bag,
                      AnyTensor:$bag_size, AnyTensor:$max_indices);
  let shapeRule = [{
    ::koila::indexing::Bags bags{getWeight(), getIndices(), getOffsets(),
                                 getPerSampleWeights(),
                                 static_cast<int64_t>(getMode()),
                                 getIncludeLastOffset(), }] # padding # [{};
    return ::koila::indexing::inferEmbeddingBag(rule, bags);
  }];
  let batchRule = [{
    ::koila::indexing::Bags bags{getWeight(), getIndices(), getOffsets(),
                                 getPerSampleWeights(),
                                 static_cast<int64_t>(getMode()),
                                 getIncludeLastOffset(), {}};
    ::koila::indexing::inferEmbeddingBagBatch(rule, bags);
  }];
  let differentiationRule = "::koila::rules::describeEmbeddingBagDerivative(rule);";
}
def Koila_EmbeddingBagOp : Koila_EmbeddingBagFamilyOp<"embedding_bag",
  "aten::embedding_bag(Tensor weight, Tensor indices, Tensor offsets, bool scale_grad_by_freq=False, int mode=0, bool sparse=False, Tensor? per_sample_weights=None, bool include_last_offset=False) -> (Tensor, Tensor, Tensor, Tensor)",
  (ins), "{}">;
def Koila_EmbeddingBagPaddingOp
    : Koila_EmbeddingBagFamilyOp<"embedding_bag_padding_idx",
  "aten::embedding_bag.padding_idx(Tensor weight, Tensor indices, Tensor offsets, bool scale_grad_by_freq, int mode, bool sparse, Tensor? per_sample_weights, bool include_last_offset, int? padding_idx) -> (Tensor, Tensor, Tensor, Tensor)",
  (ins OptionalAttr<I64Attr>:$padding_idx), "getPaddingIdx()">;

#endif // KOILA_DIALECT_KOILA_IR_INDEXOPS_TD
