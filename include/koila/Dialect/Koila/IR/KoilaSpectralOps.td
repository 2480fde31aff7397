//===- KoilaSpectralOps.td - Fourier transforms -*- tablegen -*-===//

#ifndef KOILA_DIALECT_KOILA_IR_KOILASPECTRALOPS_TD
#define KOILA_DIALECT_KOILA_IR_KOILASPECTRALOPS_TD

include "koila/Dialect/Koila/IR/KoilaBase.td"

#endif // KOILA_DIALECT_KOILA_IR_KOILASPECTRALOPS_TD
