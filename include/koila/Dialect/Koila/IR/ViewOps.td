//===- ViewOps.td - Views ----------------------------------*- tablegen -*-===//

#ifndef KOILA_DIALECT_KOILA_IR_VIEWOPS_TD
#define KOILA_DIALECT_KOILA_IR_VIEWOPS_TD

include "koila/Dialect/Koila/IR/KoilaBase.td"

/// All results are views of `self`.
class Koila_AliasOp<string mnemonic, string schema, dag extra = (ins)>
    : Koila_RuledOp<mnemonic, schema> {
  let description = [{
    A view: the results share the storage of `self`, with strides of their own.
    Refused: what PyTorch refuses, where extents and dims are known. The batch
    stays with its dim as long as the whole of that dim is taken.
  }];
  let arguments = !con((ins AnyTensor:$self), extra);
  let storageRule = "::koila::rules::describeViews(rule, getSelf());";
  let differentiationRule = "::koila::rules::passFrom(rule, getSelf());";
}

defvar computedView = (ins Variadic<AnyType>:$dynamic);

//===----------------------------------------------------------------------===//
// Dims in another order, more or fewer of them
//===----------------------------------------------------------------------===//

/// `map` is C++ for the DimMap of an operand `info`, from the attributes.
class Koila_MappedOp<string mnemonic, string schema, dag extra, code map>
    : Koila_AliasOp<mnemonic, schema, extra> {
  defvar getMap = "[&](const ::koila::TensorInfo &info) { return "
                  "::koila::rules::" # map # "; }";
  let shapeRule = "return ::koila::rules::inferMapped(rule, getSelf(), " #
                  getMap # ");";
  let batchRule = "::koila::rules::inferMappedBatch(rule, getSelf(), " #
                  getMap # ");";
}

def Koila_PermuteOp : Koila_MappedOp<"permute",
  "aten::permute(Tensor(a) self, int[] dims) -> Tensor(a)",
  (ins DenseI64ArrayAttr:$dims), "mapPermute(info, getDims())">;
def Koila_TransposeOp : Koila_MappedOp<"transpose_int",
  "aten::transpose.int(Tensor(a) self, int dim0, int dim1) -> Tensor(a)",
  (ins I64Attr:$dim0, I64Attr:$dim1),
  "mapTranspose(info, getDim0(), getDim1())">;
def Koila_SwapDimsOp : Koila_MappedOp<"swapdims",
  "aten::swapdims(Tensor(a) self, int dim0, int dim1) -> Tensor(a)",
  (ins I64Attr:$dim0, I64Attr:$dim1),
  "mapTranspose(info, getDim0(), getDim1())">;
def Koila_SwapAxesOp : Koila_MappedOp<"swapaxes",
  "aten::swapaxes(Tensor(a) self, int axis0, int axis1) -> Tensor(a)",
  (ins I64Attr:$axis0, I64Attr:$axis1),
  "mapTranspose(info, getAxis0(), getAxis1())">;
def Koila_TOp : Koila_MappedOp<"t",
  "aten::t(Tensor(a) self) -> Tensor(a)", (ins), "mapMatrixTranspose(info)">;
def Koila_NumpyTOp : Koila_MappedOp<"numpy_T",
  "aten::numpy_T(Tensor(a) self) -> Tensor(a)", (ins), "mapReversed(info)">;
def Koila_MHOp : Koila_MappedOp<"mH",
  "aten::mH(Tensor(a) self) -> Tensor(a)", (ins), "mapAdjoint(info)"> {
}
def Koila_MTOp : Koila_MappedOp<"mT",
  "aten::mT(Tensor(a) self) -> Tensor(a)", (ins),
  "mapMatricesTransposed(info)">;

/// `source` and `destination` are one dim or a list of them.
class Koila_MoveDimsOp<string mnemonic, string schema, dag extra>
    : Koila_MappedOp<mnemonic, schema, extra,
                     "mapMove(info, getSource(), getDestination())">;
defvar moveOne = (ins I64Attr:$source, I64Attr:$destination);
defvar moveList = (ins DenseI64ArrayAttr:$source,
                       DenseI64ArrayAttr:$destination);
def Koila_MoveDimOp : Koila_MoveDimsOp<"movedim_int",
  "aten::movedim.int(Tensor(a) self, int source, int destination) -> Tensor(a)",
  moveOne>;
