//===- SpectralOps.td - Fourier transforms -----------------*- tablegen -*-===//

#ifndef KOILA_DIALECT_KOILA_IR_SPECTRALOPS_TD
#define KOILA_DIALECT_KOILA_IR_SPECTRALOPS_TD

include "koila/Dialect/Koila/IR/KoilaBase.td"

//===----------------------------------------------------------------------===//
// Transforms
//===----------------------------------------------------------------------===//

/// `kind` is a member of koila::rules::Fourier.
class Koila_FourierOp<string mnemonic, string signature, dag extra, string kind>
    : Koila_RuledOp<mnemonic,
                    "aten::" # mnemonic # "(Tensor self, " # signature #
                    ", str? norm=None) -> Tensor"> {
  let description = [{
    A dim is cut or filled up with zeros to its size. Integers become float32.
    Refused: a size below one. The batch stays in a dim that is not
    transformed. New storage; the transformed dims are the fastest in memory.
  }];
  let arguments = !con((ins AnyTensor:$self), extra,
                       (ins OptionalAttr<StrAttr>:$norm,
                            Variadic<AnyType>:$dynamic));
  let shapeRule = "return ::koila::rules::inferFourier(rule, getSelf(), "
                  "::koila::rules::Fourier::" # kind # ");";
  let batchRule = "::koila::rules::inferFourierBatch(rule, getSelf());";
  // Transforms of complex numbers save nothing; those of real ones what they
  // are given, which may have been filled up.
  let differentiationRule = [{
    if (::llvm::isa_and_nonnull<::mlir::ComplexType>(
            rule.getElementType(getSelf())))
      return;
    rule.save(getSelf());
    rule.saveInner();
  }];
}
class Koila_FourierOneOp<string mnemonic, string kind>
    : Koila_FourierOp<mnemonic, "SymInt? n=None, int dim=-1",
                      (ins OptionalAttr<I64Attr>:$n, I64Attr:$dim), kind>;
class Koila_FourierTwoOp<string mnemonic, string kind>
    : Koila_FourierOp<mnemonic, "SymInt[1]? s=None, int[1] dim=[-2, -1]",
                      (ins OptionalAttr<DenseI64ArrayAttr>:$s,
                           DenseI64ArrayAttr:$dim), kind>;
class Koila_FourierManyOp<string mnemonic, string kind>
    : Koila_FourierOp<mnemonic, "SymInt[1]? s=None, int[1]? dim=None",
                      (ins OptionalAttr<DenseI64ArrayAttr>:$s,
                           OptionalAttr<DenseI64ArrayAttr>:$dim), kind>;

def Koila_FftFftOp : Koila_FourierOneOp<"fft_fft", "Complex">;
def Koila_FftIfftOp : Koila_FourierOneOp<"fft_ifft", "Complex">;
def Koila_FftRfftOp : Koila_FourierOneOp<"fft_rfft", "RealToHalf">;
def Koila_FftIhfftOp : Koila_FourierOneOp<"fft_ihfft", "RealToHalf">;
def Koila_FftIrfftOp : Koila_FourierOneOp<"fft_irfft", "HalfToReal">;
def Koila_FftHfftOp : Koila_FourierOneOp<"fft_hfft", "HalfToReal">;
def Koila_FftFft2Op : Koila_FourierTwoOp<"fft_fft2", "Complex">;
def Koila_FftIfft2Op : Koila_FourierTwoOp<"fft_ifft2", "Complex">;
def Koila_FftRfft2Op : Koila_FourierTwoOp<"fft_rfft2", "RealToHalf">;
def Koila_FftIhfft2Op
    : Koila_FourierTwoOp<"fft_ihfft2", "RealToHalfLastFirst">;
def Koila_FftIrfft2Op : Koila_FourierTwoOp<"fft_irfft2", "HalfToReal">;
def Koila_FftHfft2Op : Koila_FourierTwoOp<"fft_hfft2", "HalfToReal">;
def Koila_FftFftnOp : Koila_FourierManyOp<"fft_fftn", "Complex">;
def Koila_FftIfftnOp : Koila_FourierManyOp<"fft_ifftn", "Complex">;
def Koila_FftRfftnOp : Koila_FourierManyOp<"fft_rfftn", "RealToHalf">;
def Koila_FftIhfftnOp
    : Koila_FourierManyOp<"fft_ihfftn", "RealToHalfLastFirst">;
def Koila_FftIrfftnOp : Koila_FourierManyOp<"fft_irfftn", "HalfToReal">;
def Koila_FftHfftnOp : Koila_FourierManyOp<"fft_hfftn", "HalfToReal">;

//===----------------------------------------------------------------------===//
// Around transforms
//===----------------------------------------------------------------------===//

/// Rolls dims by half of their extents.
class Koila_FourierShiftOp<string mnemonic>
    : Koila_RuledOp<mnemonic, "aten::" # mnemonic #
                    "(Tensor self, int[1]? dim=None) -> Tensor"> {
  let arguments = (ins AnyTensor:$self, OptionalAttr<DenseI64ArrayAttr>:$dim);
  let shapeRule = "return ::koila::rules::inferShift(rule, getSelf());";
  let batchRule = "::koila::rules::inferFourierBatch(rule, getSelf());";
  let differentiationRule = "";
}
def Koila_FftFftshiftOp : Koila_FourierShiftOp<"fft_fftshift">;
def Koila_FftIfftshiftOp : Koila_FourierShiftOp<"fft_ifftshift">;

