//===- ResampleOps.td - Resampling, sampling at a grid -----*- tablegen -*-===//

#ifndef KOILA_DIALECT_KOILA_IR_RESAMPLEOPS_TD
#define KOILA_DIALECT_KOILA_IR_RESAMPLEOPS_TD

include "koila/Dialect/Koila/IR/KoilaBase.td"

//===----------------------------------------------------------------------===//
// Resizing
//===----------------------------------------------------------------------===//

/// Resizes the trailing `rank` dims of a batched image.
class Koila_ResizeOp<string mnemonic, string schema, int rank, dag args>
    : Koila_RuledOp<mnemonic, schema> {
  let description = [{
    The spatial extents become `output_size`, or the input's times
    `scale_factors`, rounded down. Refused: empty images. The batch stays in
    dim 0, or among the channels. New storage, channels-last if the input is.
  }];
  let arguments = args;
  let shapeRule = "return ::koila::rules::inferResize(rule, " # rank # ");";
  let batchRule = "::koila::rules::inferResizeBatch(rule, " # rank # ");";
  let differentiationRule = "";
}

/// To `output_size`; the scales only place the samples.
class Koila_ResizeToOp<string mnemonic, string schema, int rank, dag mode,
                       dag scales>
    : Koila_ResizeOp<mnemonic, schema, rank,
          !con((ins AnyTensor:$self, DenseI64ArrayAttr:$output_size), mode,
               scales, (ins Variadic<AnyType>:$dynamic))>;
/// To `output_size` or by `scale_factors`.
class Koila_ResizeByOp<string mnemonic, string schema, int rank, dag mode>
    : Koila_ResizeOp<mnemonic, schema, rank,
          !con((ins AnyTensor:$input,
                    OptionalAttr<DenseI64ArrayAttr>:$output_size), mode,
               (ins OptionalAttr<DenseF64ArrayAttr>:$scale_factors,
                    Variadic<AnyType>:$dynamic))>;

defvar alignArg = (ins BoolAttr:$align_corners);
defvar scaleArg = (ins OptionalAttr<F64Attr>:$scales);
defvar scale2dArgs = (ins OptionalAttr<F64Attr>:$scales_h,
                          OptionalAttr<F64Attr>:$scales_w);
defvar scale3dArgs = !con((ins OptionalAttr<F64Attr>:$scales_d), scale2dArgs);

def Koila_UpsampleNearest1dOp : Koila_ResizeToOp<"upsample_nearest1d",
  "aten::upsample_nearest1d(Tensor self, SymInt[1] output_size, float? scales=None) -> Tensor",
  1, (ins), scaleArg>;
def Koila_UpsampleNearest1dVecOp : Koila_ResizeByOp<"upsample_nearest1d_vec",
  "aten::upsample_nearest1d.vec(Tensor input, SymInt[]? output_size, float[]? scale_factors) -> Tensor",
  1, (ins)>;
def Koila_UpsampleNearest2dOp : Koila_ResizeToOp<"upsample_nearest2d",
  "aten::upsample_nearest2d(Tensor self, SymInt[2] output_size, float? scales_h=None, float? scales_w=None) -> Tensor",
  2, (ins), scale2dArgs>;
def Koila_UpsampleNearest2dVecOp : Koila_ResizeByOp<"upsample_nearest2d_vec",
  "aten::upsample_nearest2d.vec(Tensor input, SymInt[]? output_size, float[]? scale_factors) -> Tensor",
  2, (ins)>;
def Koila_UpsampleNearest3dOp : Koila_ResizeToOp<"upsample_nearest3d",
  "aten::upsample_nearest3d(Tensor self, SymInt[3] output_size, float? scales_d=None, float? scales_h=None, float? scales_w=None) -> Tensor",
  3, (ins), scale3dArgs>;
def Koila_UpsampleNearest3dVecOp : Koila_ResizeByOp<"upsample_nearest3d_vec",
  "aten::upsample_nearest3d.vec(Tensor input, SymInt[]? output_size, float[]? scale_factors) -> Tensor",
  3, (ins)>;