def Koila_MoveDimListOp : Koila_MoveDimsOp<"movedim_intlist",
  "aten::movedim.intlist(Tensor(a) self, int[] source, int[] destination) -> Tensor(a)",
  moveList>;
def Koila_MoveAxisOp : Koila_MoveDimsOp<"moveaxis_int",
  "aten::moveaxis.int(Tensor(a) self, int source, int destination) -> Tensor(a)",
  moveOne>;
def Koila_MoveAxisListOp : Koila_MoveDimsOp<"moveaxis_intlist",
  "aten::moveaxis.intlist(Tensor(a) self, int[] source, int[] destination) -> Tensor(a)",
  moveList>;

def Koila_UnsqueezeOp : Koila_MappedOp<"unsqueeze",
  "aten::unsqueeze(Tensor(a) self, int dim) -> Tensor(a)",
  (ins I64Attr:$dim), "mapUnsqueeze(info, getDim())">;
def Koila_SqueezeOp : Koila_MappedOp<"squeeze",
  "aten::squeeze(Tensor(a) self) -> Tensor(a)", (ins), "mapSqueeze(info)">;
def Koila_SqueezeDimOp : Koila_MappedOp<"squeeze_dim",
  "aten::squeeze.dim(Tensor(a) self, int dim) -> Tensor(a)",
  (ins I64Attr:$dim), "mapSqueeze(info, getDim())">;
def Koila_SqueezeDimsOp : Koila_MappedOp<"squeeze_dims",
  "aten::squeeze.dims(Tensor(a) self, int[] dim) -> Tensor(a)",
  (ins DenseI64ArrayAttr:$dim), "mapSqueeze(info, getDim())">;

def Koila_DetachOp : Koila_MappedOp<"detach",
  "aten::detach(Tensor(a) self) -> Tensor(a)", (ins), "mapAll(info)"> {
  let differentiationRule = "rule.setDetached();";
}
def Koila_LazyConjOp : Koila_MappedOp<"_conj",
  "aten::_conj(Tensor(a) self) -> Tensor(a)", (ins), "mapAll(info)"> {
  let shapeRule = "return ::koila::rules::inferLazyConj(rule, getSelf());";
}
def Koila_AliasOperatorOp : Koila_MappedOp<"alias",
  "aten::alias(Tensor(a) self) -> Tensor(a)", (ins), "mapAll(info)">;

/// New dims of extent one until there are `least`.
class Koila_AtLeastOp<int least>
    : Koila_MappedOp<"atleast_" # least # "d",
        "aten::atleast_" # least # "d(Tensor self) -> Tensor", (ins),
        "mapAtLeast(info, " # least # ")">;
class Koila_AtLeastSequenceOp<int least>
    : Koila_RuledOp<"atleast_" # least # "d_Sequence",
        "aten::atleast_" # least #
        "d.Sequence(Tensor[] tensors) -> Tensor[]"> {
  let description = [{
    A view of each tensor, with new dims of extent one until there are enough.
    The batch stays with its dim.
  }];
  let arguments = (ins Variadic<AnyTensor>:$tensors);
  let results = (outs Variadic<AnyTensor>:$results);
  let shapeRule = "return ::koila::rules::inferAtLeast(rule, getTensors(), " #
                  least # ");";
  let batchRule = "::koila::rules::inferAtLeastBatch(rule, getTensors(), " #
                  least # ");";
  let storageRule = [{
    for (auto [index, tensor] : ::llvm::enumerate(getTensors()))
      if (index < getNumResults())
        rule.setAlias(index, tensor);
  }];
  let differentiationRule = "";
}
def Koila_AtLeast1DOp : Koila_AtLeastOp<1>;
def Koila_AtLeast2DOp : Koila_AtLeastOp<2>;
def Koila_AtLeast3DOp : Koila_AtLeastOp<3>;
def Koila_AtLeast1DSequenceOp : Koila_AtLeastSequenceOp<1>;
def Koila_AtLeast2DSequenceOp : Koila_AtLeastSequenceOp<2>;
def Koila_AtLeast3DSequenceOp : Koila_AtLeastSequenceOp<3>;

//===----------------------------------------------------------------------===//
// A part of a dim
//===----------------------------------------------------------------------===//

