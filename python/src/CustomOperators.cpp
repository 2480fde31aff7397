//===- CustomOperators.cpp - Rules of operators in Python -----------------===//

#include "CustomOperators.h"
#include "koila/Target/TorchScript/InProcess.h"
#include <map>
#include <pybind11/stl.h>

namespace py = pybind11;
using namespace koila;

/// Names of rules, and per result the argument that it is a view of, or -1.
using Description = std::pair<std::vector<std::string>, std::vector<int64_t>>;

static CustomOperator makeOperator(const Description &description) {
  auto has = [&](llvm::StringRef rule) {
    return llvm::is_contained(description.first, rule);
  };
  CustomOperator made;
  made.shape = has("shape");
  made.batch = has("batch");
  made.forward = has("forward");
  made.saved = has("saved");
  made.backward = has("backward");
  llvm::append_range(made.storage, description.second);
  return made;
}

void koila::bindCustomOperators(py::module_ &m) {
  m.def(
      "set_custom_operators",
      [](const std::map<std::string, Description> &operators,
         py::function answer) {
        llvm::StringMap<CustomOperator> made;
        for (const auto &[name, description] : operators)
          made[name] = makeOperator(description);
        // Never freed: Python may have ended when the process does.
        auto *ask = new py::function(std::move(answer));
        torchscript::setCustomOperators(
            std::move(made), [ask](llvm::StringRef request) {
              py::gil_scoped_acquire lock;
              return (*ask)(py::str(request.data(), request.size()))
                  .cast<std::string>();
            });
      },
      py::arg("operators"), py::arg("answer"));
}