/// The frequencies of a transform of `n` points.
class Koila_FrequenciesOp<string mnemonic, string halved>
    : Koila_RuledOp<mnemonic, "aten::" # mnemonic # "(int n, float d=1., *, "
        "ScalarType? dtype=None, Layout? layout=None, Device? device=None, "
        "bool? pin_memory=None) -> Tensor"> {
  let arguments = (ins I64Attr:$n, F64Attr:$d, OptionalAttr<I64Attr>:$dtype,
                       OptionalAttr<I64Attr>:$layout,
                       OptionalAttr<Koila_DeviceAttr>:$device,
                       OptionalAttr<BoolAttr>:$pin_memory,
                       Variadic<AnyType>:$dynamic);
  let shapeRule = "return ::koila::rules::inferFrequencies(rule, " # halved #
                  ", getDtype());";
  let batchRule = [{
    (void)rule.argumentFact("n");
    rule.mix("the frequencies depend on the number of samples");
  }];
}
def Koila_FftFftfreqOp : Koila_FrequenciesOp<"fft_fftfreq", "false">;
def Koila_FftRfftfreqOp : Koila_FrequenciesOp<"fft_rfftfreq", "true">;

//===----------------------------------------------------------------------===//
// Short-time transforms
//===----------------------------------------------------------------------===//

/// `center` is C++: whether half a window is padded on both sides.
class Koila_StftFamilyOp<string mnemonic, string schema, dag extra,
                         string center>
    : Koila_RuledOp<mnemonic, schema> {
  let description = [{
    The spectra of windows of a signal `[N, L]` or `[L]`, as `[N, frequencies,
    frames]`. The batch stays in dim 0. New storage, frame after frame.
  }];
  let arguments = !con((ins AnyTensor:$self, I64Attr:$n_fft,
                            OptionalAttr<I64Attr>:$hop_length,
                            OptionalAttr<I64Attr>:$win_length,
                            Koila_OptionalTensor:$window), extra,
                       (ins BoolAttr:$normalized,
                            OptionalAttr<BoolAttr>:$onesided,
                            OptionalAttr<BoolAttr>:$return_complex,
                            OptionalAttr<BoolAttr>:$align_to_window));
  let shapeRule = "return ::koila::rules::inferStft(rule, getSelf(), "
                  "getWindow(), " # center # ");";
  let batchRule = "::koila::rules::inferStftBatch(rule, getSelf(), "
                  "getWindow(), 1);";
  // The transform reads how long the frames were, which may be products with
  // the window.
  let differentiationRule = [{
    rule.save(getSelf());
    rule.saveFor(getSelf(), getWindow());
    rule.saveInner();
  }];
}
def Koila_StftOp : Koila_StftFamilyOp<"stft",
  "aten::stft(Tensor self, int n_fft, int? hop_length=None, int? win_length=None, Tensor? window=None, bool normalized=False, bool? onesided=None, bool? return_complex=None, bool? align_to_window=None) -> Tensor",
  (ins), "false">;
def Koila_StftCenterOp : Koila_StftFamilyOp<"stft_center",
  "aten::stft.center(Tensor self, int n_fft, int? hop_length=None, int? win_length=None, Tensor? window=None, bool center=True, str pad_mode='reflect', bool normalized=False, bool? onesided=None, bool? return_complex=None, bool? align_to_window=None) -> Tensor",
  (ins BoolAttr:$center, StrAttr:$pad_mode), "getCenter()">;
def Koila_IstftOp : Koila_RuledOp<"istft",
  "aten::istft(Tensor self, int n_fft, int? hop_length=None, int? win_length=None, Tensor? window=None, bool center=True, bool normalized=False, bool? onesided=None, int? length=None, bool return_complex=False) -> Tensor",
  "", [AttrSizedOperandSegments]> {
  let description = [{
    The signal whose spectra these are. The batch stays in dim 0. Whether the
    windows cover the signal is seen when it runs.
  }];
  let arguments = (ins AnyTensor:$self, I64Attr:$n_fft,
                       OptionalAttr<I64Attr>:$hop_length,
                       OptionalAttr<I64Attr>:$win_length,
                       Koila_OptionalTensor:$window, BoolAttr:$center,
                       BoolAttr:$normalized, OptionalAttr<BoolAttr>:$onesided,
                       OptionalAttr<I64Attr>:$length, BoolAttr:$return_complex,
                       Variadic<AnyType>:$dynamic);
  let shapeRule = "return ::koila::rules::inferIstft(rule, getSelf(), "
                  "getWindow(), getCenter());";
  let batchRule = "::koila::rules::inferStftBatch(rule, getSelf(), "
                  "getWindow(), 2);";
  let differentiationRule = [{
    rule.save(getWindow());
    rule.saveInner();
  }];
}

#endif // KOILA_DIALECT_KOILA_IR_SPECTRALOPS_TD