def Koila_SelectOp : Koila_MappedOp<"select_int",
  "aten::select.int(Tensor(a) self, int dim, SymInt index) -> Tensor(a)",
  !con((ins I64Attr:$dim, I64Attr:$index), computedView),
  "mapSelect(info, getDim())"> {
  let shapeRule = "return ::koila::rules::inferSelect(rule, getSelf(), getDim());";
}

def Koila_UnbindOp : Koila_MappedOp<"unbind_int",
  "aten::unbind.int(Tensor(a -> *) self, int dim=0) -> Tensor(a)[]",
  (ins I64Attr:$dim), "mapSelect(info, getDim())"> {
  let results = (outs Variadic<AnyTensor>:$results);
  let shapeRule = "return ::koila::rules::inferUnbind(rule, getSelf(), getDim());";
}

class Koila_SliceFamilyOp<string mnemonic, string schema, dag extra>
    : Koila_AliasOp<mnemonic, schema, !con(extra, computedView)> {
  let batchRule = "::koila::rules::inferSliceBatch(rule, getSelf());";
}

def Koila_SliceOp : Koila_SliceFamilyOp<"slice_Tensor",
  "aten::slice.Tensor(Tensor(a) self, int dim=0, SymInt? start=None, SymInt? end=None, SymInt step=1) -> Tensor(a)",
  (ins I64Attr:$dim, OptionalAttr<I64Attr>:$start, OptionalAttr<I64Attr>:$end,
       I64Attr:$step)> {
  let shapeRule = "return ::koila::rules::inferSlice(rule, getSelf(), getDim());";
}

def Koila_NarrowOp : Koila_SliceFamilyOp<"narrow",
  "aten::narrow(Tensor(a) self, int dim, SymInt start, SymInt length) -> Tensor(a)",
  (ins I64Attr:$dim, I64Attr:$start, I64Attr:$length)> {
  let shapeRule = "return ::koila::rules::inferNarrow(rule, getSelf(), getDim());";
}

/// A list of parts of `dim`. `lengths` is C++ for their extents.
class Koila_SplitFamilyOp<string mnemonic, string schema, dag extra,
                          code lengths>
    : Koila_AliasOp<mnemonic, schema, !con(extra, computedView)> {
  let results = (outs Variadic<AnyTensor>:$results);
  let shapeRule = [{
    return ::koila::rules::inferSplit(rule, getSelf(), getDim(),
                                      [&](::koila::DimExpr extent) {
      return ::koila::rules::}] # lengths # [{;
    });
  }];
  let batchRule = "::koila::rules::inferSplitBatch(rule, getSelf(), getDim());";
}

class Koila_SplitSizeOp<string mnemonic, string schema>
    : Koila_SplitFamilyOp<mnemonic, schema,
        (ins I64Attr:$split_size, I64Attr:$dim),
        "splitBySize(rule, extent, rule.integerArgument(\"split_size\"))">;
def Koila_SplitOp : Koila_SplitSizeOp<"split_Tensor",
  "aten::split.Tensor(Tensor(a -> *) self, SymInt split_size, int dim=0) -> Tensor(a)[]">;
def Koila_UnsafeSplitOp : Koila_SplitSizeOp<"unsafe_split_Tensor",
  "aten::unsafe_split.Tensor(Tensor self, SymInt split_size, int dim=0) -> Tensor[]">;

class Koila_SplitSizesOp<string mnemonic, string schema, string name>
    : Koila_SplitFamilyOp<mnemonic, schema,
        !con(!dag(ins, [DenseI64ArrayAttr], [name]), (ins I64Attr:$dim)),
        "splitBySizes(rule, extent, rule.integerList(\"" # name # "\"))">;
def Koila_SplitListOp : Koila_SplitSizesOp<"split",
  "aten::split(Tensor(a -> *) self, int[] split_sizes, int dim=0) -> Tensor(a)[]",
  "split_sizes">;
def Koila_SplitSizesListOp : Koila_SplitSizesOp<"split_sizes",
  "aten::split.sizes(Tensor(a -> *) self, SymInt[] split_size, int dim=0) -> Tensor(a)[]",
  "split_size">;
def Koila_SplitWithSizesOp : Koila_SplitSizesOp<"split_with_sizes",
  "aten::split_with_sizes(Tensor(a -> *) self, SymInt[] split_sizes, int dim=0) -> Tensor(a)[]",
  "split_sizes">;