def Koila_UpsampleNearestExact1dOp : Koila_ResizeToOp<"_upsample_nearest_exact1d",
  "aten::_upsample_nearest_exact1d(Tensor self, SymInt[1] output_size, float? scales=None) -> Tensor",
  1, (ins), scaleArg>;
def Koila_UpsampleNearestExact1dVecOp : Koila_ResizeByOp<"_upsample_nearest_exact1d_vec",
  "aten::_upsample_nearest_exact1d.vec(Tensor input, SymInt[]? output_size, float[]? scale_factors) -> Tensor",
  1, (ins)>;
def Koila_UpsampleNearestExact2dOp : Koila_ResizeToOp<"_upsample_nearest_exact2d",
  "aten::_upsample_nearest_exact2d(Tensor self, SymInt[2] output_size, float? scales_h=None, float? scales_w=None) -> Tensor",
  2, (ins), scale2dArgs>;
def Koila_UpsampleNearestExact2dVecOp : Koila_ResizeByOp<"_upsample_nearest_exact2d_vec",
  "aten::_upsample_nearest_exact2d.vec(Tensor input, SymInt[]? output_size, float[]? scale_factors) -> Tensor",
  2, (ins)>;
def Koila_UpsampleNearestExact3dOp : Koila_ResizeToOp<"_upsample_nearest_exact3d",
  "aten::_upsample_nearest_exact3d(Tensor self, SymInt[3] output_size, float? scales_d=None, float? scales_h=None, float? scales_w=None) -> Tensor",
  3, (ins), scale3dArgs>;
def Koila_UpsampleNearestExact3dVecOp : Koila_ResizeByOp<"_upsample_nearest_exact3d_vec",
  "aten::_upsample_nearest_exact3d.vec(Tensor input, SymInt[]? output_size, float[]? scale_factors) -> Tensor",
  3, (ins)>;

def Koila_UpsampleLinear1dOp : Koila_ResizeToOp<"upsample_linear1d",
  "aten::upsample_linear1d(Tensor self, SymInt[1] output_size, bool align_corners, float? scales=None) -> Tensor",
  1, alignArg, scaleArg>;
def Koila_UpsampleLinear1dVecOp : Koila_ResizeByOp<"upsample_linear1d_vec",
  "aten::upsample_linear1d.vec(Tensor input, SymInt[]? output_size, bool align_corners, float[]? scale_factors) -> Tensor",
  1, alignArg>;
def Koila_UpsampleBilinear2dOp : Koila_ResizeToOp<"upsample_bilinear2d",
  "aten::upsample_bilinear2d(Tensor self, SymInt[2] output_size, bool align_corners, float? scales_h=None, float? scales_w=None) -> Tensor",
  2, alignArg, scale2dArgs>;
def Koila_UpsampleBilinear2dVecOp : Koila_ResizeByOp<"upsample_bilinear2d_vec",
  "aten::upsample_bilinear2d.vec(Tensor input, SymInt[]? output_size, bool align_corners, float[]? scale_factors) -> Tensor",
  2, alignArg>;
def Koila_UpsampleTrilinear3dOp : Koila_ResizeToOp<"upsample_trilinear3d",
  "aten::upsample_trilinear3d(Tensor self, SymInt[3] output_size, bool align_corners, float? scales_d=None, float? scales_h=None, float? scales_w=None) -> Tensor",
  3, alignArg, scale3dArgs>;
def Koila_UpsampleTrilinear3dVecOp : Koila_ResizeByOp<"upsample_trilinear3d_vec",
  "aten::upsample_trilinear3d.vec(Tensor input, SymInt[]? output_size, bool align_corners, float[]? scale_factors) -> Tensor",
  3, alignArg>;
def Koila_UpsampleBicubic2dOp : Koila_ResizeToOp<"upsample_bicubic2d",
  "aten::upsample_bicubic2d(Tensor self, SymInt[2] output_size, bool align_corners, float? scales_h=None, float? scales_w=None) -> Tensor",
  2, alignArg, scale2dArgs>;
def Koila_UpsampleBicubic2dVecOp : Koila_ResizeByOp<"upsample_bicubic2d_vec",
  "aten::upsample_bicubic2d.vec(Tensor input, SymInt[]? output_size, bool align_corners, float[]? scale_factors) -> Tensor",
  2, alignArg>;
