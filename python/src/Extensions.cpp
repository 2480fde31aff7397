//===- Extensions.cpp - Operators of others -------------------------------===//

#include "Extensions.h"
#include "koila/Extension/Loading.h"

using namespace koila;

void koila::bindExtensions(pybind11::module_ &module) {
  module.def(
      "load_extension",
      [](const std::string &path) {
        return llvm::toString(loadExtension(path));
      },
      pybind11::arg("path"));
}
