//===- Printer.cpp - Printing input specs ---------------------------------===//

#include "koila/InputSpec/InputSpec.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/Support/raw_ostream.h"

using namespace koila;

static void printDim(llvm::raw_ostream &os, const InputDim &dim) {
  if (dim.isConstant()) {
    os << dim.factor;
    return;
  }
  if (dim.factor != 1)
    os << dim.factor << '*';
  os << dim.symbol;
  if (dim.pinned)
    os << '=' << *dim.pinned;
}

static void printSpec(llvm::raw_ostream &os, const InputSpec &spec) {
  auto printElements = [&](char open, char close) {
    os << open;
    for (auto [index, element] : llvm::enumerate(spec.elements)) {
      if (index)
        os << ',';
      if (spec.kind == InputSpec::Kind::Dict) {
        printSpec(os, spec.keys[index]);
        os << ':';
      }
      printSpec(os, element);
    }
    os << close;
  };
  switch (spec.kind) {
  case InputSpec::Kind::Tensor:
    os << spec.dtype << '[';
    llvm::interleave(
        spec.dims, os, [&](const InputDim &dim) { printDim(os, dim); }, ",");
    os << ']';
    if (spec.range) {
      os << '{';
      printDim(os, spec.range->from);
      os << ':';
      printDim(os, spec.range->to);
      os << '}';
    }
    os << (spec.channelsLast ? "@channels_last" : "")
       << (spec.requiresGrad ? "@grad" : "");
    return;
  case InputSpec::Kind::Int:
    os << spec.intValue;
    return;
  case InputSpec::Kind::Float:
    os << spec.floatValue;
    return;
  case InputSpec::Kind::Bool:
    os << (spec.boolValue ? "true" : "false");
    return;
  case InputSpec::Kind::None:
    os << "none";
    return;
  case InputSpec::Kind::String:
    os << '"' << spec.stringValue << '"';
    return;
  case InputSpec::Kind::List:
    return printElements('[', ']');
  case InputSpec::Kind::Tuple:
    return printElements('(', ')');
  case InputSpec::Kind::Dict:
    return printElements('{', '}');
  }
}

std::string InputSpec::str() const {
  std::string text;
  llvm::raw_string_ostream os(text);
  printSpec(os, *this);
  return text;
}