def Koila_UpsampleBilinear2dAaOp : Koila_ResizeToOp<"_upsample_bilinear2d_aa",
  "aten::_upsample_bilinear2d_aa(Tensor self, SymInt[2] output_size, bool align_corners, float? scales_h=None, float? scales_w=None) -> Tensor",
  2, alignArg, scale2dArgs>;
def Koila_UpsampleBilinear2dAaVecOp : Koila_ResizeByOp<"_upsample_bilinear2d_aa_vec",
  "aten::_upsample_bilinear2d_aa.vec(Tensor input, SymInt[]? output_size, bool align_corners, float[]? scale_factors) -> Tensor",
  2, alignArg>;
def Koila_UpsampleBicubic2dAaOp : Koila_ResizeToOp<"_upsample_bicubic2d_aa",
  "aten::_upsample_bicubic2d_aa(Tensor self, SymInt[2] output_size, bool align_corners, float? scales_h=None, float? scales_w=None) -> Tensor",
  2, alignArg, scale2dArgs>;
def Koila_UpsampleBicubic2dAaVecOp : Koila_ResizeByOp<"_upsample_bicubic2d_aa_vec",
  "aten::_upsample_bicubic2d_aa.vec(Tensor input, SymInt[]? output_size, bool align_corners, float[]? scale_factors) -> Tensor",
  2, alignArg>;

//===----------------------------------------------------------------------===//
// Sampling at a grid
//===----------------------------------------------------------------------===//

/// Over `rank` spatial dims; 0: as many as the input has.
class Koila_GridSamplerOp<string mnemonic, string schema, int rank>
    : Koila_RuledOp<mnemonic, schema> {
  let description = [{
    `input` `[N, C, ...]` read at the places in `grid`, `[N, out..., rank]`:
    `[N, C, out...]`. The batch stays in dim 0, which both have. New storage.
  }];
  let arguments = (ins AnyTensor:$input, AnyTensor:$grid,
                       I64Attr:$interpolation_mode, I64Attr:$padding_mode,
                       BoolAttr:$align_corners);
  let shapeRule = "return ::koila::rules::inferGridSampler(rule, " # rank # ");";
  let batchRule = "::koila::rules::inferGridSamplerBatch(rule);";
}
def Koila_GridSamplerAnyOp : Koila_GridSamplerOp<"grid_sampler",
  "aten::grid_sampler(Tensor input, Tensor grid, int interpolation_mode, int padding_mode, bool align_corners) -> Tensor", 0> {
  let differentiationRule = "::koila::rules::describeDerivativeAs(rule, \"grid_sampler_2d\");";
}
def Koila_GridSampler2dOp : Koila_GridSamplerOp<"grid_sampler_2d",
  "aten::grid_sampler_2d(Tensor input, Tensor grid, int interpolation_mode, int padding_mode, bool align_corners) -> Tensor", 2>;
def Koila_GridSampler3dOp : Koila_GridSamplerOp<"grid_sampler_3d",
  "aten::grid_sampler_3d(Tensor input, Tensor grid, int interpolation_mode, int padding_mode, bool align_corners) -> Tensor", 3>;

def Koila_AffineGridOp : Koila_RuledOp<"affine_grid_generator",
  "aten::affine_grid_generator(Tensor theta, SymInt[] size, bool align_corners) -> Tensor"> {
  let description = [{
    A grid for `size` `[N, C, ...]` from one matrix per sample: `[N, ..., 2]`
    or `[N, ..., 3]`. The batch stays in dim 0 if the first of `size` is the
    number of samples. New storage.
  }];
  let arguments = (ins AnyTensor:$theta, DenseI64ArrayAttr:$size,
                       BoolAttr:$align_corners, Variadic<AnyType>:$dynamic);
  let shapeRule = "return ::koila::rules::inferAffineGrid(rule);";
  let batchRule = "::koila::rules::inferAffineGridBatch(rule);";
}

#endif // KOILA_DIALECT_KOILA_IR_RESAMPLEOPS_TD