def Koila_UnsafeSplitWithSizesOp : Koila_SplitSizesOp<"unsafe_split_with_sizes",
  "aten::unsafe_split_with_sizes(Tensor self, SymInt[] split_sizes, int dim=0) -> Tensor[]",
  "split_sizes">;

class Koila_ChunkFamilyOp<string mnemonic, string schema>
    : Koila_SplitFamilyOp<mnemonic, schema, (ins I64Attr:$chunks, I64Attr:$dim),
        "splitByChunks(rule, extent, rule.integerArgument(\"chunks\"))">;
def Koila_ChunkOp : Koila_ChunkFamilyOp<"chunk",
  "aten::chunk(Tensor(a -> *) self, int chunks, int dim=0) -> Tensor(a)[]">;
def Koila_UnsafeChunkOp : Koila_ChunkFamilyOp<"unsafe_chunk",
  "aten::unsafe_chunk(Tensor self, int chunks, int dim=0) -> Tensor[]">;

def Koila_TensorSplitOp : Koila_SplitFamilyOp<"tensor_split_sections",
  "aten::tensor_split.sections(Tensor(a -> *) self, SymInt sections, int dim=0) -> Tensor(a)[]",
  (ins I64Attr:$sections, I64Attr:$dim),
  "splitBySections(rule, extent, rule.integerArgument(\"sections\"))">;

//===----------------------------------------------------------------------===//
// Views that put elements together anew
//===----------------------------------------------------------------------===//

def Koila_UnfoldOp : Koila_AliasOp<"unfold",
  "aten::unfold(Tensor(a) self, int dimension, int size, int step) -> Tensor(a)",
  (ins I64Attr:$dimension, I64Attr:$size, I64Attr:$step)> {
  let shapeRule = [{
    return ::koila::rules::inferUnfold(rule, getSelf(), getDimension(),
                                       getSize(), getStep());
  }];
  let batchRule = [{
    ::koila::rules::inferSplitBatch(rule, getSelf(), getDimension());
  }];
}

def Koila_DiagonalOp : Koila_AliasOp<"diagonal",
  "aten::diagonal(Tensor(a) self, int offset=0, int dim1=0, int dim2=1) -> Tensor(a)",
  (ins I64Attr:$offset, I64Attr:$dim1, I64Attr:$dim2)> {
  let shapeRule = [{
    return ::koila::rules::inferDiagonal(rule, getSelf(), getOffset(),
                                         getDim1(), getDim2());
  }];
  let batchRule = [{
    ::koila::rules::inferDiagonalBatch(rule, getSelf(), getDim1(), getDim2());
  }];
}

/// Extents and strides as they are given; `offset` is the name of that
/// argument, if there is one.
class Koila_StridedOp<string mnemonic, string schema, dag offset>
    : Koila_AliasOp<mnemonic, schema,
        !con((ins DenseI64ArrayAttr:$size, DenseI64ArrayAttr:$stride), offset,
             computedView)> {
  let shapeRule = "return ::koila::rules::inferAsStrided(rule, getSelf());";
  let batchRule = "::koila::rules::inferAsStridedBatch(rule, getSelf());";
}
def Koila_AsStridedOp : Koila_StridedOp<"as_strided",
  "aten::as_strided(Tensor(a) self, SymInt[] size, SymInt[] stride, SymInt? storage_offset=None) -> Tensor(a)",
  (ins OptionalAttr<I64Attr>:$storage_offset)>;
def Koila_ReshapeAliasOp : Koila_StridedOp<"_reshape_alias",
  "aten::_reshape_alias(Tensor(a) self, SymInt[] size, SymInt[] stride) -> Tensor(a)",
  (ins)>;

//===----------------------------------------------------------------------===//
// Repetition without a copy
//===----------------------------------------------------------------------===//

def Koila_ExpandOp : Koila_AliasOp<"expand",
  "aten::expand(Tensor(a) self, SymInt[] size, *, bool implicit=False) -> Tensor(a)",
  (ins DenseI64ArrayAttr:$size, BoolAttr:$implicit,
       Variadic<AnyType>:$dynamic)> {
  let shapeRule = [{
    return ::koila::rules::inferExpand(rule, getSelf(),
                                       rule.integerList("size"));
  }];
  let batchRule = "::koila::rules::inferExpandBatch(rule, getSelf(), {});";
}

def Koila_BroadcastToOp : Koila_AliasOp<"broadcast_to",
  "aten::broadcast_to(Tensor(a) self, SymInt[] size) -> Tensor(a)",
  (ins DenseI64ArrayAttr:$size, Variadic<AnyType>:$dynamic)> {
  let shapeRule = [{
    return ::koila::rules::inferExpand(rule, getSelf(),
                                       rule.integerList("size"));
  }];
  let batchRule = "::koila::rules::inferExpandBatch(rule, getSelf(), {});";
}

def Koila_ExpandAsOp : Koila_AliasOp<"expand_as",
  "aten::expand_as(Tensor(a) self, Tensor other) -> Tensor(a)",
  (ins AnyTensor:$other)> {
  let shapeRule = [{
    return ::koila::rules::inferExpand(rule, getSelf(),
                                       rule.tensor(getOther()).dims);
  }];
  let batchRule = [{
    ::koila::rules::inferExpandBatch(rule, getSelf(), getOther());
  }];
}

def Koila_BroadcastTensorsOp : Koila_RuledOp<"broadcast_tensors",
  "aten::broadcast_tensors(Tensor[] tensors) -> Tensor[]"> {
  let description = [{
    Each tensor expanded to the extents that all broadcast to. Refused: extents
    that are known to differ and are not one. The batch is where it is in the
    operands that carry it. Views.
  }];
  let arguments = (ins Variadic<AnyTensor>:$tensors);
  let results = (outs Variadic<AnyTensor>:$results);
  let shapeRule = [{
    return ::koila::rules::inferBroadcastTensors(rule, getTensors());
  }];
  let batchRule = [{
    ::koila::rules::inferBroadcastBatch(
        rule, ::llvm::SmallVector<::mlir::Value>(getTensors()));
  }];
  let storageRule = [{
    for (auto [index, tensor] : ::llvm::enumerate(getTensors()))
      if (index < getNumResults())
        rule.setAlias(index, tensor);
  }];
  let differentiationRule = "";
}

//===----------------------------------------------------------------------===//
// Other extents over the same elements
//===----------------------------------------------------------------------===//

/// Members set the shape rule; the batch follows from the extents.
class Koila_ReshapeFamilyOp<string mnemonic, string schema, dag extra,
                            string other = "{}">
    : Koila_AliasOp<mnemonic, schema, extra> {
  let description = [{
    One extent may be -1 and is what is left. Refused: sizes whose product is
    known to differ, also those that hold for one batch only, and views that
    the strides of `self` do not allow. The batch stays if the result has a dim
    that starts with it, after as many elements as in `self`.
  }];
  let batchRule = "::koila::rules::inferReshapeBatch(rule, getSelf(), " #
                  other # ");";
  let differentiationRule = "::koila::rules::passFrom(rule, getSelf());";
}

/// Takes a list of sizes, of which any may be an SSA value.
class Koila_SizesOp<string mnemonic, string schema, string name,
                    string layout>
    : Koila_ReshapeFamilyOp<mnemonic, schema,
        !con(!dag(ins, [DenseI64ArrayAttr], [name]), computedView)> {
  let assemblyFormat = [{
    $self (`sizes` `(` $dynamic^ `)`)? attr-dict
    `:` functional-type(operands, results)
  }];
  let shapeRule = "return ::koila::rules::inferReshape(rule, getSelf(), \"" #
                  name # "\", ::koila::rules::ReshapeLayout::" # layout # ");";
}

/// An alias where the strides allow, a copy otherwise.
class Koila_SizesCopyOp<string mnemonic, string schema, string name>
    : Koila_SizesOp<mnemonic, schema, name, "ViewOrCopy"> {
  let storageRule = "::koila::rules::describeReshapeStorage(rule, getSelf());";
}

def Koila_ViewOp : Koila_SizesOp<"view",
  "aten::view(Tensor(a) self, SymInt[] size) -> Tensor(a)", "size", "View">;
def Koila_UnsafeViewOp : Koila_SizesOp<"_unsafe_view",
  "aten::_unsafe_view(Tensor self, SymInt[] size) -> Tensor", "size", "View">;
def Koila_ReshapeOp : Koila_SizesCopyOp<"reshape",
  "aten::reshape(Tensor(a) self, SymInt[] shape) -> Tensor(a)", "shape">;

def Koila_ViewAsOp : Koila_ReshapeFamilyOp<"view_as",
  "aten::view_as(Tensor(a) self, Tensor other) -> Tensor(a)",
  (ins AnyTensor:$other), "getOther()"> {
  let shapeRule = [{
    return ::koila::rules::inferReshape(rule, getSelf(),
                                        rule.tensor(getOther()).dims,
                                        ::koila::rules::ReshapeLayout::View);
  }];
}
def Koila_ReshapeAsOp : Koila_ReshapeFamilyOp<"reshape_as",
  "aten::reshape_as(Tensor(a) self, Tensor other) -> Tensor(a)",
  (ins AnyTensor:$other), "getOther()"> {
  let shapeRule = [{
    return ::koila::rules::inferReshape(
        rule, getSelf(), rule.tensor(getOther()).dims,
        ::koila::rules::ReshapeLayout::ViewOrCopy);
  }];
  let storageRule = "::koila::rules::describeReshapeStorage(rule, getSelf());";
}

def Koila_FlattenOp : Koila_ReshapeFamilyOp<"flatten_using_ints",
  "aten::flatten.using_ints(Tensor(a) self, int start_dim=0, int end_dim=-1) -> Tensor(a)",
  (ins DefaultValuedAttr<I64Attr, "0">:$start_dim,
       DefaultValuedAttr<I64Attr, "-1">:$end_dim)> {
  let summary = "merges neighbouring dims";
  let description = [{
    Dims `start_dim` to `end_dim` become one, whose extent is their product.
    The batch stays if it is before the merged dims or the first of them. An
    alias where the strides allow, as they do for contiguous tensors; a copy
    otherwise.
  }];
  let assemblyFormat = "$self attr-dict `:` functional-type($self, $result)";
  let shapeRule = [{
    return ::koila::rules::inferFlatten(rule, getSelf(), getStartDim(),
                                        getEndDim());
  }];
  let storageRule = "::koila::rules::describeReshapeStorage(rule, getSelf());";
}

def Koila_RavelOp : Koila_ReshapeFamilyOp<"ravel",
  "aten::ravel(Tensor(a) self) -> Tensor(a)", (ins)> {
  let shapeRule = [{
    return ::koila::rules::inferReshape(
        rule, getSelf(), ::koila::rules::Sizes({rule.constant(-1)}),
        ::koila::rules::ReshapeLayout::Contiguous);
  }];
  let storageRule = "::koila::rules::describeRavelStorage(rule, getSelf());";
}

def Koila_UnflattenOp : Koila_ReshapeFamilyOp<"unflatten_int",
  "aten::unflatten.int(Tensor(a) self, int dim, SymInt[] sizes) -> Tensor(a)",
  (ins I64Attr:$dim, DenseI64ArrayAttr:$sizes, Variadic<AnyType>:$dynamic)> {
  let shapeRule = [{
    return ::koila::rules::inferUnflatten(rule, getSelf(), getDim());
  }];
}

//===----------------------------------------------------------------------===//
// Other element types over the same bytes
//===----------------------------------------------------------------------===//

class Koila_TypeViewOp<string mnemonic, string schema, code shape,
                       dag extra = (ins)>
    : Koila_AliasOp<mnemonic, schema, extra> {
  let shapeRule = "return ::koila::rules::" # shape # ";";
  let batchRule = "::koila::rules::inferTypeViewBatch(rule, getSelf());";
  let differentiationRule = "";
}

def Koila_ViewDtypeOp : Koila_TypeViewOp<"view_dtype",
  "aten::view.dtype(Tensor(a) self, ScalarType dtype) -> Tensor(a)",
  "inferViewDtype(rule, getSelf(), getDtype())", (ins I64Attr:$dtype)>;
def Koila_ViewAsRealOp : Koila_TypeViewOp<"view_as_real",
  "aten::view_as_real(Tensor(a) self) -> Tensor(a)",
  "inferViewAsReal(rule, getSelf())">;
def Koila_ViewAsComplexOp : Koila_TypeViewOp<"view_as_complex",
  "aten::view_as_complex(Tensor(a) self) -> Tensor(a)",
  "inferViewAsComplex(rule, getSelf())">;
def Koila_RealOp : Koila_TypeViewOp<"real",
  "aten::real(Tensor(a) self) -> Tensor(a)",
  "inferComplexPart(rule, getSelf(), /*imaginary=*/false)">;
def Koila_ImagOp : Koila_TypeViewOp<"imag",
  "aten::imag(Tensor(a) self) -> Tensor(a)",
  "inferComplexPart(rule, getSelf(), /*imaginary=*/true)">;

//===----------------------------------------------------------------------===//
// Integers about tensors
//===----------------------------------------------------------------------===//

/// Of the batch dim, an extent is the number of samples here: in a tile, the
/// size of the tile.
class Koila_IntegerOp<string mnemonic, string schema, dag extra = (ins)>
    : Koila_RuledOp<mnemonic, schema> {
  let description = [{
    An integer, or a list of them, whose value is a dim expression. Of the
    batch dim, it is the number of samples here: in a tile, the size of the
    tile.
  }];
  let arguments = !con((ins AnyTensor:$self), extra);
  let results = (outs I64:$result);
  let assemblyFormat = "$self attr-dict `:` functional-type($self, $result)";
  let storageRule = "rule.setKeeps(0);";
}

def Koila_SizeIntOp : Koila_IntegerOp<"size_int",
  "aten::size.int(Tensor self, int dim) -> int", (ins I64Attr:$dim)> {
  let summary = "the extent of one dim";
  let shapeRule = "return ::koila::rules::inferSizeInt(rule, getSelf(), getDim());";
  let batchRule = "::koila::rules::inferSizeIntBatch(rule, getSelf(), getDim());";
}
def Koila_SizeOp : Koila_IntegerOp<"size",
  "aten::size(Tensor self) -> int[]"> {
  let summary = "the extents of all dims";
  let results = (outs Koila_ListType:$result);
  let shapeRule = "return ::koila::rules::inferSizes(rule, getSelf());";
  // The element at the batch dim is a number of samples.
  let batchRule = "rule.setResult(0, rule.fact(getSelf()));";
}
def Koila_NumelOp : Koila_IntegerOp<"numel",
  "aten::numel(Tensor self) -> int"> {
  let summary = "the number of elements";
  let shapeRule = [{
    if (auto dims = rule.tensor(getSelf()).dims)
      rule.setInteger(0, ::koila::product(rule.getContext(), *dims));
    return ::mlir::success();
  }];
  let batchRule = "::koila::rules::inferNumelBatch(rule, getSelf());";
}
/// What a tensor is, whatever its extents are.
class Koila_PropertyOp<string mnemonic, string schema>
    : Koila_IntegerOp<mnemonic, schema> {
  let batchRule = [{
    (void)rule.fact(getSelf());
    rule.setResult(0, ::koila::BatchFact::free());
  }];
}
def Koila_DimOp : Koila_PropertyOp<"dim", "aten::dim(Tensor self) -> int"> {
  let summary = "the number of dims";
  let shapeRule = [{
    if (auto dims = rule.tensor(getSelf()).dims)
      rule.setInteger(0, rule.constant(dims->size()));
    return ::mlir::success();
  }];
}
def Koila_DeviceOp
    : Koila_PropertyOp<"device", "prim::device(Tensor a) -> Device"> {
  let summary = "the device of a tensor";
  let results = (outs Koila_TorchType:$result);
}

def Koila_NumToTensorOp : Koila_RuledOp<"num_to_tensor",
  "prim::NumToTensor.Scalar(Scalar a) -> Tensor"> {
  let description = [{
    A number as a 0-dim tensor, as tracing makes them of sizes. int64, float64
    or bool, as the number is. What is known of an integer stays known. The number
    is the last operand; before it stand the tensors out of which the program
    computed it, which live until the result is there. `wraps`: so does a
    literal that LibTorch's executor makes a 0-dim tensor of for the call.
  }];
  let arguments = (ins Koila_ScalarAttr:$a, UnitAttr:$wraps,
                       Variadic<AnyType>:$dynamic);
  let extraClassDeclaration = baseDeclaration # [{
    /// The number if it is a computed integer, else null.
    ::mlir::Value getComputedInteger();
  }];
  let shapeRule = [{
    rule.setResult(0, ::koila::TensorInfo::contiguous({}, rule.numberType("a")));
    rule.setInteger(0, rule.integerArgument("a"));
    return ::mlir::success();
  }];
  let batchRule = [{
    (void)rule.argumentFact("a");
    rule.mix("the number of samples is computed with; a tile has another one");
  }];
  let storageRule = "::koila::rules::describeNumberStorage(rule);";
  let differentiationRule = "rule.setDetached();";
}

#endif // KOILA_DIALECT_KOILA_IR_VIEWOPS_TD
